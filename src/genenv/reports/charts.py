"""Figures for the report: HTML and inline SVG whose colours are CSS variables, so that one file serves light, dark and
paper. Beside it, the text helpers that the page shares with them.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from genenv.runs.summary import Curve

LONGEST = 4000
"""Characters of one text that the page shows."""
COLOURS = 8
UNKNOWN = "–"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 400, 46, 8, 10, 22

# controls that a browser refuses, that hide text or turn its direction; lone surrogates, which UTF-8 cannot hold
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufffe\uffff]"
)


def escape(value: object) -> str:
    """Text for an HTML element or a quoted attribute: markup is quoted, unseen characters are named, length is bounded."""
    text = str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n[{len(text) - LONGEST:,} more characters]"
    return html.escape(_UNSEEN.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", text))


def table(label: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself; the first cell of a row names it."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = []
    for name, *cells in rows:
        told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body.append(f'<tr><th scope="row">{escape(name)}</th>{told}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.0f}\u202f%"


def number(value: float | None) -> str:
    """Three digits, or more where they are exact; large ones with k, M or G."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return f"{value / size:.3g}\u202f{unit}" if abs(value) < 1e12 else f"{value:.3g}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 0.1:
        return "<\u202f0.1\u202fs"
    if seconds < 100:
        return f"{seconds:.3g}\u202fs"
    minutes = round(seconds / 60)
    return f"{minutes}\u202fmin" if minutes < 100 else f"{minutes // 60}\u202fh {minutes % 60}\u202fmin"


@dataclass(frozen=True)
class Series:
    """One curve or one layer. `colour` is its place in the palette, `look` a CSS class: "", "thin" or "dash".

    `low` and `high` bound an interval that is shaded around a curve.
    """

    name: str
    values: Curve
    colour: int = 0
    look: str = ""
    low: Curve = ()
    high: Curve = ()


@dataclass(frozen=True)
class Chart:
    """Values over `x`, which are rounds unless `axis` says otherwise, as lines or stacked columns.

    `top` None takes the upper end from the data. The key shows the last known value of each series, or `totals` where given.
    """

    title: str
    note: str
    x: Sequence[int]
    series: Sequence[Series]
    kind: Literal["lines", "stack"] = "lines"
    format: Callable[[float | None], str] = percent
    top: float | None = 1.0
    band: tuple[float, float] | None = None
    height: int = 190
    totals: Sequence[str] = ()
    axis: str = "round"

    def html(self) -> str:
        """The figure: caption, key, picture, and the numbers as a table."""
        known = [v for s in self.series for v in s.values if v is not None]
        if known:
            body = self._key() + self._svg(known) + self._table()
        else:
            body = '<p class="empty">Not measured in this run</p>'
        caption = f"<figcaption><b>{escape(self.title)}</b>{escape(self.note)}</figcaption>"
        size = ' class="tall"' if self.height > 250 else ""
        return f"<figure{size}>{caption}{body}</figure>"

    def _key(self) -> str:
        items = []
        for i, s in enumerate(self.series):
            last = self.totals[i] if self.totals else self.format(_last(s.values))
            look = "area" if self.kind == "stack" else s.look
            items.append(f'<li class="c{s.colour} {look}"><i></i>{escape(s.name)} <b>{escape(last)}</b></li>')
        return f'<ul class="key">{"".join(items)}</ul>'

    def _table(self) -> str:
        heads = [self.axis, *(s.name for s in self.series)]
        rows = [[str(x), *(self._value(s, i) for s in self.series)] for i, x in enumerate(self.x)]
        return f"<details><summary>Numbers</summary>{table(f'{self.title}, numbers', heads, rows)}</details>"

    def _value(self, series: Series, i: int) -> str:
        value = self.format(series.values[i])
        known = series.low and series.low[i] is not None
        return f"{value} ({self.format(series.low[i])} to {self.format(series.high[i])})" if known else value

    # -- the picture -------------------------------------------------------------------------------------------

    def _svg(self, known: Sequence[float]) -> str:
        if self.kind == "stack":
            known = [sum(column) for column in self._columns()]
        else:
            known = [*known, *(v for s in self.series for v in (*s.low, *s.high) if v is not None)]
        ticks = ticks_between(
            min(0.0, min(known)), max(known) if self.top is None else self.top, count=5 if self.height > 150 else 3
        )
        low, high = ticks[0], ticks[-1]
        floor = self.height - BOTTOM

        def across(x: float) -> float:
            first, last = self.x[0] - 0.5, self.x[-1] + 0.5
            return LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)

        def up(y: float) -> float:
            return floor - (y - low) / (high - low) * (floor - TOP)

        parts = []
        if self.band is not None:
            bottom, top = map(up, self.band)
            size = f'width="{WIDTH - LEFT - RIGHT}" height="{bottom - top:.1f}"'
            parts.append(f'<rect class="band" x="{LEFT}" y="{top:.1f}" {size}/>')
        for t in ticks:
            kind = "axis" if t == 0 else "grid-line"
            parts.append(f'<path class="{kind}" d="M{LEFT} {up(t):.1f}H{WIDTH - RIGHT}"/>')
            label = escape(self.format(t))
            parts.append(f'<text x="{LEFT - 6}" y="{up(t) + 4:.1f}" text-anchor="end">{label}</text>')
        for x in self._round_ticks():
            parts.append(f'<text x="{across(x):.1f}" y="{self.height - 6}" text-anchor="middle">{x}</text>')
        parts += self._layers(across, up) if self.kind == "stack" else self._lines(across, up)
        parts.append(self._hits(across, floor))
        label = "; ".join(
            f"{s.name}: {self.format(_first(s.values))} to {self.format(_last(s.values))}" for s in self.series
        )
        about = f"{self.title}, {self.axis} {self.x[0]} to {self.x[-1]}. {label}"
        view = f'viewBox="0 0 {WIDTH} {self.height}"'
        return f'<svg {view} role="img" aria-label="{escape(about)}">{"".join(parts)}</svg>'

    def _round_ticks(self) -> list[int]:
        first, last = self.x[0], self.x[-1]
        step = max(1, round(ticks_between(0, max(4, last - first), 5)[1]))
        # the ends are always named, and their neighbours make room
        inner = {x for x in range(first, last) if x % step == 0 and min(x - first, last - x) > 0.6 * step}
        return sorted({first, last} | inner)

    def _lines(self, across: Callable[[float], float], up: Callable[[float], float]) -> list[str]:
        parts = []
        few = len(self.x) <= 16
        # the first series matters most and is drawn last, on top
        for s in reversed(self.series):
            spread = [(across(x), up(a), up(b)) for x, a, b in zip(self.x, s.low, s.high, strict=False)
                      if a is not None and b is not None]  # fmt: skip
            if spread:
                edge = [f"{x:.1f} {low:.1f}" for x, low, _ in spread] + [
                    f"{x:.1f} {high:.1f}" for x, _, high in spread[::-1]
                ]
                parts.append(f'<path class="spread c{s.colour}" d="M{"L".join(edge)}z"/>')
            look, line, dots = f"c{s.colour} {s.look}".strip(), "", ""
            places = [
                None if v is None else f"{across(x):.1f} {up(v):.1f}" for x, v in zip(self.x, s.values, strict=True)
            ]
            for i, place in enumerate(places):
                if place is None:
                    continue
                joined = i > 0 and places[i - 1] is not None
                line += ("L" if joined else "M") + place
                if few or (not joined and (i + 1 == len(places) or places[i + 1] is None)):
                    dots += f"M{place}m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0"
            parts.append(f'<path class="line {look}" d="{line}"/>')
            if dots:
                parts.append(f'<path class="dots {look}" d="{dots}"/>')
        return parts

    def _columns(self) -> list[list[float]]:
        return [[s.values[i] or 0.0 for s in self.series] for i in range(len(self.x))]

    def _layers(self, across: Callable[[float], float], up: Callable[[float], float]) -> list[str]:
        # many columns touch and read as an area; few are not blown up
        half = 0.5 if len(self.x) > 24 else min(0.46, 0.06 * len(self.x))
        paths = [""] * len(self.series)
        for x, column in zip(self.x, self._columns(), strict=True):
            below = 0.0
            for i, value in enumerate(column):
                if value > 0:
                    left, right, base, top = across(x - half), across(x + half), up(below), up(below + value)
                    paths[i] += f"M{left:.2f} {base:.2f}H{right:.2f}V{top:.2f}H{left:.2f}z"
                below += value
        return [f'<path class="area c{s.colour}" d="{d}"/>' for s, d in zip(self.series, paths, strict=True) if d]

    def _hits(self, across: Callable[[float], float], floor: float) -> str:
        """Invisible columns that tell a pointer the values at one place."""
        width = max(8.0, across(1) - across(0))
        parts = []
        for i, x in enumerate(self.x):
            told = [f"{s.name}: {self.format(s.values[i])}" for s in self.series if s.values[i] is not None]
            title = escape("\n".join([f"{self.axis} {x}", *told]))
            place = f'x="{across(x) - width / 2:.1f}" y="{TOP}" width="{width:.1f}" height="{floor - TOP}"'
            parts.append(f"<rect {place}><title>{title}</title></rect>")
        return f'<g class="hit">{"".join(parts)}</g>'


@dataclass(frozen=True)
class Bar:
    """One value with its interval; `told` is what stands beside it."""

    name: str
    value: float
    low: float
    high: float
    told: str = ""
    colour: int = 0


def bars(title: str, note: str, rows: Sequence[Bar], format: Callable[[float | None], str] = percent) -> str:
    """A figure of horizontal bars with their intervals, from 0."""
    gap, label, right = 24, 110, 120
    ticks = ticks_between(min(0.0, *(r.low for r in rows)), max(0.0, *(r.high for r in rows)), 4)
    wide, height = 2 * WIDTH, gap * len(rows) + TOP + BOTTOM

    def across(value: float) -> float:
        return label + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (wide - label - right)

    parts = []
    for t in ticks:
        kind = "axis" if t == 0 else "grid-line"
        parts.append(f'<path class="{kind}" d="M{across(t):.1f} {TOP}V{height - BOTTOM}"/>')
        parts.append(f'<text x="{across(t):.1f}" y="{height - 6}" text-anchor="middle">{escape(format(t))}</text>')
    for i, row in enumerate(rows):
        middle = TOP + gap * (i + 0.5)
        left, end = sorted((across(0.0), across(row.value)))
        parts.append(f'<text x="{label - 8}" y="{middle + 4}" text-anchor="end">{escape(row.name)}</text>')
        size = f'width="{end - left:.1f}" height="{gap - 8}"'
        parts.append(f'<rect class="area c{row.colour}" x="{left:.1f}" y="{middle - gap / 2 + 4}" {size}/>')
        line = f"M{across(row.low):.1f} {middle}H{across(row.high):.1f}M{across(row.low):.1f} {middle - 4}v8M{across(row.high):.1f} {middle - 4}v8"
        parts.append(f'<path class="whisker" d="{line}"/>')
        parts.append(f'<text x="{wide - right + 8}" y="{middle + 4}">{escape(row.told or format(row.value))}</text>')
    told = "; ".join(f"{r.name}: {format(r.value)} ({format(r.low)} to {format(r.high)})" for r in rows)
    svg = f'<svg viewBox="0 0 {wide} {height}" role="img" aria-label="{escape(f"{title}. {told}")}">{"".join(parts)}</svg>'
    return f'<figure class="wide"><figcaption><b>{escape(title)}</b>{escape(note)}</figcaption>{svg}</figure>'


def ticks_between(low: float, high: float, count: int) -> list[float]:
    """Round numbers, about `count` steps apart, that enclose [low, high]. Always at least two."""
    if high <= low:
        high = low + 1.0
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _first(values: Curve) -> float | None:
    return next((v for v in values if v is not None), None)


def _last(values: Curve) -> float | None:
    return _first(values[::-1])

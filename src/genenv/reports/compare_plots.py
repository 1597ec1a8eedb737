"""The comparison as one PNG, for papers and slides. Needs matplotlib, which is an extra; the HTML page does not."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from genenv.contracts.errors import MissingExtraError
from genenv.contracts.types import Json
from genenv.runs.summary import BAND


def require_plots() -> None:
    """Raises MissingExtraError, before anything is run, if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots", "--png")


def write_png(c: Mapping[str, Json], path: Path) -> Path:
    """Eight panels: final scores with intervals, held-out curves with bands, and six curves over rounds."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    arms, rounds = c["arms"], range(1, c["rounds"] + 1)
    colours = {name: colormaps["tab20"](i % 20) for i, name in enumerate(arms)}
    figure = Figure(figsize=(20, 9), dpi=110, layout="constrained")
    panels = figure.subplots(2, 4).ravel()

    final = panels[0]
    for place, (name, arm) in enumerate(arms.items()):
        f = arm["final"]
        error = [[100 * (f["mean"] - f["low"])], [100 * (f["high"] - f["mean"])]]
        final.barh(place, 100 * f["mean"], xerr=error, color=colours[name], capsize=3)
    final.set_yticks(range(len(arms)), list(arms))
    final.invert_yaxis()
    final.set_title("Final held-out score, % (Fig. 6)")

    for name, arm in arms.items():
        held = arm["heldout"]
        panels[1].plot(held["rollouts"], [100 * v for v in held["mean"]], color=colours[name], label=name)
        low, high = ([100 * v for v in held[bound]] for bound in ("low", "high"))
        panels[1].fill_between(held["rollouts"], low, high, color=colours[name], alpha=0.1)
    panels[1].set_title("Held-out score, % (Fig. 1b, 4)")
    panels[1].set_xlabel("agent rollouts")

    curves = {
        "success": ("Training reward, % (Fig. 4)", 100), "success_mean": ("Success, mean of 5 rounds, % (Fig. 7)", 100),
        "response_length": ("Response length, tokens (Fig. 5)", 1), "task_length": ("Task length, tokens (Fig. 5)", 1),
        "always_solved": ("Always solved, % (Fig. 8)", 100), "never_solved": ("Never solved, % (Fig. 8)", 100),
    }  # fmt: skip
    for panel, (curve, (title, scale)) in zip(panels[2:], curves.items(), strict=True):
        for name, arm in arms.items():
            values = [float("nan") if v is None else scale * v for v in arm["curves"][curve]["mean"]]
            panel.plot(rounds, values, color=colours[name])
        panel.set_title(title)
        panel.set_xlabel("round")
    panels[3].axhspan(100 * BAND[0], 100 * BAND[1], color="green", alpha=0.1)
    figure.legend(loc="outside lower center", ncols=min(6, len(arms)))
    figure.savefig(path)
    return path

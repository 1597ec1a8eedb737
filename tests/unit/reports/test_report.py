"""The summary's figures against hand-made runs, and a page that no model can break out of."""

import json
import re

import pytest
from pages import Page

from genenv.config.load import build_config
from genenv.config.sections import Config
from genenv.contracts.errors import InputError
from genenv.contracts.types import Candidate, Group, Message, Sample, Score, Task, Trajectory, Verdict
from genenv.reports.charts import LONGEST, Bar, Chart, Series, bars, duration, escape, number, percent, ticks_between
from genenv.reports.run_page import write_report
from genenv.runs.records import CandidateRecord
from genenv.runs.store import Store
from genenv.runs.summary import in_band_from_round, moving_mean, summary

HOSTILE = (
    "</details></pre><script>alert(1)</script><img src=http://evil.test/x onerror=\"a()\" alt='b'>&amp;$body\x00\u202e"
)


def candidate(text="{}", family="1-call"):
    return Candidate((1, 2), Sample((3, 4), (-0.5, -0.5), True, 0), text, family, "harder", "seed", {})


def task(request, family="1-call", tool="play_song", target=None):
    message = Message("user", request)
    tool = {"type": "function", "function": {"name": tool}}
    return Task(
        family, (Message("system", "Call."), message), (tool,), target or [{"name": "play_song"}], {"q": request}
    )


def attempt(score, text="answer", reason="why"):
    return Trajectory((1, 2, 3), (0, 1, 1), (0.0, -0.1, -0.1), 1, text, Score(score, reason), "stop", 0)


def metrics(number, **changes):
    return {
        "round": number, "candidates": 4, "admitted": 2, "rejected": {"schema": 1, "duplicate": 1},
        "simulator_tokens": 80, "success": 0.5, "success_replayed": None,
        "families": {"1-call": {"tasks": 1, "success": 0.75}, "2-call": {"tasks": 1, "success": 0.25}},
        "solved_all": 0, "solved_none": 1, "tasks_in_band": 1, "useful_groups": 3, "groups": 4, "unscored": 0,
        "simulator_reward": 0.6, "agent_rollouts": 16, "agent_tokens": 320, "prompt_length": 150.0,
        "response_length": 20.0, "cut_off": 2, "agent_kl": 0.001, "agent_grad_norm": 0.7, "simulator_kl": None,
        "simulator_grad_norm": None,
    } | changes  # fmt: skip


def timing(interact=2.0, memory=500.0):
    return {"seconds": {"generate": 1.0, "interact": interact}, "peak_memory_mb": memory}


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "run", Config(rounds=4))
    yield store
    store.close()


@pytest.fixture
def played(store):
    """Three rounds: an ordinary one, one with nothing admitted, one with an evaluation."""
    tasks = [task("Play Silver Rain.", "1-call"), task("Play Blue Morning.", "2-call")]
    store.commit_evaluation(0, tasks, [[attempt(1.0), attempt(0.0)], [attempt(None), attempt(0.0)]])
    records = [
        CandidateRecord(candidate("first text"), Verdict("admitted"), tasks[0], 0.5, 1.0),
        CandidateRecord(candidate("bad text"), Verdict("schema", "no calls"), None),
    ]
    groups = [Group(tasks[0], (attempt(1.0, "right one"), attempt(0.0, "wrong one"), attempt(None, "lost one")))]
    store.commit_round(1, records, groups, metrics(1), timing())
    nothing = metrics(
        2, admitted=0, rejected={"schema": 4}, success=None, families={}, solved_none=0, tasks_in_band=0, useful_groups=0,
        groups=0, simulator_reward=None, agent_rollouts=0, agent_tokens=0, prompt_length=None, response_length=None,
    )  # fmt: skip
    store.commit_round(2, [], [], nothing, timing(interact=0.0, memory=640.5))
    store.commit_evaluation(3, tasks, [[attempt(1.0), attempt(1.0)], [attempt(1.0), attempt(0.0)]])
    store.commit_round(3, [], [], metrics(3, success=0.25), {**timing(), "peak_memory_mb": 600.0})
    return store


# -- the band ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("success", "expected"),
    [
        ([], None),
        ([0.5] * 4, None),  # no window is full
        ([0.5] * 5, 5),
        ([0.5] * 9, 5),
        ([0.4] * 5, 5),  # both ends belong to the band
        ([0.6] * 5, 5),
        ([0.5, 0.7, 0.6, 0.5, 0.7], 5),  # 0.6 but for the last bit
        ([0.61] * 5, None),
        ([0.0] * 5 + [0.5] * 5, 9),  # means 0.1, 0.2, 0.3, 0.4, 0.5 in rounds 6 to 10
        ([0.5] * 8 + [1.0, 1.0], None),  # left the band in the last round: mean 0.7
        ([0.5] * 5 + [1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5], 11),  # 0.6 in round 6, 0.7 in 7 to 10, 0.6 in 11
        ([None, None, None, None, 0.5], 5),  # one known value makes a mean
        ([0.5] * 5 + [None] * 4, 5),
        ([0.5] * 5 + [None] * 5, None),  # an unknown mean is not inside
        ([None] * 6, None),
    ],
)
def test_in_band_from_round(success, expected):
    assert in_band_from_round(success) == expected


def test_moving_mean_leaves_unknown_rounds_out():
    assert moving_mean([0.0, None, 0.5, None, 1.0, 0.75]) == [None, None, None, None, 0.5, 0.75]


# -- the summary -------------------------------------------------------------------------------------------------


def test_summary_of_a_run(played):
    found = summary(played)
    expected = {
        "recipe": "genenv", "seed": 0, "rounds": 3, "rounds_planned": 4,
        "success_by_round": [0.5, None, 0.25], "success_mean_by_round": [None, None, None],
        "in_band_from_round": None, "in_band_share": None,
        "admitted_share_by_round": [0.5, 0.0, 0.5], "useful_group_share_by_round": [0.75, None, 0.75],
        "rejected_by_reason": {"schema": 6, "duplicate": 2},
        "heldout_start": 0.25, "heldout_end": 0.75,
        "heldout_by_round": [
            {"round": 0, "score": 0.25, "attempts": 4}, {"round": 3, "score": 0.75, "attempts": 4},
        ],
        "candidates": 12, "admitted": 4, "agent_rollouts": 32, "agent_tokens": 640, "simulator_tokens": 240,
        "seconds": 7.0, "seconds_by_stage": {"generate": 3.0, "interact": 4.0}, "peak_memory_mb": 640.5,
        "solved_all_by_round": [0, 0, 0], "solved_none_by_round": [1, 0, 1], "tasks_in_band_by_round": [1, 0, 1],
        "tried_by_round": [2, 0, 2], "prompt_length_by_round": [150.0, None, 150.0],
        "response_length_by_round": [20.0, None, 20.0], "simulator_kl_by_round": [None, None, None],
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert found["families_by_round"][0] == {
        "1-call": {"tasks": 1, "success": 0.75}, "2-call": {"tasks": 1, "success": 0.25},
    }  # fmt: skip
    assert list(found["rejected_by_reason"]) == ["schema", "duplicate"]
    json.dumps(found, allow_nan=False)


def test_summary_before_the_first_round(store):
    store.commit_evaluation(0, [task("a")], [[attempt(1.0)]])
    found = summary(store)
    known = {key: found[key] for key in ("rounds", "heldout_start", "heldout_end", "seconds", "peak_memory_mb")}
    assert known == {"rounds": 0, "heldout_start": 1.0, "heldout_end": None, "seconds": None, "peak_memory_mb": None}
    assert (found["agent_rollouts"], found["success_by_round"], found["rejected_by_reason"]) == (0, [], {})


def test_a_missing_figure_is_unknown_and_not_zero(store):
    store.commit_round(1, [], [], {"round": 1}, {})
    found = summary(store)
    for key in ("candidates", "agent_rollouts", "agent_tokens", "simulator_tokens", "seconds", "heldout_start"):
        assert found[key] is None, key
    for key in ("success", "solved_all", "tried", "admitted_share", "useful_group_share", "agent_kl"):
        assert found[f"{key}_by_round"] == [None], key


def test_summary_counts_band_rounds(store):
    for n, success in enumerate([0.0] * 5 + [0.5] * 5, 1):
        store.commit_round(n, [], [], metrics(n, success=success), timing())
    found = summary(store)
    assert found["in_band_from_round"] == 9
    assert found["in_band_share"] == pytest.approx(2 / 6)  # of rounds 5 to 10, rounds 9 and 10


def test_an_evaluation_of_an_unfinished_round_is_left_out(played):
    played.commit_evaluation(4, [task("a")], [[attempt(0.0)]])
    assert summary(played)["heldout_end"] == 0.75


# -- the page ----------------------------------------------------------------------------------------------------


def page(store, tmp_path):
    return write_report(store, tmp_path / "report.html").read_text("utf-8")


def test_page_shows_tasks_attempts_and_rejected(played, tmp_path):
    text = Page(page(played, tmp_path)).text
    for part in ("Play Silver Rain.", "play_song", "first text", "right one", "wrong one", "lost one", "unscored",
                 "solved 1 of 3", "schema (6)", "25\u202f% → 75\u202f%", "held-out score rose from 25\u202f% to 75\u202f%"):  # fmt: skip
        assert part in text, part


def test_rejected_examples_come_from_the_newest_round_that_has_them(store, tmp_path):
    for n, text in ((1, "older text"), (2, "newer text")):
        record = CandidateRecord(candidate(text), Verdict("schema", "no calls"), None)
        store.commit_round(n, [record], [], metrics(n, rejected={"schema": 1}), timing())
    text = Page(page(store, tmp_path)).text
    assert "newer text" in text
    assert "older text" not in text


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_each_round_gives_its_tasks_to_one_part_only(store, tmp_path, rounds):
    for n in range(1, rounds + 1):
        t = task(f"Request of round {n}.")
        record = CandidateRecord(candidate(), Verdict("admitted"), t, 0.5, 1.0)
        store.commit_round(n, [record], [Group(t, (attempt(1.0),))], metrics(n), timing())
    text = page(store, tmp_path)
    assert [text.count(f"<pre>Request of round {n}.</pre>") for n in range(1, rounds + 1)] == [1] * rounds


def test_hostile_text_stays_text(tmp_path):
    config = build_config({"engine": {"model": HOSTILE}}, "test")
    store = Store.create(tmp_path / "<b>run", config)
    t = task(HOSTILE, HOSTILE, HOSTILE, [{"name": HOSTILE}])
    records = [
        CandidateRecord(candidate(HOSTILE, HOSTILE), Verdict("admitted"), t, 0.5, 1.0),
        CandidateRecord(candidate(HOSTILE, HOSTILE), Verdict(HOSTILE, HOSTILE), None),
    ]
    group = Group(t, (attempt(0.0, HOSTILE, HOSTILE), attempt(1.0, HOSTILE)))
    families = {HOSTILE: {"tasks": 1, "success": 0.5}}
    seconds = {"seconds": {HOSTILE: 1.0}}
    store.commit_round(1, records, [group], metrics(1, rejected={HOSTILE: 1}, families=families), seconds)
    raw = page(store, tmp_path)
    store.close()
    found = Page(raw)
    assert found.open == []
    assert not {"script", "img", "link", "iframe", "object"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "\x00" not in raw
    assert "\u202e" not in raw
    assert "alert(1)</script>" in found.text  # shown, not run
    assert "&amp;$body⟨U+0000⟩⟨U+202E⟩" in found.text  # neither unescaped nor taken for a placeholder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a href='x'>&\"", "&lt;a href=&#x27;x&#x27;&gt;&amp;&quot;"),
        ("a\x00b\x1bc\ud800d", "a⟨U+0000⟩b⟨U+001B⟩c⟨U+D800⟩d"),
        ("é\n\t中😀", "é\n\t中😀"),
        ("x" * (LONGEST + 2500), "x" * LONGEST + "\n[2,500 more characters]"),
    ],
)
def test_escape(text, expected):
    assert escape(text) == expected
    escape(text).encode()


def test_page_loads_nothing(played, tmp_path):
    found = Page(page(played, tmp_path))
    assert all(value.startswith("#") for name, value in found.attributes if name in ("src", "href", "action", "data"))
    assert "url(" not in found.style
    assert "@import" not in found.style
    policy = [value for name, value in found.attributes if name == "content" and "default-src" in value]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_every_figure_has_a_caption_and_a_drawn_one_has_a_label_and_a_table(played, tmp_path):
    figures = page(played, tmp_path).split("<figure")[1:]
    assert all("<figcaption>" in f for f in figures)
    drawn = [f for f in figures if "<svg" in f]
    assert all('role="img" aria-label="' in f and "<table>" in f for f in drawn)
    assert len([f for f in figures if "Not measured in this run" in f]) == len(figures) - len(drawn) == 2


@pytest.mark.parametrize("finished", [0, 1])
def test_page_of_a_young_run(store, tmp_path, finished):
    if finished:
        store.commit_round(1, [], [], {"round": 1, "success": None}, {})
    found = Page(page(store, tmp_path))
    assert found.open == []
    assert "svg" not in found.tags
    assert f"{finished} of 4 rounds" in found.text


def test_report_is_reproducible_and_leaves_no_draft(played, tmp_path):
    first = write_report(played, tmp_path / "out" / "report.html").read_bytes()
    assert write_report(played, tmp_path / "out" / "report.html").read_bytes() == first
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_written_leaves_the_old_one(played, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"cannot write the report .*folder: Is a directory; choose another file"):
        write_report(played, tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir() if "draft" in p.name] == []


# -- drawing -----------------------------------------------------------------------------------------------------


def test_a_gap_breaks_the_line_and_a_lone_value_is_a_dot():
    values = [0.0, 1.0, None, 0.5, None] + [0.0] * 15
    picture = Chart("t", "n", range(1, 21), [Series("s", values)]).html()
    line = picture.split('class="line c0" d="')[1].split('"')[0]
    assert line.count("M") == 3
    assert line.count("L") == 15
    assert picture.split('class="dots c0" d="')[1].split('"')[0].count("M") == 1


def test_layers_are_stacked_to_the_whole():
    layers = [Series("a", [0.25, 0.0], 0), Series("b", [0.75, 0.0], 1)]
    picture = Chart("t", "n", [1, 2], layers, "stack", height=132, totals=["25 %", "75 %"]).html()
    shapes = [p.split(' d="')[1].split('"')[0] for p in picture.split("<path ") if p.startswith('class="area')]
    # 100 units for the whole: a from 110 (the floor) up to 85, b from there up to 10; the empty round draws nothing
    spans = [[re.search(pattern, shape)[1] for pattern in (r"^M[\d.]+ ([\d.]+)H", r"V([\d.]+)H")] for shape in shapes]
    assert spans == [["110.00", "85.00"], ["85.00", "10.00"]]
    assert [shape.count("M") for shape in shapes] == [1, 1]


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0.0, 1.0, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 0.0, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 183.0, 5, [0.0, 50.0, 100.0, 150.0, 200.0]),
        (-0.01, 0.03, 3, [-0.02, 0.0, 0.02, 0.04]),
        (0.0, 3e-15, 3, [0.0, 1e-15, 2e-15, 3e-15]),
    ],
)
def test_ticks_enclose_the_values(low, high, count, expected):
    assert ticks_between(low, high, count) == expected


def test_numbers_for_people():
    assert [percent(v) for v in (None, 0.0, 0.125, 1.0)] == ["–", "0\u202f%", "12\u202f%", "100\u202f%"]
    found = [number(v) for v in (None, 0, 0.12345, 3.0, 9876, 9876.54, 123456, 4.5e6, 2e9)]
    assert found == ["–", "0", "0.123", "3", "9,876", "9,877", "123\u202fk", "4.5\u202fM", "2\u202fG"]
    found = [duration(v) for v in (None, 0.001, 12.34, 600.0, 9000.0)]
    assert found == ["–", "<\u202f0.1\u202fs", "12.3\u202fs", "10\u202fmin", "2\u202fh 30\u202fmin"]


@pytest.mark.parametrize(("value", "low", "high"), [(-0.3, -0.4, -0.2), (0.3, 0.2, 0.4), (0.1, -0.2, 0.4)])
def test_bars_start_at_zero_and_whiskers_span_their_interval(value, low, high):
    html = bars("Title", "note", [Bar("<arm>", value, low, high)])
    assert "<arm>" in Page(html).text
    labels = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">(-?\d+)', html)
    ((zero, _), (first, least), (last, most)) = next(t for t in labels if t[1] == "0"), labels[0], labels[-1]
    scale = (float(last) - float(first)) / (int(most) - int(least)) * 100
    ((x, width),) = re.findall(r'<rect class="area c0" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', html)
    assert float(width) == pytest.approx(abs(value) * scale, abs=0.2)
    assert float(x) == pytest.approx(float(zero) + min(0.0, value) * scale, abs=0.2)
    ((left, right),) = re.findall(r'class="whisker" d="M([\d.]+) [\d.]+H([\d.]+)', html)
    assert [float(left), float(right)] == pytest.approx([float(zero) + v * scale for v in (low, high)], abs=0.2)


def test_a_curve_with_an_interval_is_shaded_and_its_table_has_the_bounds():
    chart = Chart("T", "", [1, 2, 3], [Series("a", [0.5, None, 0.7], 0, "", [0.4, None, 0.6], [0.6, None, 0.8])])
    html = chart.html()
    (shape,) = re.findall(r'<path class="spread c0" d="([^"]*)"', html)
    assert shape.count("L") == 3  # two known rounds, along the lower edge and back along the upper one
    assert "50\u202f% (40\u202f% to 60\u202f%)" in html
    assert html.count("% to ") == 3  # the third in the description of the picture

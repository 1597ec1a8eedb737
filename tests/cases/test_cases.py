"""Faults that programs of this kind have had, one test each, through the outermost function that shows them.

The decisions that some of them need are in docs/trust.md.
"""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from planted import Levels
from random_tokens import random_tokenizer
from typer.testing import CliRunner, Result

from genenv import session
from genenv.cli import app as cli
from genenv.config.sections import Config
from genenv.contracts.domain import Step
from genenv.contracts.errors import InputError
from genenv.contracts.types import Candidate, Chat, Datum, Message, Sample, Score, Task, Verdict
from genenv.domains.python_checker import PythonChecker
from genenv.domains.tool_use.domain import ToolUse
from genenv.domains.tool_use.functions import Function
from genenv.engines.chat import TemplateFormat
from genenv.engines.scripted import ScriptedEngine
from genenv.grading.text import exact_match
from genenv.loop.gate import Gate
from genenv.loop.pools import Pools
from genenv.loop.rewards import alpha_curriculum_reward, empirical_success, without_ends
from genenv.loop.rollouts import PlayConfig, play
from genenv.loop.updates import group_advantages, k3, k3_weight, rwr_data, with_kl
from genenv.reading.parsing import Call, boxed_answer, format_tool_calls
from genenv.runs.records import CandidateRecord
from genenv.runs.store import Store
from genenv.sandbox.outcome import Limits, Outcome
from genenv.sandbox.pool import Sandbox

needs_monty = pytest.mark.skipif(
    importlib.util.find_spec("pydantic_monty") is None, reason="pydantic-monty (extra sandbox) is not installed"
)
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")


def function(name: str, required: tuple[str, ...] = (), **properties: object) -> Function:
    types = {n: {"type": t} if isinstance(t, str) else t for n, t in properties.items()}
    return Function(name=name, parameters={"type": "object", "properties": types, "required": list(required)})


def tool_use(*functions: Function, **options: Any) -> ToolUse:
    return ToolUse({f.name: f for f in functions}, **options)


def score(tool: Function, target: dict[str, Any], output: str) -> Score:
    """What an agent's output earns where the target is one call of `tool`."""
    task = Task("1-call", (Message("user", "do it"),), (tool.tool,), [{"name": tool.name, "arguments": target}], {})
    return Gate(tool_use(tool)).execute(task, [output])


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def refused(*arguments: object) -> str:
    """The one line of a command that exits with status 2."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Limits(wall_s=0.5), workers=1) as box:
        yield box


# -- parsing -------------------------------------------------------------------------------------------------------


def test_c01_a_closing_tag_inside_a_string() -> None:
    note = function("save_note", title="string", body="string")
    target = {"title": "tags", "body": "write </tool_call> { here"}
    for indent in (None, 2):
        written = json.dumps({"name": "save_note", "arguments": target}, indent=indent)
        found = score(note, target, f"Saving it now.\n<tool_call>\n{written}\n</tool_call>")
        assert found.value == 1.0
        assert found.answer == [{"name": "save_note", "arguments": target}]


def test_c02_apostrophes_and_python_literals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shop = function("find_shop", query="string", open_now="boolean")
    target = {"query": "mother's day flowers", "open_now": True}

    def earned(arguments: str) -> Score:
        return score(shop, target, f"<tool_call>{arguments}</tool_call>")

    good = '{"name": "find_shop", "arguments": {"query": "mother\'s day flowers", "open_now": true}}'
    assert earned(good).value == 1.0
    for bad in (
        "{'name': 'find_shop', 'arguments': {'query': \"mother's day flowers\", 'open_now': True}}",
        "{'name': 'find_shop', 'arguments': {'query': open('x', 'w').write('y'), 'open_now': True}}",
        good.replace('"open_now": true', '"open_now": true, "open_now": false'),
    ):
        assert earned(bad).value == 0.0
        assert earned(bad).reason.startswith("malformed: ")
        assert earned(bad).answer is None
    assert list(tmp_path.iterdir()) == []
    gated = call("gate", "tool_use", lines(tmp_path / "t.jsonl"), "--json")
    assert gated.exit_code == 2  # an empty file is no set of tasks
    (tmp_path / "t.jsonl").write_text('{\'calls\': []}\n{"calls": [], "calls": []}\n')
    assert [d["reason"] for d in json.loads(call("gate", "tool_use", tmp_path / "t.jsonl", "--json").stdout)] == [
        "unparsable"
    ] * 2


@pytest.mark.parametrize(
    ("written", "target", "right"),
    [
        (r"I first read \boxed 7, but the value is \boxed{\frac{3}{4}}.", r"\frac{3}{4}", True),
        (r"So it is \boxed{\frac{3}{4}", r"\frac{3}{4}", False),
        (r"\boxed{4} is half of it; the total is \boxed{8}", "8", True),
        (r"\boxed{4} is half of it; the total is \boxed{8}", "4", False),
        ("I do not know", "42", False),
    ],
)
def test_c03_which_box(written: str, target: str, right: bool) -> None:
    answer = boxed_answer(written)
    assert (answer is not None and exact_match(target, answer)) == right


# -- matching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "answer", "right"),
    [
        ("3.14", "314", 0),
        ("1", "1.0", 1),
        ("10", "1.0", 0),
        ("-5", "5", 0),
        ("1250", "1,250", 1),
        ("1250", "1.250", 0),
        ("1250", "12,50", 0),
        ("29", "$29.00", 1),
        ("0.5", "1/2", 1),
        ("nan", "nan", 0),
        ("inf", "inf", 0),
        ("1e999", "1e999", 0),
        ("9007199254740993", "9007199254740992", 0),
    ],
)
def test_c04_numbers_and_punctuation(target: str, answer: str, right: int) -> None:
    assert exact_match(target, answer) == bool(right)


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({"enabled": "true"}, 0),
        ({"enabled": 1}, 0),
        ({"repeat": True}, 0),
        ({"volume": 1}, 1),
        ({"repeat": 1.0}, 1),
        ({"repeat": "1"}, 0),
        ({"volume": None}, 0),
        ({"deep": {"list": [1]}}, 0),
    ],
)
def test_c05_boolean_integer_number_string(change: dict[str, Any], right: int) -> None:
    alarm = function("set_alarm", enabled="boolean", volume="number", repeat="integer", deep="object")
    target = {"enabled": True, "volume": 1.0, "repeat": 1, "deep": {"list": [True]}}
    answer = format_tool_calls([Call("set_alarm", {**target, **change})])
    assert score(alarm, target, answer).value == right
    assert score(alarm, target, format_tool_calls([Call("set_alarm", target)])).value == 1.0


# -- checkers ------------------------------------------------------------------------------------------------------

RIGHT = 'def check(answer):\n    return answer.strip() == "42"\n'
ENDLESS = "def check(answer):\n    while True:\n        pass\n"
SWALLOWING = "def check(answer):\n    while True:\n        try:\n            pass\n        except BaseException:\n            pass\n"


@needs_monty
@pytest.mark.parametrize("place", ["main", "threads", "processes"])
def test_c06_time_limit_from_anywhere(sandbox: Sandbox, place: str) -> None:
    jobs = [(RIGHT, "42"), (ENDLESS, "42"), (SWALLOWING, "42"), (RIGHT, "41")]
    if place == "main":
        outcomes = [sandbox.check(*job) for job in jobs]
    else:
        spawn = multiprocessing.get_context("spawn")
        executor: Executor = ThreadPoolExecutor(4) if place == "threads" else ProcessPoolExecutor(1, mp_context=spawn)
        with executor as pool:
            outcomes = [f.result() for f in [pool.submit(sandbox.check, *job) for job in jobs]]
    assert [(o.status, o.value) for o in outcomes] == [
        ("scored", 1.0),
        ("timeout", None),
        ("timeout", None),
        ("scored", 0.0),
    ]
    assert "timed out" in outcomes[1].reason


@needs_monty
def test_c07_the_answer_is_data(sandbox: Sandbox) -> None:
    domain = PythonChecker(None, sandbox)
    checker = 'def check(answer):\n    return answer.strip() == "5"\n'
    task = domain.build({"prompt": "2 + 3?", "reference": "5", "checker": checker})
    hostile = [
        "0) or (1 == 1",
        '5"); raise SystemExit(0)  #',
        '"""\nimport os; os._exit(0)',
        'type("E", (), {"__eq__": lambda s, o: True})()',
        "6",
    ]
    for answer in hostile:
        assert Gate(domain).execute(task, [answer]) == Score(0.0, "wrong", answer)
    assert Gate(domain).execute(task, ["5"]).value == 1.0


@needs_monty
def test_c08_a_broken_checker_is_not_a_wrong_answer(sandbox: Sandbox) -> None:
    class OnceDown(Sandbox):
        count = 0

        def check(self, source: str, answer: Any) -> Outcome:
            self.count += 1
            failed = Outcome("infrastructure", None, "sandbox failure: no process", "none")
            return failed if self.count == 4 else Outcome("scored", 1.0, "right", "none")

    down = PythonChecker(None, OnceDown())
    task = down.build({"prompt": "6 * 7?", "reference": "42", "checker": RIGHT})
    rewards = [Gate(down).execute(task, ["42"]).value for _ in range(4)]
    assert rewards == [1.0, 1.0, 1.0, None]
    assert empirical_success(rewards) == 1.0
    assert group_advantages(rewards, True) == [0.0] * 4

    domain = PythonChecker(None, sandbox)
    broken = domain.build({"prompt": "6 * 7?", "reference": "42", "checker": "import no_such_module\n" + RIGHT})
    assert Gate(domain).judge(broken).reason == "reference_fails"
    fragile = domain.build(
        {"prompt": "3 + 4?", "reference": "7", "checker": "def check(answer):\n    return int(answer) == 7\n"}
    )
    assert Gate(domain).judge(fragile).admitted
    assert Gate(domain).execute(fragile, ["seven"]).value == 0.0


@needs_bubblewrap
@pytest.mark.parametrize(
    "body",
    [
        'while True:\n        print("x" * 10000)',
        "x = []\n    while True:\n        x.append(bytearray(10**8))",
        'with open("big", "wb") as f:\n        for _ in range(10000):\n            f.write(bytes(10**6))',
    ],
    ids=["output", "memory", "file"],
)
def test_c09_floods_and_bombs(body: str) -> None:
    """A hard limit below the configured one: tests/unit/test_sandbox.py, which needs a process of its own."""
    with Sandbox(Limits(wall_s=1.0, memory_mb=128, file_mb=2, output_chars=500), "bubblewrap", workers=1) as box:
        outcome = box.check(f"def check(answer):\n    {body}\n", "42")
        assert outcome.status in ("crash", "timeout")
        assert outcome.value is None
        assert len(outcome.output) <= 500 + len(" [cut]")
        assert box.check(RIGHT, "42").value == 1.0


# -- numerics ------------------------------------------------------------------------------------------------------


def test_c10_a_missing_reward_in_a_group() -> None:
    assert group_advantages([1, 0, None, 1], False) == pytest.approx([1 / 3, -2 / 3, 0, 1 / 3])
    scaled = group_advantages([1, 0, None, 1], True)
    assert [a / scaled[0] for a in scaled] == pytest.approx([1, -2, 0, 1])
    for rewards in ([1, None, None, None], [None] * 4, [0.7] * 3, [1]):
        for normalize in (False, True):
            assert group_advantages(rewards, normalize) == [0.0] * len(rewards)


def test_c11_the_kl_term_does_not_overflow() -> None:
    policy, reference = (-1.0, -120.0, -300.0), (-1.5, -0.5, -0.1)
    assert k3(policy[0], reference[0]) == pytest.approx(0.10653, abs=1e-5)
    assert k3_weight(policy[0], reference[0]) == pytest.approx(1 - math.exp(-0.5))
    assert math.isfinite(k3(policy[1], reference[1]))
    datum = Datum((1, 2, 3), (1.0, 1.0, 0.0), 0, policy)
    anchored = with_kl([datum], [reference], 0.1)
    assert math.isfinite(anchored.kl)
    assert all(map(math.isfinite, anchored.data[0].weights))
    assert anchored.data[0].weights[2] == 0.0


# -- the simulator -------------------------------------------------------------------------------------------------


def test_c12_the_reward_at_the_ends(tmp_path: Path) -> None:
    assert [round(alpha_curriculum_reward(k / 8), 5) for k in (0, 2, 4, 8)] == [0.60653, 0.88250, 1.0, 0.60653]
    assert [round(alpha_curriculum_reward(p, 0.3), 5) for p in (0, 1)] == [0.83527, 0.37531]
    # what cannot be parsed is no task that nobody solves: it has neither success nor reward nor weight
    from genenv.config.load import build_config
    from genenv.loop.coevolve import CoEvolution

    raw = {"rounds": 1, "simulator": {"tasks": 4}, "eval": {"tasks": 0}}
    engine = ScriptedEngine(lambda p, s: "no", lambda p, s: "garbage")
    with closing(Store.create(tmp_path / "run", build_config(raw, "x"))) as store:
        CoEvolution(store.config, engine, Levels(), Levels().seeds(4, 0), store, lambda s, f: None).run()
        assert [(r.reason, r.p_hat, r.reward) for r in store.candidates()] == [("unparsable", None, None)] * 4
    assert engine.policy("simulator").trained == []


def test_c13_repeats_and_ambiguity() -> None:
    book = function("book_table", people="integer", city="string", hour="integer")
    miles = function("convert", miles="integer")
    lock = function("lock_door", room="string")
    domain = tool_use(book, miles, lock, request="written")

    def spec(name: str, request: str, **arguments: object) -> dict[str, Any]:
        return {"calls": [{"name": name, "arguments": arguments}], "distractors": [], "request": request}

    text = "Book a table for 2 in Oslo at 19 and not at 18"
    seed = spec("lock_door", "Lock the office", room="office")
    batch = [
        spec("book_table", text, people=2, city="Oslo", hour=19),
        spec("book_table", "  BOOK a table for 2 in  Oslo at 19 and not at 18", people=2, city="Oslo", hour=19),
        spec("book_table", text, people=2, city="Oslo", hour=18),
        seed,
        spec("convert", "Convert 3 miles to km", miles=3),
    ]
    gate = Gate(domain)
    gate.add(domain.build(seed))
    for expected in (
        {"admitted": 2, "duplicate": 2, "contradiction": 1},
        {"duplicate": 4, "contradiction": 1},
    ):
        counts = Counter(gate.judge(domain.build(s)).reason for s in batch)
        assert counts == expected
        assert counts.total() == 5


# -- data ----------------------------------------------------------------------------------------------------------


def test_c14_no_keys_out_of_nowhere(tmp_path: Path) -> None:
    clock = function("get_time", zone="string", round="integer")
    targets = [
        {"zone": "UTC", "round": 5},
        {"zone": "UTC"},
        {},
        {"v": [1, "a"]},
        {"v": {"k": 1}},
        {"id": "007"},
        {"id": 7},
    ]
    tasks = [
        Task("1-call", (Message("user", f"task {i}"),), (clock.tool,), [{"name": "get_time", "arguments": t}], {})
        for i, t in enumerate(targets)
    ]
    candidate = Candidate((1,), Sample((2,), (0.0,), True, 0), "", "1-call", "similar", "s", {})
    with closing(Store.create(tmp_path / "run", Config())) as store:
        store.commit_round(1, [CandidateRecord(candidate, Verdict("admitted"), t) for t in tasks], [], {}, {})
    with closing(Store.read(tmp_path / "run")) as store:
        back = [store.task(t.id) for t in tasks]
    assert [json.dumps(t.target) for t in back] == [json.dumps(t.target) for t in tasks]
    assert [t.id for t in back] == [t.id for t in tasks]
    gate = Gate(tool_use(clock))
    for arguments, right in (({"zone": "UTC"}, 1.0), ({"zone": "UTC", "round": None}, 0.0)):
        assert gate.execute(back[1], [format_tool_calls([Call("get_time", arguments)])]).value == right


def test_c15_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "make_engine", lambda config, seed: ScriptedEngine(lambda p, s: "", lambda p, s: ""))
    seeds = lines(tmp_path / "seeds.jsonl", *(s.spec for s in ToolUse().seeds(3, 0)))
    (tmp_path / "c.toml").write_text("rounds = 1\n[simulator]\ntasks = 2\n[eval]\ntasks = 0\n")
    train = ("train", tmp_path / "c.toml", "--run-dir", tmp_path / "run", "--set")
    line = refused(*train, f"domain.seeds={seeds}", "--set", "agent.max_prompt_tokens=1")
    assert f"{seeds}: 3 read, 3 dropped by agent.max_prompt_tokens = 1, 0 left" in line
    line = refused(*train, f"domain.seeds={seeds}", "--set", 'domain.families=["9-call"]')
    assert f"{seeds}: 3 read, 3 dropped by domain.families = 9-call, 0 left" in line
    assert without_ends([0.0, 0.25, 0.5, 0.75, 1.0], 0.1) == [0, 1, 2, 3, 4]
    (tmp_path / "empty.jsonl").touch()
    for arguments in (
        (*train, f"domain.seeds={tmp_path / 'empty.jsonl'}"),
        ("gate", "tool_use", tmp_path / "empty.jsonl"),
        ("score", tmp_path / "empty.jsonl", tmp_path / "empty.jsonl"),
    ):
        assert "empty.jsonl: expected at least one JSON record, found none" in refused(*arguments)
    assert not (tmp_path / "run").exists()
    # some left: the run goes on and says how many
    result = call(*train, f"domain.seeds={seeds}", "--set", "agent.max_prompt_tokens=1500")
    assert result.exit_code == 0
    assert "2 left" in result.stderr or "1 left" in result.stderr


# -- resume --------------------------------------------------------------------------------------------------------

STEPS = """
import json, random, sys
from genenv.loop.pools import Pools
from genenv.contracts.types import derive_seed
state, start, end = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pools = Pools.from_state(state)
random.random()
for step in range(start, end):
    if step == 6:
        for i in range(20, 23):
            pools.train.put(f"t{i}", 2.0)
    print(*pools.train.draw(3, random.Random(derive_seed(7, step, "replay"))))
print(json.dumps(pools.state()))
"""


def test_c16_the_right_random_state() -> None:
    def run(state: object, start: int, end: int, hash_seed: str) -> tuple[list[str], Any]:
        random.random()
        output = subprocess.run(
            [sys.executable, "-c", STEPS, json.dumps(state), str(start), str(end)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()
        return output[:-1], json.loads(output[-1])

    pools = Pools()
    for i in range(20):
        pools.train.put(f"t{i}", 1.0 + i % 3)
    whole, _ = run(pools.state(), 0, 10, "1")
    first, state = run(pools.state(), 0, 4, "1")
    rest, _ = run(state, 4, 10, "2")
    assert first + rest == whole
    assert len(set(whole)) > 5


@pytest.mark.parametrize("damage", ["missing", "half", "empty"])
def test_c17_a_half_written_checkpoint(scripted: None, tmp_path: Path, damage: str) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    (tmp_path / "c.toml").write_text("rounds = 3\n[simulator]\ntasks = 6\n[agent]\ngroup_size = 4\n[eval]\ntasks = 0\n")
    for folder in (run, whole):
        assert call("train", tmp_path / "c.toml", "--run-dir", folder).exit_code == 0
    newest = run / "checkpoints" / "round_000003"
    if damage == "missing":
        shutil.rmtree(newest / "simulator")
    else:
        content = (newest / "pools.json").read_bytes()
        (newest / "pools.json").write_bytes(content[: len(content) // 2] if damage == "half" else b"")
    result = call("train", run, "--resume")
    assert result.exit_code == 0
    said = " ".join(result.stderr.split())
    assert "round_000003 is damaged" in said
    assert ("simulator/policy.json is missing" if damage == "missing" else "pools.json has been changed or cut") in said
    with closing(Store.read(run)) as a, closing(Store.read(whole)) as b:
        assert a.metrics() == b.metrics()
        assert [t.id for t in a.admitted()] == [t.id for t in b.admitted()]
    assert (newest / "manifest.json").exists()


def test_c17_a_checkpoint_asked_for_by_name(scripted: None, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("rounds = 2\n[simulator]\ntasks = 6\n[agent]\ngroup_size = 4\n[eval]\ntasks = 0\n")
    assert call("train", tmp_path / "c.toml", "--run-dir", tmp_path / "run").exit_code == 0
    (tmp_path / "run" / "checkpoints" / "round_000002" / "pools.json").write_bytes(b"")
    with closing(Store.read(tmp_path / "run")) as store:
        assert store.checkpoints.of_round(1).name == "round_000001"
        with pytest.raises(InputError, match=r"round_000002 .* is damaged: pools.json has been changed or cut"):
            store.checkpoints.of_round(2)
        with pytest.raises(InputError, match="has no checkpoint of round 12, only of 1, 2"):
            store.checkpoints.of_round(12)


# -- command line and configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[curriculum]\nalfa = 0.3", "unknown key curriculum.alfa; did you mean curriculum.alpha?"),
        ("beta = 5", "unknown key beta; did you mean curriculum.beta?"),
        ("[agent]\ngroup-size = 8", "unknown key agent.group-size; did you mean agent.group_size?"),
        ("curriculum = 0.3", "curriculum: Input should be"),
        ("[curriculum]\nalpha = 0.3\nalpha = 0.4", "not valid TOML"),
        ("curriculum:\n\talpha: 0.3", "not valid TOML"),
    ],
)
def test_c18_unknown_keys(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    line = refused("train", tmp_path / "c.toml", "--run-dir", tmp_path / "run")
    assert message in line
    assert "c.toml" in line
    (tmp_path / "good.toml").write_text("[agent]\n\tgroup_size = 4\n")  # TOML allows tabs
    assert "unknown key agent.sice" in refused(
        "train", tmp_path / "good.toml", "--run-dir", tmp_path / "run", "--set", "agent.sice=3"
    )
    assert not (tmp_path / "run").exists()


KNOWS = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}" + (
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
RAISES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + KNOWS
IGNORES = KNOWS.replace("<s>{{", "{% if m.role in ('user', 'assistant') %}<s>{{").replace("<e>\n", "<e>\n{% endif %}")


@pytest.mark.parametrize("template", [KNOWS, RAISES, IGNORES], ids=["T1", "T2", "T3"])
def test_c19_a_template_without_a_system_role(template: str) -> None:
    """Both players are adapters of one model, so one template serves, and is probed for, both."""
    tokenizer = random_tokenizer()
    tokenizer.chat_template = template
    system, user = Message("system", "Reply with one <tool_call> only. MARK-7Q"), Message("user", "time in UTC?")
    text = TemplateFormat(tokenizer).render(Chat((system, user)))
    assert text.count("MARK-7Q") == text.count("time in UTC?") == 1
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        TemplateFormat(tokenizer)


# -- evaluation ----------------------------------------------------------------------------------------------------


def test_c20_the_denominator(tmp_path: Path) -> None:
    def song(title: str) -> dict[str, Any]:
        return {"id": title, "calls": [{"name": "play_song", "arguments": {"title": title}}], "distractors": []}

    def output(title: str, played: str) -> dict[str, str]:
        return {"id": title, "output": format_tool_calls([Call("play_song", {"title": played})])}

    titles = ["Echoes", "Wildfire", "Paper Moon", "Night Train", "Silver Rain"]
    tasks = lines(tmp_path / "t.jsonl", *map(song, titles))
    wrong = output("Paper Moon", "Echoes")
    outputs = [
        output("Echoes", "Echoes"),
        output("Wildfire", "Wildfire"),
        wrong,
        {"id": "Night Train", "output": "<tool_call>{"},
        {"id": "Silver Rain", "error": "out of memory"},
    ]
    result = call("score", tasks, lines(tmp_path / "o.jsonl", *outputs), "--json")
    document = json.loads(result.stdout)
    assert [document[k] for k in ("score", "tasks", "malformed", "unscored", "missing")] == [0.4, 5, 1, 1, []]
    assert "warning: 1 could not be scored" in result.stderr
    outputs.remove(wrong)
    result = call("score", tasks, lines(tmp_path / "o.jsonl", *outputs), "--json")
    document = json.loads(result.stdout)
    assert [document[k] for k in ("score", "tasks", "missing")] == [0.4, 5, ["Paper Moon"]]
    assert "1 have no output (Paper Moon)" in result.stderr
    outputs += [wrong, output("Paper Moon", "Paper Moon")]
    assert "occurs twice" in refused("score", tasks, lines(tmp_path / "o.jsonl", *outputs))


class Simulated:
    """Episodes of a simulated household, by the task's name; the environment's limit is 50 steps."""

    name = "simulated"

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()

    def episode(self, task: Task) -> object:
        kind, steps = task.family, self.steps

        class Episode:
            def step(self, text: str) -> Step:
                steps[kind] += 1
                n = steps[kind]
                if kind == "raises" and n == 3:
                    raise RuntimeError("simulator gone")
                if kind == "won" and n == 12:
                    return Step(score=Score(1.0, "won"))
                if kind == "limit" and n == 50:
                    return Step(score=Score(0.0, "step limit"))  # over, and not won
                return Step((Message("tool", "nothing happens"),))

            def close(self) -> None:
                pass

        return Episode()


def test_c21_finished_is_not_solved() -> None:
    domain, kinds = Simulated(), ["limit", "won", "raises", "no action"]
    engine = ScriptedEngine(lambda p, s: "hm", lambda p, s: "")
    tasks = [Task(k, (Message("user", k),), (), None, {}) for k in kinds]
    played = play(engine.policy("agent"), engine.chat, domain, tasks, PlayConfig(1, 10, 50), seed=0)
    found = [group[0] for group in played]
    assert [t.score.value for t in found] == [0.0, 1.0, None, 0.0]
    assert sum(t.score.value or 0.0 for t in found) / 4 == 0.25
    assert [domain.steps[k] for k in kinds] == [50, 12, 3, 50]
    assert [t.score.reason for t in found] == [
        "step limit",
        "won",
        "environment error: RuntimeError: simulator gone",
        "out of turns",
    ]
    assert [t.stop for t in found] == ["stop", "stop", "environment_error", "turn_limit"]


def test_rejected_weight_is_nothing() -> None:
    """No weights, no data: an empty regression is not a division by zero."""
    assert rwr_data([], []) == []

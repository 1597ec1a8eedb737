"""BFCL against the official data and checker, where `bfcl-eval` is installed."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genenv.benchmarks.base import Result
from genenv.benchmarks.bfcl import benchmark as bfcl
from genenv.benchmarks.bfcl.benchmark import CATEGORIES, INSTALL, Bfcl, Turns, load
from genenv.contracts.types import Json, Score, Task
from genenv.reading.parsing import Call, format_tool_calls

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("GENENV_DATA", ROOT.parent / "shared" / "data")) / "bfcl"

needs_package = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason=f"needs bfcl-eval: {INSTALL}")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data files in {DATA}")


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Bfcl]:
    made = Bfcl(None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return list(Bfcl(None).tasks())


def gold(task: Task) -> Turns:
    """The reference solution, a call a step."""
    return [[[call] for call in turn] for turn in task.target["ground_truth"]]


@needs_data
def test_the_official_files_load() -> None:
    loaded = load(DATA)
    assert Counter(t.family for t in loaded) == dict.fromkeys(CATEGORIES, 200)
    assert [t.spec["id"] for t in loaded] == [f"{c}_{i}" for c in CATEGORIES for i in range(200)]
    assert len({t.id for t in loaded}) == 800
    assert max(len(t.target["ground_truth"]) for t in loaded) == bfcl.LONGEST
    assert sum(len(turn) for t in loaded for turn in t.target["ground_truth"]) == 4625
    held = [turn["functions"] for t in loaded for turn in t.spec["turns"] if turn["functions"]]
    assert len(held) == 200
    for task, function in ((t, f) for t in loaded for turn in t.spec["turns"] for f in turn["functions"]):
        assert function["name"] not in {tool["function"]["name"] for tool in task.tools}


@needs_data
@needs_package
def test_a_folder_serves_like_the_package(tasks: list[Task]) -> None:
    assert load(DATA) == tasks


@needs_package
@pytest.mark.slow
def test_gold_answers_are_valid_and_answers_without_one_call_are_not(benchmark: Bfcl, tasks: list[Task]) -> None:
    results = [Result(t.spec["id"], t.family, benchmark.replay(t, gold(t))) for t in tasks]
    assert benchmark.summarize(results) == {"score": 1.0} | dict.fromkeys(CATEGORIES, 1.0)
    fewer = []
    for task in tasks:
        turns = gold(task)
        next(turn for turn in reversed(turns) if turn).pop()
        fewer.append(Result(task.spec["id"], task.family, benchmark.replay(task, turns)))
    assert benchmark.summarize(fewer) == {"score": 0.0} | dict.fromkeys(CATEGORIES, 0.0)
    assert {r.score.value for r in fewer} == {0.0}


READING = {
    "GorillaFileSystem": "ls()",
    "MathAPI": "add(a=1, b=2)",
    "MessageAPI": "message_get_login_status()",
    "TicketAPI": "ticket_get_login_status()",
    "TradingBot": "get_current_time()",
    "TravelAPI": "travel_get_login_status()",
    "TwitterAPI": "posting_get_login_status()",
    "VehicleControlAPI": "displayCarStatus(option='fuel')",
}
Damage = Callable[[Turns, Task, random.Random], object]


def _turn(turns: Turns, rng: random.Random) -> list[list[str]]:
    return rng.choice([turn for turn in turns if turn])


def _drop(turns: Turns, task: Task, rng: random.Random) -> None:
    turn = _turn(turns, rng)
    turn.pop(rng.randrange(len(turn)))


def _swap(turns: Turns, task: Task, rng: random.Random) -> None:
    if len(turns) > 1:
        i, j = rng.sample(range(len(turns)), 2)
        turns[i], turns[j] = turns[j], turns[i]


def _change(turns: Turns, task: Task, rng: random.Random) -> None:
    turn = _turn(turns, rng)
    step = rng.choice(turn)
    name = step[0].partition("(")[0]
    step[0] = step[0].replace("'", "'x", 1) if "'" in step[0] else f"{name}(unknown=1)"


def _repeat(turns: Turns, task: Task, rng: random.Random) -> None:
    turn = _turn(turns, rng)
    place = rng.randrange(len(turn))
    turn.insert(place, list(turn[place]))


def _reorder(turns: Turns, task: Task, rng: random.Random) -> None:
    rng.shuffle(_turn(turns, rng))


def _read_more(turns: Turns, task: Task, rng: random.Random) -> None:
    turn = rng.choice(turns)
    turn.insert(rng.randrange(len(turn) + 1), [READING[rng.choice(task.target["involved_classes"])]])


def _truncate(turns: Turns, task: Task, rng: random.Random) -> None:
    del turns[rng.randrange(len(turns)) :]


def _empty(turns: Turns, task: Task, rng: random.Random) -> None:
    turns[rng.randrange(len(turns))] = []


def _together(turns: Turns, task: Task, rng: random.Random) -> None:
    turns[:] = [[[call for step in turn for call in step], []] for turn in turns]


def _invent(turns: Turns, task: Task, rng: random.Random) -> None:
    rng.choice(turns).append(["no_such_function(x=1)"])


DAMAGES: tuple[Damage, ...] = (
    _drop,
    _swap,
    _change,
    _repeat,
    _reorder,
    _read_more,
    _truncate,
    _empty,
    _together,
    _invent,
)


@pytest.fixture(scope="module")
def damaged(tasks: list[Task]) -> list[tuple[Task, Turns]]:
    """200 answers, every kind of damage 20 times, now and then two kinds at once."""
    rng = random.Random(7)
    answers = []
    for damage, task in zip(itertools.cycle(DAMAGES), rng.sample(tasks, 200), strict=False):
        turns = gold(task)
        damage(turns, task, rng)
        if rng.random() < 0.2 and any(turns):
            rng.choice(DAMAGES)(turns, task, rng)
        answers.append((task, turns))
    return answers


@pytest.fixture(scope="module")
def verdicts(benchmark: Bfcl, damaged: list[tuple[Task, Turns]]) -> list[Score]:
    return [benchmark.replay(task, turns) for task, turns in damaged]


def official(task: Task, turns: Turns, number: int) -> Json:
    """What the package's runner does with decoded answers, without our process, validation or clearing up."""
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    answers = task.target["ground_truth"]
    if len(turns) != len(answers):
        return {"valid": False, "error_type": "multi_turn:force_terminated"}
    called = [[step for step in turn if step] for turn in turns]
    return multi_turn_checker(called, answers, dict(task.target), task.family, f"direct{number}")


@needs_package
def test_verdicts_are_those_of_the_package(damaged: list[tuple[Task, Turns]], verdicts: list[Score]) -> None:
    for number, ((task, turns), score) in enumerate(zip(damaged, verdicts, strict=True)):
        expected = official(task, turns, number)
        assert score.value == float(expected["valid"]), (task.spec["id"], turns)
        if not expected["valid"]:
            assert score.reason == expected["error_type"].removeprefix("multi_turn:").replace("_", " ")
    assert len(verdicts) == 200
    values = Counter(score.value for score in verdicts)
    assert min(values[0.0], values[1.0]) >= 50, "damage of one kind only proves nothing"


@needs_package
def test_verdicts_depend_on_no_order_and_no_thread(
    damaged: list[tuple[Task, Turns]], verdicts: list[Score], benchmark: Bfcl
) -> None:
    order = list(range(len(damaged)))
    random.Random(1).shuffle(order)
    other = Bfcl(None)
    with ThreadPoolExecutor(4) as pool:
        judges = [benchmark, other, benchmark, other]
        again = list(pool.map(lambda i: judges[i % 4].replay(*damaged[i]), order))
    other.close()
    assert again == [verdicts[i] for i in order]


def texts(task: Task) -> list[str]:
    """What a perfect agent writes: its turn's calls, two a message, then a sentence."""
    written = []
    for turn in task.target["ground_truth"]:
        calls = [_as_json(task, text) for text in turn]
        written += [format_tool_calls(calls[i : i + 2]) for i in range(0, len(calls), 2)]
        written.append("Done.")
    return written


def _as_json(task: Task, text: str) -> Call:
    """A gold call with its positional arguments named."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    functions = [t["function"] for t in task.tools]
    functions += [f for turn in task.spec["turns"] for f in turn["functions"]]
    function = next(f for f in functions if f["name"] == node.func.id)
    names = list(function["parameters"]["properties"])
    values = dict(zip(names, node.args, strict=False)) | {str(k.arg): k.value for k in node.keywords}
    return Call(node.func.id, {name: ast.literal_eval(value) for name, value in values.items()})


def play(benchmark: Bfcl, task: Task, written: list[str]) -> Score:
    episode = benchmark.episode(task)
    for text in written[:-1]:
        assert episode.step(text).score is None
    score = episode.step(written[-1]).score
    assert score is not None
    return score


@needs_package
@pytest.mark.parametrize("category", CATEGORIES)
def test_a_perfect_agent_scores_and_a_silent_one_does_not(benchmark: Bfcl, tasks: list[Task], category: str) -> None:
    for task in [t for t in tasks if t.family == category][::14]:
        score = play(benchmark, task, texts(task))
        assert (score.value, score.reason) == (1.0, "right"), task.spec["id"]
        assert score.checks["refused"] == 0
        assert benchmark.replay(task, score.answer) == score, "the record of an episode is a prediction"
        silent = play(benchmark, task, [""] * len(task.target["ground_truth"]))
        assert (silent.value, silent.reason) == (0.0, "empty turn model response")


@needs_package
def test_functions_held_back_come_in_the_official_words(benchmark: Bfcl, tasks: list[Task]) -> None:
    from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC as SENTENCE

    task = next(t for t in tasks if t.family == "multi_turn_miss_func")
    held = next(i for i, turn in enumerate(task.spec["turns"]) if turn["functions"])
    episode = benchmark.episode(task)
    for _ in range(held):
        step = episode.step("")
    (message,) = step.messages
    assert message.role == "user"
    assert message.content.endswith(f"\n{SENTENCE}")


def scene(name: str, initial_config: Json) -> Task:
    """An invented sample that asks for nothing."""
    target = {
        "id": name,
        "initial_config": initial_config,
        "involved_classes": list(initial_config),
        "ground_truth": [],
    }
    return Task("x", (), (), target, {"id": name})


@needs_package
def test_long_context_is_loaded_where_it_belongs(benchmark: Bfcl) -> None:
    contents = {"a.txt": {"type": "file", "content": "short"}}
    files = {"GorillaFileSystem": {"root": {"home": {"type": "directory", "contents": contents}}}}
    calls = [[["ls()", "cat(file_name='a.txt')"]]]
    names, content = benchmark.results(scene("multi_turn_base_0", files), calls)
    assert names == '{"current_directory_content": ["a.txt"]}'
    assert content == '{"file_content": "short"}'
    names, content = benchmark.results(scene("multi_turn_long_context_0", files), calls)
    assert names.count(",") > 20
    assert len(content) > 1000


@needs_package
def test_one_sample_does_not_change_the_next(benchmark: Bfcl) -> None:
    """In long contexts the official code shares its extra credit cards between all samples of a process."""
    from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import CREDIT_CARD_EXTENSION

    card = next(iter(CREDIT_CARD_EXTENSION))
    task = scene(
        "multi_turn_long_context_0", {"TravelAPI": {"access_token": "1", "token_expires_in": 9, "user_first_name": "A"}}
    )
    balance = f"get_credit_card_balance(access_token='1', card_id='{card}')"
    book = (
        f"book_flight(access_token='1', card_id='{card}', travel_date='2030-01-01', travel_from='SFO', "
        "travel_to='LAX', travel_class='economy')"
    )
    (before,) = benchmark.results(task, [[[balance]]])
    _, within = benchmark.results(task, [[[book, balance]]])
    assert within != before
    assert benchmark.results(task, [[[balance]]]) == [before]


@needs_package
def test_nothing_but_calls_is_evaluated(benchmark: Bfcl, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    hostile = [
        f"open({str(trace)!r}, 'w')",
        f"ls(a=open({str(trace)!r}, 'w'))",
        f"__import__('pathlib').Path({str(trace)!r}).touch()",
        f"[ls(), open({str(trace)!r}, 'w')]",
        "is_empty_execute_response(input_list=[])",
    ]
    task = scene("multi_turn_base_0", {"GorillaFileSystem": {}})
    results = benchmark.results(task, [[[*hostile, "pwd()"]]])
    assert not trace.exists()
    assert all(text.startswith("Error during execution: ") for text in results[:5])
    assert results[4] == "Error during execution: name 'is_empty_execute_response' is not defined"
    assert results[5].startswith('{"current_working_directory"')
    empty = Task("x", (), (), task.target | {"ground_truth": [[]]}, {})
    score = benchmark.replay(empty, [[hostile]])
    assert (score.value, score.checks["refused"]) == (1.0, 5)


@needs_package
def test_a_call_that_hangs_costs_its_sample_only(
    benchmark: Bfcl, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = scene("multi_turn_base_0", {"MathAPI": {}})
    hanging = Task("x", (), (), task.target | {"ground_truth": [[]]}, {})
    assert benchmark.replay(hanging, [[["add(a=1, b=2)"]]]).value == 1.0
    with monkeypatch.context() as patch:
        patch.setattr(bfcl, "TIMEOUT", 0.2)
        score = benchmark.replay(hanging, [[["power(base=9, exponent=999999999)"]]])
    assert (score.value, score.reason) == (None, "unscored: the worker gave no answer within 0.2 s")
    assert benchmark.replay(tasks[0], gold(tasks[0])).value == 1.0


@needs_package
def test_memory_is_limited(benchmark: Bfcl) -> None:
    task = scene("multi_turn_base_0", {"MathAPI": {}})
    calls = ["logarithm(value=10, base=2, precision=10000000000)", "add(a=1, b=2)"]
    assert benchmark.results(task, [[calls]]) == ['{"error": ""}', '{"result": 3}'], "4.2 GB are refused, not filled"

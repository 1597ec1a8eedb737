"""The worked example of docs/your-own-domain.md: the text that the page shows, its tasks, a whole run with it."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from genenv import session
from genenv.cli.app import app
from genenv.config.load import load_config
from genenv.contracts.domain import SpecError
from genenv.contracts.types import Json, Score
from genenv.domains import own
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.gate import Gate
from genenv.reading.parsing import Call, format_tool_calls
from genenv.runs.store import Store

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "web_shop"
TURNS = re.compile(r"^tool: (.*)$", re.MULTILINE)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Json:
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return own.load("shop:WebShop", {})


def spec(**changes: Json) -> dict[str, Json]:
    offers = [
        {"kind": "lamp", "price": 9, "stock": 1},
        {"kind": "lamp", "price": 12, "stock": 5},
        {"kind": "mug", "price": 3, "stock": 5},
    ]
    return {"customer": 4711, "want": ["mug", "lamp", "lamp"], "coupon": "VIP", "offers": offers, **changes}


def test_the_page_shows_the_file() -> None:
    page = (ROOT / "docs" / "your-own-domain.md").read_text("utf-8")
    code = (FOLDER / "shop.py").read_text("utf-8")
    assert f"```python\n{code}```" in page
    assert f"```toml\n{(FOLDER / 'config.toml').read_text('utf-8')}```" in page
    assert len(code.splitlines()) < 80


def test_a_task_worked_out_by_hand(shop: Json) -> None:
    task = shop.build(spec())
    assert task.family == "2-kind"
    assert task.messages[-1].content == (
        "Customer 4711 orders 2 x the cheapest lamp in stock and 1 x the cheapest mug in stock with the coupon VIP."
    )
    assert [t["function"]["name"] for t in task.tools] == ["search", "add_to_cart", "apply_coupon", "checkout"]
    assert task.tools[2]["function"]["parameters"]["properties"] == {
        "code": {"enum": ["SPRING", "VIP"], "type": "string"}
    }
    # the lamp of 9 is not in stock twice
    assert task.target["result"] == [4711, "VIP", [[1, 2], [2, 1]]]


def test_a_visit(shop: Json) -> None:
    episode = shop.episode(shop.build(spec()))

    def turn(*calls: tuple[str, Json]) -> Json:
        step = episode.step(format_tool_calls([Call(n, a) for n, a in calls]))
        return step.score or [m.content for m in step.messages]

    assert turn(("search", {"kind": "lamp"}), ("search", {"kind": "tv"})) == [
        '[{"offer": 0, "price": 9, "stock": 1}, {"offer": 1, "price": 12, "stock": 5}]',
        "[]",
    ]
    assert turn(
        ("add_to_cart", {"offer": 0, "pieces": 2}),
        ("add_to_cart", {"offer": "1", "pieces": 2}),
        ("add_to_cart", {"offer": 1}),
        ("remove", {}),
        ("add_to_cart", {"offer": 1, "pieces": 2}),
        ("apply_coupon", {"code": "vip"}),
    ) == [
        "error: not in stock",
        "error: offer: Input should be a valid integer",
        "error: pieces: Missing required argument",
        "error: no function remove",
        "done",
        "error: code: Input should be 'SPRING' or 'VIP'",
    ]
    assert turn(("checkout", {"customer": 4711}), ("add_to_cart", {"offer": 2, "pieces": 1})) == Score(
        0.0, "another result", [4711, "", [[1, 2]]]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I would buy the lamp.", "ended without a result"),
        ("<tool_call>{'name': 'search'}</tool_call>", "malformed: not JSON: "),
        ("<tool_call>", "malformed: unclosed call"),
    ],
)
def test_a_turn_without_calls_ends_the_visit(shop: Json, text: str, reason: str) -> None:
    score = shop.episode(shop.build(spec())).step(text).score
    assert score.value == 0
    assert score.reason.startswith(reason)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"want": ["lamp"] * 6}, "want: no cheapest lamp with 6 in stock"),
        ({"want": ["clock"]}, "want: no cheapest clock with 1 in stock"),
        ({"offers": [{"kind": "mug", "price": 3, "stock": 2}] * 2, "want": ["mug"]}, "no cheapest mug"),
        ({"customer": "4711"}, "customer: Input should be a valid integer"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
    ],
)
def test_specifications_that_are_no_tasks(shop: Json, changes: Json, detail: str) -> None:
    with pytest.raises(SpecError, match=detail):
        shop.build(spec(**changes))


def test_four_kinds_are_no_family(shop: Json) -> None:
    want = ["mug", "lamp", "clock", "chair"]
    offers = [{"kind": k, "price": 3, "stock": 5} for k in want]
    with pytest.raises(SpecError, match="a specification of 4-kind: expected one of 1-kind, 2-kind, 3-kind"):
        shop.build(spec(want=want, offers=offers))


def test_random_specifications_are_admitted(shop: Json) -> None:
    gate = Gate(shop, shop.heldout(30, 1))
    reasons = Counter(gate.judge(shop.build(s.spec)).reason for s in shop.seeds(200, 2))
    assert reasons["admitted"] >= 190, reasons


def test_damaged_answers(shop: Json) -> None:
    task = shop.build(spec(want=["mug"], coupon=None))
    wrong = {turns[-1].replace("<tool_call>", "").replace("</tool_call>", "\n") for turns in shop.perturbed(task)}
    add, out = (
        '{"name":"add_to_cart","arguments":{"offer":2,"pieces":1}}\n',
        '{"name":"checkout","arguments":{"customer":4711}}\n',
    )
    assert wrong == {
        out, add, add.replace(":2,", ":3,") + out, add.replace(":1}", ":2}") + out, add + out.replace("4711", "4712"),
    }  # fmt: skip


def agent(prompt: str, seed: int) -> str:
    """Reads the request and what the shop has answered, as a model would have to."""
    request = re.search(r"Customer (\d+) orders (.*)\.\n", prompt)
    wishes = re.findall(r"(\d) x the cheapest (\w+)", request[2])
    found = [json.loads(line) for line in TURNS.findall(prompt)]
    if not found:
        return format_tool_calls([Call("search", {"kind": kind}) for _, kind in wishes])
    best = [
        min((o for o in offers if o["stock"] >= int(n)), key=lambda o: o["price"])
        for (n, _), offers in zip(wishes, found, strict=True)
    ]
    calls = [
        Call("add_to_cart", {"offer": o["offer"], "pieces": int(n)}) for o, (n, _) in zip(best, wishes, strict=True)
    ]
    if coupon := re.search(r"coupon (\w+)", request[2]):
        calls.append(Call("apply_coupon", {"code": coupon[1]}))
    return format_tool_calls([*calls, Call("checkout", {"customer": int(request[1])})])


def test_a_whole_run_in_worker_processes(shop: Json, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def simulator(prompt: str, seed: int) -> str:
        rng = random.Random(seed)
        return shop.random_spec(rng.choice(shop.families), rng).model_dump_json()

    monkeypatch.setattr(session, "make_engine", lambda config, seed: ScriptedEngine(agent, simulator))
    command = ["train", "config.toml", "--run-dir", str(tmp_path / "run"), "--set", "rounds=2", "--json"]
    result = CliRunner().invoke(app, [*command, "--set", "simulator.max_tokens=1000", "--set", "agent.max_tokens=1000"])
    assert result.exit_code == 0, result.output
    with closing(Store.read(tmp_path / "run")) as store:
        rounds = store.metrics()
    assert [m["success"] for m in rounds] == [1.0, 1.0]
    assert sum(m["admitted"] for m in rounds) >= 12
    assert rounds[-1]["heldout"] == 1.0
    assert [m["unscored"] for m in rounds] == [0, 0]
    assert load_config(FOLDER / "config.toml").domain.timeout == 10

"""A model behind a server: literal requests, and every way in which a server can fail."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from doubles import Doubles
from hypothesis import given
from hypothesis import strategies as st
from planted import Levels
from planted import guess as agent
from turns import TASK, Game

from genenv.config.load import build_config
from genenv.config.sections import SimulatorConfig
from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.errors import EngineError, InputError
from genenv.contracts.types import Chat, Message, Sample, SampleRequest, Score, Task
from genenv.domains.tool_use.domain import ToolUse
from genenv.engines.openai import END, MessageFormat, OpenAIPolicy, Taught
from genenv.engines.scripted import ScriptedEngine
from genenv.evaluation.official import Options, Player, run
from genenv.loop.coevolve import CoEvolution
from genenv.loop.gate import Gate
from genenv.loop.rollouts import PlayConfig, play
from genenv.loop.simulator import Order, write
from genenv.reading.parsing import Call, parse_tool_calls
from genenv.runs.store import Store

URL = "http://server/v1"
KEY = "sk-secret-1234"
TOOL = {"type": "function", "function": {"name": "now", "description": "Time.", "parameters": {"type": "object"}}}
FORMAT = MessageFormat()
PROMPT = FORMAT.encode(Chat((Message("system", "Be short."), Message("user", "hi"))))
REQUEST = SampleRequest(PROMPT, (5,), max_tokens=7, temperature=0.5)

Handler = Callable[[httpx.Request], httpx.Response]


def reply(content: object = "ok", finish: object = "stop", **message: object) -> httpx.Response:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return httpx.Response(200, json={"choices": [choice]})


def refusal(status: int, message: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message}}, headers=headers)


class Server:
    """Answers from a list, the last one again and again; keeps the bodies, the seconds slept and the warnings."""

    def __init__(self, *answers: httpx.Response | Exception | Handler, concurrency: int = 1) -> None:
        self.answers = list(answers)
        self.bodies: list[dict] = []
        self.slept: list[float] = []
        self.warnings: list[str] = []
        self.policy = OpenAIPolicy(
            "strong",
            base_url=URL,
            key_variable="OPENAI_API_KEY",
            concurrency=concurrency,
            timeout=9.0,
            warn=self.warnings.append,
            sleep=self.slept.append,
            transport=httpx.MockTransport(self._handle),
        )

    def _handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "small"}, {"id": "large"}]})
        assert str(request.url) == "http://server/v1/chat/completions"
        self.bodies.append(json.loads(request.content))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    def one(self, request: SampleRequest = REQUEST) -> Sample:
        return self.policy.sample([request])[0][0]

    def answered(self) -> Server:
        """The same server after a first success: from now on a failure is that of one request."""
        later, self.answers = self.answers, [reply()]
        self.one()
        self.answers, self.bodies = later, []
        return self


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


# -- messages as tokens ----------------------------------------------------------------------------------------------

TEXTS = st.text() | st.sampled_from(
    ["<tool_call>{}</tool_call>", "<|im_end|>\n<|im_start|>user", "\x00\x01\x02", "Ā" * 3, "assistant: ", "\U0001f600"]
)
MESSAGES = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXTS)


@given(st.lists(MESSAGES), TEXTS, st.lists(MESSAGES, min_size=1), st.booleans())
def test_tokens_stand_for_messages_exactly(
    first: Sequence[Message], written: str, then: Sequence[Message], ended: bool
) -> None:
    own = (*FORMAT.encode_text(written), *((END,) if ended else ()))
    assert FORMAT.decode(own) == written
    prompt = FORMAT.encode(Chat(first)) + own + FORMAT.turn(then, ended)
    assert FORMAT.messages(prompt) == [*first, Message("assistant", written), *then]
    assert max(own, default=0) <= END


def test_literal_tokens() -> None:
    assert FORMAT.encode(Chat((Message("system", "A"), Message("user", "é")))) == (
        *(257, 65, 256), *(258, 0xC3, 0xA9, 256), 259)  # fmt: skip
    assert FORMAT.turn((Message("user", "B"),), ended=True) == (258, 66, 256, 259)
    assert FORMAT.turn((Message("user", "B"),), ended=False) == (256, 258, 66, 256, 259)


def test_tools_are_declared_in_the_system_message_and_tool_results_are_user_turns() -> None:
    chat = Chat(
        (Message("system", "S"), Message("user", "U"), Message("assistant", "A"), Message("tool", "12")), (TOOL,)
    )
    declared = 'S\nFunctions:\n{"name": "now", "description": "Time.", "parameters": {"type": "object"}}'
    result = Message("user", "<tool_response>\n12\n</tool_response>")
    assert FORMAT.messages(FORMAT.encode(chat)) == [
        Message("system", declared), Message("user", "U"), Message("assistant", "A"), result]  # fmt: skip
    start, follow = FORMAT.encode(Chat((Message("user", "U"),))), FORMAT.turn((Message("tool", "12"),), ended=True)
    again = (*start, 65, END, *follow)
    assert FORMAT.messages(again) == [Message("user", "U"), Message("assistant", "A"), result]


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert FORMAT.encode_text("a\ud800") == (97, 63)


# -- requests and replies --------------------------------------------------------------------------------------------


def test_the_request_is_this() -> None:
    server = Server(reply("né"))
    assert server.one() == Sample((110, 0xC3, 0xA9, END), (0.0,) * 4, stopped=True, policy_version=0)
    assert server.bodies == [
        {
            "model": "strong",
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}],
            "max_tokens": 7,
            "temperature": 0.5,
            "seed": 5,
        }
    ]


def test_one_request_for_each_seed_in_order() -> None:
    server = Server(lambda request: reply(str(json.loads(request.content)["seed"])), concurrency=3)
    samples = server.policy.sample([replace(REQUEST, seeds=(1, 2, 2**31 + 3)), replace(REQUEST, seeds=(4,))])
    assert [[FORMAT.decode(s.tokens) for s in group] for group in samples] == [["1", "2", "3"], ["4"]]
    assert server.policy.sample([]) == []


def test_turns_of_one_role_are_sent_as_one() -> None:
    server = Server(reply())
    prompt = FORMAT.encode(Chat((Message("user", "U"), Message("assistant", "A"))))[:-1]
    server.one(replace(REQUEST, prompt=prompt + FORMAT.turn((Message("tool", "1"), Message("user", "2")), ended=True)))
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>\n2"},
    ]


def test_a_reply_cut_off_at_the_limit_has_no_end() -> None:
    assert Server(reply("abc", "length")).one() == Sample((97, 98, 99), (0.0,) * 3, stopped=False, policy_version=0)


def test_reasoning_is_not_the_answer() -> None:
    assert FORMAT.decode(Server(reply("4", reasoning_content="2 + 2", reasoning="2 + 2")).one().tokens) == "4"
    assert Server(reply(None, "length", reasoning_content="2 + 2")).one().tokens == ()


def test_native_tool_calls_become_text() -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 0.10, "y": "é"}'}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"id": "3", "type": "function", "function": {"name": "h", "arguments": {"z": 1}}},
    ]
    sample = Server(reply(None, "tool_calls", tool_calls=calls)).one()
    text = FORMAT.decode(sample.tokens)
    assert sample.stopped
    assert text == (
        '<tool_call>{"name":"f","arguments":{"x": 0.10, "y": "é"}}</tool_call>'
        '<tool_call>{"name":"g","arguments":{}}</tool_call><tool_call>{"name":"h","arguments":{"z": 1}}</tool_call>'
    )
    assert parse_tool_calls(text).calls == (Call("f", {"x": 0.1, "y": "é"}), Call("g", {}), Call("h", {"z": 1}))


def test_malformed_native_arguments_stay_malformed() -> None:
    calls = [{"function": {"name": "f", "arguments": '{"x": 1, "x": 2}'}}]
    text = FORMAT.decode(Server(reply("", "tool_calls", tool_calls=calls)).one().tokens)
    assert parse_tool_calls(text).error == "repeated key"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(200, text="<html>"), "no answer: unreadable reply, JSONDecodeError"),
        (httpx.Response(200, json={"choices": []}), "no answer: unreadable reply, IndexError"),
        (httpx.Response(200, json=[1]), "no answer: unreadable reply, TypeError"),
        (httpx.Response(200, text="[" * 100_000), "no answer: unreadable reply, RecursionError"),
        (reply(["parts"]), "no answer: unreadable reply, TypeError"),
        (reply("", "content_filter"), "no answer: ended by content_filter"),
        (reply("x", None), "no answer: ended by None"),
        (refusal(400, "prompt\nis too\x1b[31m long"), "no answer: 400 prompt is too [31m long"),
        (httpx.Response(413, json={"detail": "too large"}), "no answer: 413 too large"),
        (httpx.Response(302, text=""), "no answer: 302"),
        (httpx.Response(400, text="x" * 999), "no answer: 400 " + "x" * 200),
    ],
)
def test_one_refused_request_is_a_sample_with_an_error(answer: httpx.Response, reason: str) -> None:
    server = Server(answer).answered()
    sample = server.one()
    assert sample.error.startswith(reason)
    assert len(sample.error) < 250
    assert (sample.tokens, sample.stopped, server.slept, len(server.bodies)) == ((), False, [], 1)


# -- trying again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(429, "slow down"),
        refusal(500, "oops"),
        refusal(503, "loading"),
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("timed out"),
        httpx.RemoteProtocolError("closed"),
    ],
    ids=lambda x: str(getattr(x, "status_code", type(x).__name__)),
)
def test_passing_trouble_is_tried_again(trouble: httpx.Response | Exception) -> None:
    server = Server(trouble, trouble, reply("at last"))
    assert FORMAT.decode(server.one().tokens) == "at last"
    assert server.slept == [1.0, 2.0]
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]


@pytest.mark.parametrize(
    ("asked", "slept"), [("7", 7.0), ("0.5", 1.0), ("86400", 60.0), ("Mon, 30 Nov 2026 00:00:00 GMT", 1.0)]
)
def test_the_server_may_ask_for_more_patience(asked: str, slept: float) -> None:
    server = Server(refusal(429, "slow down", **{"Retry-After": asked}), reply())
    server.one()
    assert server.slept == [slept]


def test_a_request_that_the_server_works_on_is_not_sent_twice() -> None:
    server = Server(httpx.ReadTimeout("timed out")).answered()
    assert server.one().error == "no answer: nothing within 9 s"
    assert (len(server.bodies), server.slept) == (1, [])


def test_patience_ends() -> None:
    server = Server(refusal(503, "overloaded")).answered()
    assert server.one().error == "no answer: 503 overloaded (6 tries)"
    assert server.slept == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert len(server.bodies) == 6


def test_a_server_that_is_gone_ends_the_call() -> None:
    server = Server(httpx.ConnectError("refused")).answered()
    with pytest.raises(EngineError, match=r"^no answer from strong at http://server/v1: ConnectError: refused \(6 tr"):
        server.policy.sample([replace(REQUEST, seeds=(1, 2))])


def test_refusals_alone_do_not_end_a_call_once_the_server_has_answered() -> None:
    two = replace(REQUEST, seeds=(1, 2))
    server = Server(refusal(400, "context too long"))
    with pytest.raises(EngineError, match="400 context too long"):
        server.policy.sample([two])
    assert [s.error for s in server.answered().policy.sample([two])[0]] == ["no answer: 400 context too long"] * 2


def test_one_failure_does_not_lose_the_others() -> None:
    server = Server(reply("a"), refusal(400, "no"), reply("c"))
    (samples,) = server.policy.sample([replace(REQUEST, seeds=(1, 2, 3))])
    assert [s.error for s in samples] == ["", "no answer: 400 no", ""]
    assert [FORMAT.decode(s.tokens) for s in samples] == ["a", "", "c"]


def test_an_unknown_model_is_told_what_there_is() -> None:
    with pytest.raises(EngineError, match=r"http://server/v1 has no model strong: it offers small, large$"):
        Server(refusal(404, "not found")).one()


def test_at_most_so_many_requests_are_in_flight() -> None:
    lock, meet = threading.Lock(), threading.Barrier(3)
    flying, most = 0, 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        meet.wait(timeout=60)  # passes only if three are in flight together
        with lock:
            flying -= 1
        return reply()

    Server(answer, concurrency=3).policy.sample([replace(REQUEST, seeds=tuple(range(9)))])
    assert most == 3


# -- what servers do not know ----------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"x": {"const": 1}}}


def test_a_schema_is_sent_as_response_format() -> None:
    server = Server(reply("{}"))
    server.one(replace(REQUEST, schema=SCHEMA))
    constraint = {"type": "json_schema", "json_schema": {"name": "specification", "schema": SCHEMA}}
    assert server.bodies[0]["response_format"] == constraint
    assert server.warnings == []


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_without_schemas_is_asked_once(status: int) -> None:
    server = Server(refusal(status, "response_format?"), reply("{}"))
    for _ in range(2):
        assert server.one(replace(REQUEST, schema=SCHEMA)).error == ""
    assert ["response_format" in b for b in server.bodies] == [True, False, False]
    assert server.warnings == ["http://server/v1 refuses JSON schemas: specifications are asked for without"]


def test_a_refusal_with_and_without_schema_is_not_the_schemas() -> None:
    server = Server(refusal(400, "too long"), refusal(400, "too long"), reply("{}")).answered()
    assert server.one(replace(REQUEST, schema=SCHEMA)).error == "no answer: 400 too long"
    assert server.one(replace(REQUEST, schema=SCHEMA)).error == ""
    assert ["response_format" in b for b in server.bodies] == [True, False, True]
    assert server.warnings == []


def test_the_limit_has_two_names() -> None:
    server = Server(refusal(400, "Unsupported 'max_tokens': use 'max_completion_tokens' instead."), reply())
    for _ in range(2):
        assert server.one().error == ""
    assert [b.get("max_tokens") for b in server.bodies] == [7, None, None]
    assert [b.get("max_completion_tokens") for b in server.bodies] == [None, 7, 7]


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    caplog.set_level(logging.DEBUG)
    seen = []

    def echo(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return refusal(400, f"bad request with {request.headers['Authorization']}")

    server = Server(echo).answered()
    assert server.one().error == "no answer: 400 bad request with Bearer ***"
    assert seen == [f"Bearer {KEY}"]
    told = [caplog.text, *server.warnings, json.dumps(server.bodies), repr(server.policy)]
    for failing in (refusal(401, KEY), refusal(404, KEY), refusal(500, KEY)):
        with pytest.raises(EngineError) as caught:
            Server(failing).one()
        told.append(str(caught.value))
    assert not [text for text in told if KEY in text]


def test_without_a_key_none_is_sent() -> None:
    server = Server(lambda request: reply(str("Authorization" in request.headers)))
    assert FORMAT.decode(server.one().tokens) == "False"


def test_a_missing_or_refused_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "http://server/v1 wants an API key (401): the environment variable OPENAI_API_KEY is "
    for state in ("not set", "refused"):
        with pytest.raises(EngineError) as caught:
            Server(refusal(401, "who?")).one()
        assert str(caught.value) == line + state
        monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_a_key_with_other_characters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-…")
    with pytest.raises(InputError, match="OPENAI_API_KEY holds characters that no key has"):
        Server(reply())


@pytest.mark.parametrize(
    "url",
    [
        "server/v1",
        "ftp://server",
        "http://me:secret@server",
        "http://server?key=secret",
        "http://",
        "http://server:port",
        "",
    ],
)
def test_a_base_url_is_checked_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError) as caught:
        served(url)
    assert str(caught.value) == "base URL: expected http(s)://HOST[:PORT]/PATH without password and query"


# -- a frozen policy -------------------------------------------------------------------------------------------------


def test_it_cannot_be_trained(tmp_path: Path) -> None:
    policy = Server(reply()).policy
    for attempt in (
        lambda: policy.logprobs([]),
        lambda: policy.forward_backward([], Loss("cross_entropy")),
        lambda: policy.optim_step(AdamParams(1.0)),
    ):
        with pytest.raises(EngineError, match="strong at http://server/v1 is frozen: it can be sampled, not trained"):
            attempt()
    policy.save_state(tmp_path)
    policy.load_state(tmp_path)
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text()) == {"version": 0, "model": "strong", "base_url": URL}


# -- episodes and candidates -----------------------------------------------------------------------------------------


def test_a_whole_episode_over_messages() -> None:
    server = Server(reply("look"), reply("stop"))
    ((trajectory,),) = play(server.policy, FORMAT, Game(), [TASK], PlayConfig(1, 16, 4), seed=1)
    assert trajectory.score == Score(1.0, "right")
    assert trajectory.text == "look\nok\nstop"
    assert server.bodies[1]["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "look"},
        {"role": "user", "content": "<tool_response>\nok\n</tool_response>"},
    ]


def test_a_failed_request_is_unscored_and_the_rest_is_played() -> None:
    tasks = [Task("x", (Message("user", text),), (), None, {}) for text in ("a", "b")]
    server = Server(reply("look"), reply("look"), refusal(400, "too long"), reply("stop"))
    game = Game()
    (failed,), (won,) = play(server.policy, FORMAT, game, tasks, PlayConfig(1, 16, 4), seed=1)
    assert failed.score == Score(None, "no answer: 400 too long")
    assert failed.stop == "engine_error"
    assert len(failed.tokens) == len(failed.mask) == len(failed.logprobs)
    assert won.score == Score(1.0, "right")
    assert game.closed == 2


def test_a_failed_request_of_the_simulator_has_a_verdict_of_its_own() -> None:
    domain = ToolUse()
    orders = [Order(seed, None, "similar") for seed in domain.seeds(2, 0)]
    server = Server(refusal(500, "oops"), *[refusal(500, "oops")] * 5, reply("nonsense"))
    candidates = write(server.policy, FORMAT, domain, orders, SimulatorConfig(), key=1)
    gate = Gate(domain)
    verdicts = [gate.admit(c)[1] for c in candidates]
    assert [(v.reason, v.detail) for v in verdicts] == [
        ("unanswered", "no answer: 500 oops (6 tries)"),
        ("unparsable", "not JSON: Expecting value at character 0"),
    ]


def test_a_run_with_a_teacher(tmp_path: Path) -> None:
    """The teacher writes every task and is never trained; what it does not answer is counted; a run resumes."""

    def teach(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert body["messages"] == [{"role": "user", "content": "write"}]
        if body["seed"] % 4 == 0:
            return refusal(403, "no")
        serial = body["response_format"]["json_schema"]["schema"]["properties"]["serial"]["const"]
        return reply(json.dumps({"level": body["seed"] % 10, "serial": serial}))

    raw = {"rounds": 2, "simulator": {"tasks": 12, "train": False}, "agent": {"group_size": 4}, "eval": {"tasks": 2}}
    raw["teacher"] = {"model": "strong", "base_url": URL}
    run = tmp_path / "run"
    for resume in (False, True):
        store = Store.resume(run) if resume else Store.create(run, build_config(raw, "test"))
        server = Server(teach, concurrency=4)
        engine = Taught(ScriptedEngine(agent, lambda prompt, seed: pytest.fail("asked")), server.policy)
        CoEvolution(store.config, engine, Levels(), Levels().seeds(20, 0), store, lambda s, f: None).run(resume)
        metrics = store.metrics()
        store.close()
        if resume:
            assert server.bodies == []
        else:
            assert len(server.bodies) == 24
            refused = sum(body["seed"] % 4 == 0 for body in server.bodies)
    assert all(m["admitted"] + sum(m["rejected"].values()) == 12 for m in metrics)
    assert all(m["admitted"] > 4 for m in metrics)
    assert sum(m["rejected"]["unanswered"] for m in metrics) == refused > 0
    assert [m["simulator_version"] for m in metrics] == [0, 0]
    assert metrics[-1]["agent_version"] > 0
    assert [f.name for f in (run / "checkpoints" / "round_000002" / "simulator").iterdir()] == ["policy.json"]


# -- over a real socket ----------------------------------------------------------------------------------------------


def served(url: str, **options: object) -> OpenAIPolicy:
    settings = {"concurrency": 2, "timeout": 30.0, "key_variable": "OPENAI_API_KEY", "warn": pytest.fail}
    return OpenAIPolicy("strong", base_url=url, **settings | {"sleep": lambda seconds: None} | options)


@pytest.fixture
def socket_server() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(401, {"error": "who are you?"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"content": body["messages"][-1]["content"][::-1]}
            self.answer(200, {"choices": [{"message": message, "finish_reason": "stop"}]})

        def answer(self, status: int, document: dict) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_over_a_socket(socket_server: str) -> None:
    policy = served(socket_server)
    (samples,) = policy.sample([replace(REQUEST, seeds=(1, 2, 3))])
    assert [FORMAT.decode(s.tokens) for s in samples] == ["ih"] * 3
    with pytest.raises(
        InputError, match="wants an API key \\(401\\): the environment variable OPENAI_API_KEY is not set"
    ):
        policy.check()


def test_a_benchmark_is_played_behind_a_server(socket_server: str, tmp_path: Path) -> None:
    """The server turns "n=4;" round: one wrong answer a sample, each with the prompt that was sent."""
    result = run(Doubles(2), Player("strong", served(socket_server)), Options(), tmp_path, lambda *progress: None)
    assert (result["samples"], result["score"], result["unscored"]) == (2, 0.0, 0)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [(r["prompt"], r["output"]) for r in records] == [("user: n=0;", [";0=n"]), ("user: n=1;", [";1=n"])]


def test_nobody_listens(socket_server: str) -> None:
    gone = socket_server.replace("/v1", "").rpartition(":")[0] + ":1/v1"
    with pytest.raises(InputError, match=r"^no server at http://127\.0\.0\.1:1/v1: ConnectError: "):
        served(gone).check()

"""The engine for Tinker servers, on a server in memory. `tests/skyrl` has a real one."""

from __future__ import annotations

import io
import json
import socket
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from genenv.config.sections import EngineConfig
from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.errors import EngineError, InputError, MissingExtraError
from genenv.contracts.types import Datum, SampleRequest
from genenv.engines.tinker import server as _tinker_server
from genenv.engines.tinker.engine import TinkerEngine, TinkerPolicy
from genenv.engines.tinker.server import Server, connect
from genenv.engines.tinker.wire import chunks
from genenv.session import make_engine


@dataclass(frozen=True)
class FakeDatum:
    model_input: list[int]
    loss_fn_inputs: dict[str, list[float]]


API = SimpleNamespace(
    ModelInput=SimpleNamespace(from_ints=list),
    Datum=FakeDatum,
    SamplingParams=lambda **fields: SimpleNamespace(**fields),
    AdamParams=lambda **fields: SimpleNamespace(**fields),
)


@dataclass
class FakeFuture:
    """Notes when it is awaited."""

    journal: list[str]
    answer: Callable[[], Any]

    def result(self, timeout: float | None = None) -> Any:
        self.journal.append("await")
        return self.answer()


@dataclass
class FakeService:
    """The calls that the engine makes, as `tinker.ServiceClient` has them. Every logprob is -2."""

    journal: list[str] = field(default_factory=list)
    sent: list[tuple[Any, ...]] = field(default_factory=list)
    failure: Exception | None = None
    metrics: dict[str, float] = field(default_factory=lambda: {"loss:sum": 1.0})
    adapters: list[dict[str, Any]] = field(default_factory=list)
    samplers: int = 0

    def future(self, answer: Any) -> FakeFuture:
        self.journal.append("submit")

        def finish() -> Any:
            if self.failure is not None:
                raise self.failure
            return answer

        return FakeFuture(self.journal, finish)

    def get_server_capabilities(self) -> Any:
        return SimpleNamespace(supported_models=[SimpleNamespace(model_name=n) for n in ("big/model", "small/model")])

    def create_lora_training_client(self, **options: Any) -> FakeTraining:
        if self.failure is not None:
            raise self.failure
        self.adapters.append(options)
        return FakeTraining(self)

    def create_training_client_from_state_with_optimizer(self, path: str) -> FakeTraining:
        self.adapters.append({"path": path})
        return FakeTraining(self)

    def create_sampling_client(self, base_model: str) -> FakeSampler:
        return FakeSampler(self, base_model)

    def create_rest_client(self) -> Any:
        def archive(run: str, checkpoint: str) -> FakeFuture:
            self.sent.append(("archive", run, checkpoint))
            return self.future(SimpleNamespace(url="https://there/archive"))

        return SimpleNamespace(get_checkpoint_archive_url=archive)


@dataclass
class FakeTraining:
    service: FakeService

    def _pass(self, name: str, data: list[FakeDatum], loss: str, settings: Any) -> FakeFuture:
        self.service.sent.append((name, data, loss, settings))
        outputs = [{"logprobs": np.full(len(d.model_input), -2.0)} for d in data]
        return self.service.future(SimpleNamespace(loss_fn_outputs=outputs, metrics=self.service.metrics))

    def forward(self, data: list[FakeDatum], loss: str, settings: Any) -> FakeFuture:
        return self._pass("forward", data, loss, settings)

    def forward_backward(self, data: list[FakeDatum], loss: str, settings: Any) -> FakeFuture:
        return self._pass("forward_backward", data, loss, settings)

    def optim_step(self, adam: Any) -> FakeFuture:
        self.service.sent.append(("optim_step", adam))
        return self.service.future(SimpleNamespace(metrics={"skyrl.ai/grad_norm": 3.0}))

    def save_weights_and_get_sampling_client(self) -> FakeSampler:
        self.service.samplers += 1
        return FakeSampler(self.service, f"sampler {self.service.samplers}")

    def save_state(self, name: str) -> FakeFuture:
        return self.service.future(SimpleNamespace(path=f"tinker://run/weights/{name}"))

    def save_weights_for_sampler(self, name: str) -> FakeFuture:
        return self.service.future(SimpleNamespace(path=f"tinker://run/sampler_weights/{name}"))


@dataclass
class FakeSampler:
    service: FakeService
    name: str

    def sample(self, **request: Any) -> FakeFuture:
        self.service.sent.append((self.name, request))
        one = SimpleNamespace(tokens=[7, 2], logprobs=[-0.5, -0.25], stop_reason="stop")
        return self.service.future(SimpleNamespace(sequences=[one] * request["num_samples"]))

    def compute_logprobs(self, prompt: list[int]) -> FakeFuture:
        return self.service.future([None, *(-float(t) for t in prompt[1:])])


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    deliver(monkeypatch, b"")
    return FakeService()


def deliver(monkeypatch: pytest.MonkeyPatch, packed: bytes) -> None:
    """What is downloaded instead of an archive of the network."""
    monkeypatch.setattr(_tinker_server.urllib.request, "urlopen", lambda url, timeout: io.BytesIO(packed))


def engine(random_model: str, service: FakeService, **changes: Any) -> TinkerEngine:
    options = {"base_model": "small/model", "rank": 4, "seed": 0, "token_budget": 100, **changes}
    return TinkerEngine(random_model, Server(API, service), **options)


@pytest.fixture
def agent(random_model: str, service: FakeService) -> TinkerPolicy:
    return engine(random_model, service).policy("agent")


SHORT = Datum((5, 6, 7), (0.0, 0.0, 0.5), 2, (0.0, 0.0, -1.0))
LONG = Datum((5, 6, 7, 8, 9), (0.0, 0.0, 0.25, 0.0, -2.0), 2, (0.0, 0.0, -3.0, 0.0, -2.5))
IDLE = Datum((5, 6), (0.0, 0.0), 1)


def test_cross_entropy_is_sent_shifted_with_its_weights(agent: TinkerPolicy, service: FakeService):
    stats = agent.forward_backward([LONG, IDLE, SHORT], Loss("cross_entropy"))
    assert service.sent == [
        (
            "forward_backward",
            [
                FakeDatum([5, 6], {"target_tokens": [6, 7], "weights": [0.0, 0.5]}),
                FakeDatum([5, 6, 7, 8], {"target_tokens": [6, 7, 8, 9], "weights": [0.0, 0.25, 0.0, -2.0]}),
            ],
            "cross_entropy",
            None,
        )
    ]
    # -(0.5 + 0.25 - 2) * -2
    assert (stats.loss, stats.tokens, stats.ratio, stats.clipped) == (pytest.approx(-2.5), 3, 1.0, 0.0)


def test_ppo_is_sent_with_advantages_old_logprobs_and_clip_range(agent: TinkerPolicy, service: FakeService):
    stats = agent.forward_backward([LONG], Loss("ppo", clip=0.25))
    ((_, [datum], name, settings),) = service.sent
    assert datum.loss_fn_inputs == {
        "target_tokens": [6, 7, 8, 9],
        "advantages": [0.0, 0.25, 0.0, -2.0],
        "logprobs": [0.0, -3.0, 0.0, -2.5],
    }
    assert (name, settings) == ("ppo", {"clip_low_threshold": 0.75, "clip_high_threshold": 1.25})
    # ratios e and sqrt(e): -(min(0.25 e, 0.25 * 1.25) + min(-2 sqrt(e), -2 * 1.25))
    assert stats.loss == pytest.approx(-0.3125 + 2 * 1.6487213)
    assert stats.ratio == pytest.approx((2.7182818 + 1.6487213) / 2)
    assert stats.clipped == 1.0


def test_a_server_that_averages_gets_weights_that_undo_it(random_model: str, service: FakeService):
    service.metrics = {}
    agent = engine(random_model, service, reduction="mean").policy("agent")
    agent.forward_backward([SHORT, IDLE, LONG], Loss("cross_entropy"))
    ((_, [short, long], name, settings),) = service.sent
    # two sequences of 2 and 4 predictions: divided by 2 * 2 and by 2 * 4 there
    assert short.loss_fn_inputs["advantages"] == [0.0, 0.5 * 4]
    assert long.loss_fn_inputs["advantages"] == [0.0, 0.25 * 8, 0.0, -2.0 * 8]
    assert "weights" not in long.loss_fn_inputs
    assert (name, settings) == ("cispo", {"clip_low_threshold": 1.0, "clip_high_threshold": 1.0})
    with pytest.raises(EngineError, match="one forward_backward per optim_step"):
        agent.forward_backward([SHORT], Loss("ppo"))
    agent.optim_step(AdamParams(1e-3))
    agent.forward_backward([SHORT], Loss("ppo"))
    assert service.sent[-1][2] == "ppo"


@pytest.mark.parametrize(("reduction", "metrics"), [("sum", {}), ("mean", {"total_loss:sum": 1.0})])
def test_the_wrong_reduction_is_found_out_before_a_step(
    reduction: str, metrics: dict[str, float], random_model: str, service: FakeService
):
    service.metrics = metrics
    agent = engine(random_model, service, reduction=reduction).policy("agent")
    with pytest.raises(InputError, match=f"engine.reduction = '{reduction}': this server"):
        agent.forward_backward([SHORT], Loss("ppo"))
    with pytest.raises(EngineError, match=r"engine.reduction"):
        agent.optim_step(AdamParams(1e-3))


def test_data_are_cut_into_requests_by_padded_tokens():
    lengths = [4, 2, 9, 3, 2]
    data = [Datum((1,) * n, (0.0,) * (n - 1) + (1.0,), 1) for n in lengths]
    assert list(chunks(data, 9)) == [[1, 4, 3], [0], [2]]
    assert list(chunks(data, 1)) == [[1], [4], [3], [0], [2]]
    assert list(chunks([], 9)) == []


def test_every_request_is_submitted_before_one_is_awaited(random_model: str, service: FakeService):
    made = engine(random_model, service, token_budget=1)
    agent = made.policy("agent")
    requests = [SampleRequest((5, 6), (1, 2), 8), SampleRequest((7,), (3,), 8)]
    for call in (
        lambda: agent.forward_backward([SHORT, LONG], Loss("ppo")),
        lambda: agent.logprobs([SHORT, LONG]),
        lambda: agent.sample(requests),
        lambda: made.base_logprobs([SHORT, LONG]),
    ):
        service.journal.clear()
        call()
        assert service.journal == ["submit", "submit", "await", "await"]


def test_a_sampler_is_made_when_the_version_has_moved_and_only_then(agent: TinkerPolicy, service: FakeService):
    request = SampleRequest((5, 6), (2**40 + 9, 2), 8, 0.5, schema={"type": "object"})
    for _ in range(2):
        (group,) = agent.sample([request])
        assert [(s.tokens, s.logprobs, s.stopped, s.policy_version) for s in group] == [
            ((7, 2), (-0.5, -0.25), True, 0)
        ] * 2
    name, sent = service.sent[-1]
    assert (name, sent["prompt"], sent["num_samples"]) == ("sampler 1", [5, 6], 2)
    params = sent["sampling_params"]
    assert (params.max_tokens, params.temperature, params.stop) == (8, 0.5, [2])
    assert 0 <= params.seed < 2**31
    agent.forward_backward([SHORT], Loss("cross_entropy"))
    assert agent.optim_step(AdamParams(1e-3, max_grad_norm=0.5)) == 3.0
    (group,) = agent.sample([request])
    assert service.sent[-1][0] == "sampler 2"
    assert {s.policy_version for s in group} == {agent.version} == {1}


def test_logprobs_stand_at_the_tokens_that_have_a_weight(random_model: str, service: FakeService):
    made = engine(random_model, service)
    assert made.policy("agent").logprobs([IDLE, LONG]) == [(0.0, 0.0), (0.0, 0.0, -2.0, 0.0, -2.0)]
    assert made.base_logprobs([IDLE, LONG]) == [(0.0, 0.0), (0.0, 0.0, -7.0, 0.0, -9.0)]
    assert made.policy("agent").logprobs([IDLE]) == [(0.0, 0.0)]
    assert made.policy("agent").forward_backward([IDLE], Loss("ppo")).tokens == 0


def test_adapters_are_made_on_first_use_like_those_of_the_local_engine(random_model: str, service: FakeService):
    made = engine(random_model, service)
    assert service.adapters == []
    for player in ("agent", "simulator", "agent"):
        made.policy(player).logprobs([SHORT])  # type: ignore[arg-type]
    assert [(a["base_model"], a["rank"], a["train_unembed"]) for a in service.adapters] == [
        ("small/model", 4, False)
    ] * 2
    assert service.adapters[0]["seed"] != service.adapters[1]["seed"]


def test_a_step_of_unknown_outcome_is_not_sent_again(agent: TinkerPolicy, service: FakeService, tmp_path: Path):
    agent.save_state(tmp_path)
    agent.forward_backward([SHORT], Loss("ppo"))
    service.failure = ConnectionError("reset\nby peer")
    with pytest.raises(EngineError, match=r"^optim_step of the agent: reset by peer; its outcome is unknown: resume"):
        agent.optim_step(AdamParams(1e-3))
    assert agent.version == 0
    service.failure = None
    sent = len(service.sent)
    for call in (
        lambda: agent.optim_step(AdamParams(1e-3)),
        lambda: agent.forward_backward([SHORT], Loss("ppo")),
        lambda: agent.logprobs([SHORT]),
        lambda: agent.sample([SampleRequest((5,), (1,), 4)]),
        lambda: agent.save_state(tmp_path),
    ):
        with pytest.raises(EngineError, match="its outcome is unknown"):
            call()
    assert len(service.sent) == sent
    agent.load_state(tmp_path)
    agent.forward_backward([SHORT], Loss("ppo"))


def test_errors_are_one_line_without_the_key(random_model: str, service: FakeService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    service.failure = ValueError("bad\n  key tml-secret")
    with pytest.raises(InputError) as caught:
        engine(random_model, service).policy("agent").logprobs([SHORT])
    assert str(caught.value) == (
        "the server refused an adapter of rank 4: bad key ***; set engine.rank to what it admits, or raise its limits"
    )
    with pytest.raises(InputError, match=r"found no/model; it has big/model, small/model$"):
        engine(random_model, service, base_model="no/model")


def test_answers_that_cannot_be_trained_on_are_refused(
    agent: TinkerPolicy, service: FakeService, monkeypatch: pytest.MonkeyPatch
):
    def answered(*sequences: Any) -> None:
        reply = SimpleNamespace(sequences=list(sequences))
        monkeypatch.setattr(FakeSampler, "sample", lambda self, **request: service.future(reply))

    request = SampleRequest((5,), (1, 2), 4)
    answered(SimpleNamespace(tokens=[1], logprobs=[-1.0], stop_reason="length"))
    with pytest.raises(EngineError, match="expected 2 samples, found 1"):
        agent.sample([request])
    answered(*[SimpleNamespace(tokens=[1], logprobs=None, stop_reason="length")] * 2)
    with pytest.raises(EngineError, match="without logprobs"):
        agent.sample([request])
    with pytest.raises(ValueError, match="weight on its prompt"):
        agent.forward_backward([Datum((1, 2), (0.0, 1.0), 2)], Loss("ppo"))


def archive(*names: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    return packed.getvalue()


def test_the_state_stays_at_the_server_and_the_adapter_comes_home(
    random_model: str, service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "my run" / "checkpoints" / ".draft_000003" / "agent"
    folder.mkdir(parents=True)
    deliver(monkeypatch, archive("./adapter_model.safetensors", "adapter_config.json", "../evil"))
    agent = engine(random_model, service).policy("agent")
    agent.forward_backward([SHORT], Loss("ppo"))
    agent.optim_step(AdamParams(1e-3))
    agent.save_state(folder)
    name = "my-run-checkpoints-draft_000003-agent-1"
    assert service.sent[-1] == ("archive", "run", f"sampler_weights/{name}")
    assert sorted(p.name for p in folder.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "policy.json",
    ]  # fmt: skip
    assert json.loads((folder / "policy.json").read_text()) == {
        "version": 1,
        "path": f"tinker://run/weights/{name}",
        "adapter": "here",
    }
    other = engine(random_model, service).policy("agent")
    other.load_state(folder)
    assert service.adapters[-1] == {"path": f"tinker://run/weights/{name}"}
    (group,) = other.sample([SampleRequest((5,), (1,), 4)])
    assert other.version == group[0].policy_version == 1


def test_a_checkpoint_without_adapter_says_why(agent: TinkerPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deliver(monkeypatch, archive("adapter_model.safetensors"))
    agent.save_state(tmp_path)
    assert json.loads((tmp_path / "policy.json").read_text())["adapter"] == "its archive holds no adapter_config.json"
    (tmp_path / "policy.json").write_text('{"version": 3}')
    with pytest.raises(InputError, match="was not saved by an engine of kind 'tinker'"):
        agent.load_state(tmp_path)


def test_waiting_ends_when_the_server_is_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_tinker_server, "LOOK_EVERY", 0.001)
    looks = iter([False, True, *[False] * _tinker_server.PATIENCE])
    monkeypatch.setattr(_tinker_server, "answers", lambda url: next(looks))
    with pytest.raises(EngineError, match=r"^work: the server at http://here is gone$"):
        Server(API, None, "http://here").gather("work", [Future])
    assert next(looks, None) is None


def test_clients_that_are_returned_as_futures_are_awaited(service: FakeService):
    server = Server(API, service)
    assert server.call("work", lambda: service.future("made")) == "made"
    assert server.call("work", lambda: "made") == "made"


def test_a_timeout_of_the_call_itself_is_a_failure(service: FakeService):
    service.failure = TimeoutError()
    with pytest.raises(EngineError, match=r"^work: TimeoutError$"):
        Server(API, service).gather("work", [lambda: service.future(None)])


def test_connecting_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'genenv-rl\[tinker\]'"):
        connect("http://127.0.0.1:1")

    def refuse(**options: Any) -> None:
        raise ValueError(f"no {options['api_key']}")

    monkeypatch.setitem(sys.modules, "tinker", SimpleNamespace(ServiceClient=refuse))
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    with pytest.raises(InputError, match="TINKER_API_KEY is not set"):
        connect(None)
    with socket.socket() as bound:  # not listening
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match=r"engine.base_url: no server answers at http://127\.0\.0\.1"):
            connect(f"http://127.0.0.1:{bound.getsockname()[1]}")
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    with pytest.raises(InputError, match=r"^no session at the hosted service: no \*\*\*$"):
        connect(None)


def test_an_alpha_that_servers_do_not_take_is_refused():
    with pytest.raises(InputError, match=r"engine.lora_alpha = 16: Tinker servers scale all adapters with 32"):
        make_engine(EngineConfig(kind="tinker", base_url="http://127.0.0.1:1", lora_alpha=16), 0)

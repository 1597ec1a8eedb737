"""The engine against a real SkyRL server, its JAX backend on the CPU. `make test-skyrl` runs this."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from skyrl_server import SkyRL

from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.errors import EngineError, GenEnvError, InputError
from genenv.contracts.types import Datum, Json, SampleRequest
from genenv.engines.local.engine import LocalEngine
from genenv.engines.tinker import server as _tinker_server
from genenv.engines.tinker.engine import TinkerEngine
from genenv.engines.tinker.server import connect
from genenv.engines.tinker.wire import Reduction
from genenv.session import resumed_run

RANK = 8
CLOSE = 1e-4
"""Nats: float32 sums in another order, over logprobs of about 10."""


def engine(server: SkyRL, *, rank: int = RANK, model: str | None = None, reduction: Reduction = "mean") -> TinkerEngine:
    return TinkerEngine(
        server.model,
        connect(server.url),
        base_model=model or server.model,
        rank=rank,
        seed=0,
        token_budget=80,  # three requests for the batch below
        reduction=reduction,
    )


@pytest.fixture
def remote(skyrl: SkyRL) -> Iterator[TinkerEngine]:
    made = engine(skyrl)
    yield made
    made.close()


@pytest.fixture
def local(skyrl: SkyRL) -> LocalEngine:
    return LocalEngine(skyrl.model, rank=RANK, lora_alpha=32, seed=0, dtype="float32")


def batch(seed: int = 0) -> list[Datum]:
    """Sequences of unlike lengths with weights of both signs, and one without any weight."""
    rng = random.Random(seed)
    data = []
    for i, length in enumerate((20, 26, 30, 24)):
        start = 8 + i
        tokens = tuple(rng.randrange(3, 2000) for _ in range(length))
        weights = (0.0,) * start + tuple(rng.uniform(-1, 1) for _ in range(length - start))
        data.append(Datum(tokens, weights, start))
    return [*data, Datum(data[0].tokens, (0.0,) * 20, 8)]


def farthest(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    return max(abs(a - b) for r, s in zip(one, other, strict=True) for a, b in zip(r, s, strict=True))


def test_an_untrained_adapter_and_the_base_agree_with_the_local_engine(remote: TinkerEngine, local: LocalEngine):
    expected = local.base_logprobs(batch())
    assert farthest(remote.policy("agent").logprobs(batch()), expected) < CLOSE
    assert farthest(remote.base_logprobs(batch()), expected) < CLOSE


@pytest.mark.parametrize("name", ["cross_entropy", "importance_sampling", "ppo"])
def test_one_update_is_that_of_the_local_engine(name: str, remote: TinkerEngine, local: LocalEngine, tmp_path: Path):
    there, here = remote.policy("agent"), local.policy("agent")
    there.save_state(tmp_path)
    # the same adapter in both, then the same step
    set_peft_model_state_dict(local.model, load_file(tmp_path / "adapter_model.safetensors"), adapter_name="agent")
    before = local.base_logprobs(batch())
    shift = random.Random(1)
    data = [
        Datum(d.tokens, d.weights, d.prompt_length, tuple(lp + shift.uniform(-0.4, 0.4) if lp else 0.0 for lp in row))
        for d, row in zip(batch(), before, strict=True)
    ]
    loss, adam = Loss(name), AdamParams(1e-4, max_grad_norm=0.0)  # type: ignore[arg-type]
    found, expected = there.forward_backward(data, loss), here.forward_backward(data, loss)
    assert found.loss == pytest.approx(expected.loss, abs=CLOSE)
    assert (found.tokens, found.ratio, found.clipped) == pytest.approx(
        (expected.tokens, expected.ratio, expected.clipped), abs=CLOSE
    )
    assert there.optim_step(adam) == pytest.approx(here.optim_step(adam), rel=1e-4)
    after = there.logprobs(data)
    assert farthest(after, here.logprobs(data)) < CLOSE
    assert farthest(after, before) > 100 * CLOSE
    assert there.forward_backward(data, loss).loss < found.loss - 100 * CLOSE


def test_samples_come_from_the_newest_weights_and_say_so(remote: TinkerEngine):
    agent = remote.policy("agent")
    request = SampleRequest(tuple(range(10, 30)), seeds=(1, 2, 3), max_tokens=8)
    for version in range(2):
        (group,) = agent.sample([request])
        assert [s.policy_version for s in group] == [version] * 3
        assert agent.sample([request]) == [group]  # this server keeps the seed
        data = [Datum(request.prompt + s.tokens, (0.0,) * 20 + (1.0,) * len(s.tokens), 20) for s in group]
        own = [row[20:] for row in agent.logprobs(data)]
        assert farthest(own, [s.logprobs for s in group]) < CLOSE
        agent.forward_backward(data, Loss("cross_entropy"))
        agent.optim_step(AdamParams(1e-2))
        # what an old sampler would have said is far from the weights now
        assert farthest([row[20:] for row in agent.logprobs(data)], own) > 100 * CLOSE


def test_refusals_are_one_line_before_anything_is_trained(skyrl: SkyRL):
    with pytest.raises(InputError, match=r"the server has, found other/model; it has .*/model$"):
        engine(skyrl, model="other/model")
    with pytest.raises(InputError, match=r"adapter of rank 9: .*LoRA rank 9 must be between 1 and 8"):
        engine(skyrl, rank=9).policy("agent").logprobs(batch())
    summed = engine(skyrl, reduction="sum").policy("agent")
    with pytest.raises(InputError, match="this server seems to have 'mean'"):
        summed.forward_backward(batch(), Loss("cross_entropy"))
    with pytest.raises(EngineError, match="this server seems to have 'mean'"):
        summed.optim_step(AdamParams(1e-3))


def settings(server: SkyRL) -> dict[str, Json]:
    return {
        "rounds": 3,
        "engine": {
            "kind": "tinker",
            "model": server.model,
            "base_url": server.url,
            "rank": RANK,
            "reduction": "mean",
        },
        "domain": {"max_calls": 1, "seed_count": 40},
        "simulator": {"tasks": 4, "max_tokens": 64, "warmup": 1},
        "agent": {"group_size": 4, "max_tokens": 32, "max_turns": 1, "warmup": 1},
        "eval": {"tasks": 2, "rollouts": 1, "every": 3},
    }


def genenv(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from genenv.cli.app import app; app()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def quiet(stage: str, figures: Mapping[str, Json]) -> None:
    pass


def test_a_run_survives_the_death_of_the_client_and_of_the_server(
    skyrl: SkyRL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_tinker_server, "LOOK_EVERY", 1.0)
    folder = tmp_path / "run"
    toml = tmp_path / "run.toml"
    toml.write_text(as_toml(settings(skyrl)))

    client = genenv("train", str(toml), "--run-dir", str(folder))
    while not (folder / "checkpoints" / "round_000001").exists():
        assert client.poll() is None, client.communicate()
        time.sleep(0.2)
    client.kill()
    client.communicate()

    def kill_the_server(stage: str, figures: Mapping[str, Json]) -> None:
        if stage == "reward":
            skyrl.kill()

    run = resumed_run(folder, kill_the_server)
    with pytest.raises(GenEnvError, match=r"127\.0\.0\.1") as caught:
        run.run(resume=True)
    assert "\n" not in str(caught.value)
    run.store.close()
    skyrl.start()

    run = resumed_run(folder, quiet)
    run.run(resume=True)
    rounds = run.store.metrics()
    assert [r["round"] for r in rounds] == [1, 2, 3]
    versions = [r["agent_version"] for r in rounds]
    assert versions == sorted(versions)
    assert versions[-1] == run.agent.version >= 1
    assert run.simulator.version >= 1
    newest = folder / "checkpoints" / "round_000003" / "agent"
    assert json.loads((newest / "policy.json").read_text())["adapter"] == "here"
    run.store.close()

    evaluation = genenv("eval", str(folder), "--tasks", "2", "--rollouts", "1", "--json")
    out, err = evaluation.communicate()
    assert evaluation.returncode == 0, err
    assert json.loads(out)["round"] == 3


def as_toml(sections: Mapping[str, Json]) -> str:
    flat = {k: v for k, v in sections.items() if not isinstance(v, dict)}
    text = "".join(f"{k} = {json.dumps(v)}\n" for k, v in flat.items())
    for name, section in sections.items():
        if isinstance(section, dict):
            text += f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in section.items())
    return text

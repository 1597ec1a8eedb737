"""The local engine against plain computation: logprobs, packing, sampling, losses, state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.types import Chat, Datum, Message, SampleRequest
from genenv.engines.local.engine import LocalEngine
from genenv.engines.local.packing import batches, pays
from genenv.engines.losses import loss_terms


@pytest.fixture
def engine(random_model: str) -> LocalEngine:
    return LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)


def train_a_little(engine: LocalEngine, player: str = "agent") -> None:
    """Make the adapter differ from the base."""
    policy = engine.policy(player)
    for _ in range(3):
        policy.forward_backward([Datum(tuple(range(5, 25)), (0.0,) * 4 + (0.1,) * 16, 4)], Loss("cross_entropy"))
        policy.optim_step(AdamParams(lr=0.05))


def plain_logprobs(engine: LocalEngine, tokens: tuple[int, ...]) -> torch.Tensor:
    """Logprob of each token but the first, one sequence at a time."""
    with torch.no_grad():
        logits = engine.model(input_ids=torch.tensor([tokens])).logits[0].float()
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(tokens[1:])[:, None]).squeeze(1)


def group_of_three() -> list[Datum]:
    prompt = (7, 8, 9, 10, 11)
    members = [(20, 21, 22), (30, 31, 32, 33, 34), (40,)]
    return [Datum(prompt + m, (0.0,) * 5 + (0.5,) * len(m), 5, (0.0,) * 5 + (-1.0,) * len(m), group=0) for m in members]


def test_logprobs_of_a_packed_group_equal_separate_sequences(engine: LocalEngine) -> None:
    train_a_little(engine)
    data = [*group_of_three(), Datum((50, 51, 52, 53), (0.0, 0.0, 1.0, 1.0), 2)]
    packed = engine.policy("agent").logprobs(data)
    for datum, row in zip(data, packed, strict=True):
        plain = plain_logprobs(engine, datum.tokens)
        expected = [0.0] * datum.prompt_length + plain[datum.prompt_length - 1 :].tolist()
        assert row == pytest.approx(expected, abs=2e-5)


def test_gradient_of_a_packed_group_equals_separate_sequences(engine: LocalEngine) -> None:
    train_a_little(engine)
    policy = engine.policy("agent")
    data = group_of_three()
    policy.forward_backward(data, Loss("importance_sampling"))
    together = [p.grad.clone() for p in policy._parameters]
    policy._optimizer.zero_grad()
    for datum in data:
        policy.forward_backward([datum], Loss("importance_sampling"))
    for packed, parameter in zip(together, policy._parameters, strict=True):
        assert torch.allclose(packed, parameter.grad, atol=1e-5)
    assert any(g.abs().max() > 1e-3 for g in together)


def test_a_shown_gradient_is_that_of_the_loss_and_leaves_no_trace(engine: LocalEngine) -> None:
    train_a_little(engine)
    policy = engine.policy("agent")
    policy.forward_backward(group_of_three(), Loss("cross_entropy"))
    accumulated = [p.grad.clone() for p in policy._parameters]
    datum = Datum((7, 8, 9, 20, 21), (0.0, 0.0, 0.0, -2.0, -2.0), 3)
    found = policy.gradient([datum], Loss("cross_entropy"))
    for kept, parameter in zip(accumulated, policy._parameters, strict=True):
        assert torch.equal(kept, parameter.grad)

    def loss() -> float:
        return 2.0 * plain_logprobs(engine, datum.tokens)[2:].double().sum().item()

    step = torch.from_numpy(found) / torch.from_numpy(found).norm()
    ends = []
    for size in (1e-3, -2e-3):  # there, back and as far again
        with torch.no_grad():
            for part, parameter in zip(
                step.split([p.numel() for p in policy._parameters]), policy._parameters, strict=True
            ):
                parameter += size * part.view_as(parameter)
        ends.append(loss())
    assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(float(torch.from_numpy(found).norm()), rel=0.02)


def test_small_token_budget_changes_nothing_but_the_batches(random_model: str) -> None:
    wide = LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)
    narrow = LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1, token_budget=8)
    data = group_of_three()
    assert len(list(batches(data, 8, 0, narrow.device, 64))) == 3
    assert len(list(batches(data, 100, 0, wide.device, 64))) == 1
    for a, b in zip(wide.policy("agent").logprobs(data), narrow.policy("agent").logprobs(data), strict=True):
        assert a == pytest.approx(b, abs=2e-5)


def test_long_continuations_of_a_short_prompt_are_not_packed(engine: LocalEngine) -> None:
    assert pays(prompt=300, length=300 + 7 * 40, own=40, hidden=192)
    # 2 (1650 - 350) 300 - 350^2 = 657,500 comparisons more against 350 tokens at 576 each
    assert not pays(prompt=350, length=1650, own=300, hidden=192)
    assert pays(prompt=350, length=1650, own=300, hidden=2048)

    data = [Datum((1, *(t,) * 60), (0.0,) + (0.5,) * 60, 1, group=0) for t in (20, 21, 22)]
    (apart,) = batches(data, 1000, 0, engine.device, 1)
    (together,) = batches(data, 1000, 0, engine.device, 10**6)
    assert (apart.tokens_RL.shape, apart.mask_R1LL) == ((3, 61), None)
    assert together.tokens_RL.shape == (1, 181)


def test_data_without_weight_are_not_computed(engine: LocalEngine) -> None:
    data = [Datum((1, 2, 3), (0.0, 0.0, 0.0), 1)]
    assert list(batches(data, 100, 0, engine.device, 64)) == []
    assert engine.policy("agent").forward_backward(data, Loss("ppo")).tokens == 0


def test_a_weight_on_the_prompt_is_refused(engine: LocalEngine) -> None:
    with pytest.raises(ValueError, match="weight on its prompt"):
        engine.policy("agent").logprobs([Datum((1, 2, 3), (0.0, 1.0, 1.0), 2)])


def test_temperature_zero_equals_transformers_generate(engine: LocalEngine, random_model: str) -> None:
    plain = AutoModelForCausalLM.from_pretrained(random_model, dtype=torch.float32)
    prompts = [(10, 11, 12), (20, 21, 22, 23, 24, 25), (30,)]
    requests = [SampleRequest(p, (0, 1), max_tokens=12, temperature=0.0) for p in prompts]
    for prompt, samples in zip(prompts, engine.policy("agent").sample(requests), strict=True):
        expected = plain.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=12, do_sample=False
        )[0, len(prompt) :].tolist()
        assert [list(s.tokens) for s in samples] == [expected, expected]


def test_sampled_logprobs_equal_a_fresh_forward_pass(engine: LocalEngine) -> None:
    train_a_little(engine)
    policy = engine.policy("agent")
    requests = [SampleRequest((10, 11, 12), tuple(range(6)), 20), SampleRequest((9,) * 9, (7, 8), 20)]
    for request, samples in zip(requests, policy.sample(requests), strict=True):
        for sample in samples:
            plain = plain_logprobs(engine, request.prompt + sample.tokens)[len(request.prompt) - 1 :]
            assert list(sample.logprobs) == pytest.approx(plain.tolist(), abs=5e-5)


def test_a_sample_depends_on_its_seed_and_not_on_its_neighbours(engine: LocalEngine) -> None:
    policy = engine.policy("agent")
    alone = policy.sample([SampleRequest((10, 11, 12), (5,), 15)])[0][0]
    crowd = policy.sample([SampleRequest((9,) * 6, (1, 2), 15), SampleRequest((10, 11, 12), (4, 5, 6), 15)])[1]
    assert crowd[1].tokens == alone.tokens
    assert len({s.tokens for s in crowd}) == 3


def test_samples_follow_the_model_distribution(engine: LocalEngine) -> None:
    count = 4000
    samples = engine.policy("agent").sample([SampleRequest((10, 11, 12), tuple(range(count)), 1)])[0]
    with torch.no_grad():
        probabilities = torch.softmax(engine.model(input_ids=torch.tensor([[10, 11, 12]])).logits[0, -1].float(), -1)
    seen = Counter(s.tokens[0] for s in samples)
    frequencies = torch.tensor([seen[i] / count for i in range(len(probabilities))])
    assert 0.5 * (frequencies - probabilities).abs().sum() < 0.13  # total variation; sampling noise alone is about 0.1
    assert np.corrcoef(frequencies.numpy(), probabilities.numpy())[0, 1] > 0.7


def test_a_schema_binds_every_sample(engine: LocalEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"level": {"enum": [3, 7]}, "on": {"type": "boolean"}},
        "required": ["level", "on"],
        "additionalProperties": False,
    }
    samples = engine.policy("simulator").sample([SampleRequest((10, 11), tuple(range(12)), 40, 1.0, schema)])[0]
    texts = {engine.chat.decode(s.tokens) for s in samples}
    assert texts <= {f'{{"level":{n},"on":{b}}}' for n in (3, 7) for b in ("true", "false")}
    assert len(texts) > 1
    assert all(s.stopped for s in samples)


def test_adapters_are_separate_and_the_base_stays(engine: LocalEngine) -> None:
    data = group_of_three()
    before = engine.base_logprobs(data)
    assert engine.policy("agent").logprobs(data) == before
    train_a_little(engine, "agent")
    assert engine.policy("simulator").logprobs(data) == before
    assert engine.base_logprobs(data) == before
    assert engine.policy("agent").logprobs(data) != before


def test_state_survives_a_round_trip_including_the_optimizer(
    engine: LocalEngine, random_model: str, tmp_path: Path
) -> None:
    train_a_little(engine)
    engine.policy("agent").save_state(tmp_path)
    other = LocalEngine(random_model, rank=4, lora_alpha=8, seed=99, dtype="float32", threads=1)
    other.policy("agent").load_state(tmp_path)
    assert other.policy("agent").version == 3
    train_a_little(engine)
    train_a_little(other)
    data = group_of_three()
    assert other.policy("agent").logprobs(data) == engine.policy("agent").logprobs(data)
    assert (tmp_path / "adapter_config.json").exists()  # PEFT's own format


def test_a_step_lowers_the_loss_it_was_computed_from(engine: LocalEngine) -> None:
    policy = engine.policy("agent")
    data = [Datum((5, 6, 7, 8), (0.0, 0.5, 0.5, 0.5), 1)]
    first = policy.forward_backward(data, Loss("cross_entropy")).loss
    policy.optim_step(AdamParams(lr=0.01))
    assert policy.forward_backward(data, Loss("cross_entropy")).loss < first


def test_losses_by_hand() -> None:
    logprob, old = torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([-1.0, -1.5, -1.0])
    weight = torch.tensor([1.0, -1.0, 2.0])
    ratio = [1.0, 0.606531, 1.648721]  # e^0, e^-0.5, e^0.5
    loss, _ = loss_terms("cross_entropy", logprob, old, weight, 0.2)
    assert loss.tolist() == pytest.approx([1.0, -2.0, 1.0])
    loss, got = loss_terms("importance_sampling", logprob, old, weight, 0.2)
    assert got.tolist() == pytest.approx(ratio, abs=1e-6)
    assert loss.tolist() == pytest.approx([-1.0, 0.606531, -3.297443], abs=1e-6)
    # clipped: the second ratio is below 0.8 with a negative advantage, the third above 1.2 with a positive one
    loss, _ = loss_terms("ppo", logprob, old, weight, 0.2)
    assert loss.tolist() == pytest.approx([-1.0, 0.8, -2.4], abs=1e-6)


def test_the_chat_format_is_exposed(engine: LocalEngine) -> None:
    tokens = engine.chat.encode(Chat((Message("user", "hi"),)))
    assert engine.chat.decode(tokens) == "<s>user\nhi<e>\n<s>assistant\n"

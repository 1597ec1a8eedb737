"""The fast forward pass against transformers and peft, family by family."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.errors import InputError
from genenv.contracts.types import Datum, SampleRequest
from genenv.engines.local import fast as _fast
from genenv.engines.local.decode import BufferedLayer, PlainForward
from genenv.engines.local.engine import LocalEngine
from genenv.engines.local.fast import FastDecoder, supported

SHAPE: dict[str, Any] = {
    "vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3, "max_position_embeddings": 128,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "llama scaled": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=LLAMA3)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16)),
}


def with_adapter(name: str) -> Any:
    """A random model whose biases, norms and adapter are not what a new model's are."""
    torch.manual_seed(3)
    model = get_peft_model(MODELS[name]().float(), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key or "bias" in key:
                parameter.normal_(0, 0.3)
            elif "norm" in key:
                parameter.uniform_(0.5, 1.5)
    return model.eval()


def padded_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = torch.randint(1, 90, (2, 9), generator=torch.Generator().manual_seed(0))
    seen = torch.ones(2, 9, dtype=torch.bool)
    seen[1, :3] = False
    positions = (seen.long().cumsum(-1) - 1).clamp(min=0)
    mask = (seen[:, None, None] & torch.ones(9, 9, dtype=torch.bool).tril()) | torch.eye(9, dtype=torch.bool)
    return tokens, positions, mask


@pytest.mark.parametrize("packed_from", [1, 1 << 60], ids=["packed", "plain"])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_equal_those_of_transformers(name: str, packed_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fast, "PACKED_FROM", packed_from)
    model = with_adapter(name)
    base = model.get_base_model()
    assert supported(base)
    tokens, positions, mask = padded_batch()
    fast = FastDecoder(base, "default")
    expected = model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits
    got = fast.logits(fast.hidden(tokens, positions, mask))
    assert torch.allclose(got[0], expected[0], atol=2e-4)
    assert torch.allclose(got[1, 3:], expected[1, 3:], atol=2e-4)  # what stands in for padding is nobody's business
    with model.disable_adapter():
        plain = model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits
    bare = FastDecoder(base, None)
    assert torch.allclose(bare.logits(bare.hidden(tokens, positions, mask))[0], plain[0], atol=2e-4)
    assert (plain[0] - expected[0]).abs().max() > 0.1  # the adapter matters


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_one_token_at_a_time_equals_all_at_once(name: str) -> None:
    base = with_adapter(name).get_base_model()
    tokens, positions, mask = padded_batch()
    fast = FastDecoder(base, "default")
    whole = fast.hidden(tokens, positions, mask)[:, -4:]
    cache = [BufferedLayer(9) for _ in range(fast.depth)]
    fast.hidden(tokens[:, :5], positions[:, :5], mask[:, :, :5, :5], cache)
    steps = [
        fast.hidden(tokens[:, t : t + 1], positions[:, t : t + 1], mask[:, :, t : t + 1, : t + 1], cache)
        for t in range(5, 9)
    ]
    assert torch.allclose(torch.cat(steps, 1), whole, atol=2e-5)


def test_what_is_computed_otherwise_is_not_supported() -> None:
    model = MODELS["llama"]()
    assert supported(model)
    for key, value in [("hidden_act", "gelu"), ("model_type", "gemma2"), ("mlp_bias", True)]:
        config = LlamaForCausalLM(LlamaConfig(**SHAPE)).config
        setattr(config, key, value)
        other = MODELS["llama"]()
        other.config = config
        assert not supported(other), key
    assert not supported(MODELS["llama"]().bfloat16())
    scaled = {**LLAMA3, "rope_type": "dynamic"}
    assert not supported(LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=scaled)))


def test_samples_of_both_ways_are_the_same(random_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [SampleRequest((10, 11, 12), (1, 2, 3), 20), SampleRequest((9,) * 7, (4,), 20)]
    tokens = []
    for fast in (True, False):
        engine = LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)
        assert engine._merges
        engine._merges = fast
        agent = engine.policy("agent")
        agent.forward_backward([Datum(tuple(range(5, 25)), (0.0,) * 4 + (0.1,) * 16, 4)], Loss("cross_entropy"))
        agent.optim_step(AdamParams(lr=0.05))
        tokens.append([[s.tokens for s in group] for group in agent.sample(requests)])
    assert tokens[0] == tokens[1]


def test_weights_that_were_loaded_are_used_at_once(random_model: str, tmp_path: Path) -> None:
    """A checkpoint may carry the very version that the policy is at."""
    data = [Datum((5, 6, 7, 8), (0.0, 0.5, 0.5, 0.5), 1)]
    folders = []
    for lr in (0.01, 0.05):
        engine = LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)
        agent = engine.policy("agent")
        agent.forward_backward(data, Loss("cross_entropy"))
        agent.optim_step(AdamParams(lr))
        folders.append(tmp_path / str(lr))
        folders[-1].mkdir()
        agent.save_state(folders[-1])
    last = agent.logprobs(data)
    agent.load_state(folders[0])
    assert agent.logprobs(data) != last
    agent.load_state(folders[1])
    assert agent.logprobs(data) == last


def test_the_plain_way_is_the_model_itself(random_model: str) -> None:
    engine = LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)
    tokens = torch.tensor([[10, 11, 12]])
    cache = [BufferedLayer(3) for _ in range(2)]
    mask = torch.ones(3, 3, dtype=torch.bool).tril()[None, None]
    with torch.no_grad():
        got = PlainForward(engine.model)(tokens, torch.arange(3)[None], mask, cache)
        assert torch.allclose(got, engine.model(input_ids=tokens).logits[:, -1], atol=1e-5)


def test_a_window_of_attention_is_refused(random_model: str, tmp_path: Path) -> None:
    """Sampling would look behind it and training would not."""
    folder = tmp_path / "windowed"
    shutil.copytree(random_model, folder)
    description = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**description, "use_sliding_window": True, "sliding_window": 8}))
    with pytest.raises(InputError, match="sliding-window attention are not supported"):
        LocalEngine(str(folder), rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)

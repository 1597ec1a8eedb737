"""A tiny random model with a byte-like vocabulary, and small domains with planted difficulty."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from random_tokens import random_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a two-layer random model, grouped-query attention included."""
    folder: Path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    tokenizer = random_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions have scripted players on the planted domain instead of a model."""
    from planted import Levels
    from planted import guess as agent
    from planted import write as simulator

    from genenv import session
    from genenv.engines.scripted import ScriptedEngine

    monkeypatch.setattr(session, "make_engine", lambda config, seed: ScriptedEngine(agent, simulator))
    monkeypatch.setattr(session, "make_domain", lambda config: Levels())


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text("rounds = 3\n[simulator]\ntasks = 6\n[agent]\ngroup_size = 4\n[eval]\ntasks = 2\nrollouts = 2\n")
    return path


@pytest.fixture(scope="session")
def official() -> Callable[[str], Path]:
    """The folder of a benchmark's official files; the test is skipped where they are not."""
    root = Path(os.environ.get("GENENV_DATA") or Path(__file__).parents[2] / "shared" / "data")

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no official data: {root / name} is missing; set GENENV_DATA")
        return root / name

    return folder


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests share cores with others, and sums in one order make runs comparable."""
    torch.set_num_threads(1)

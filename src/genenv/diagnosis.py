"""What `genenv doctor` knows: packages, device, and an estimate of the memory that a configuration needs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path

from genenv.config import Config
from genenv.engines.base import CACHE_FACTOR
from genenv.models import resolve
from genenv.sandbox import available
from genenv.types import Json

PACKAGES = ("torch", "transformers", "peft", "llguidance", "tinker", "tensorboard", "wandb", "pydantic-monty")


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def parameters_of(model: dict[str, Json]) -> int:
    """Number of weights of a dense Llama- or Qwen-like model, from its config.json."""
    width, layers = model["hidden_size"], model["num_hidden_layers"]
    heads = model["num_attention_heads"]
    head = model.get("head_dim") or width // heads
    kv_heads = model.get("num_key_value_heads") or heads
    attention = 2 * width * heads * head + 2 * width * kv_heads * head
    mlp = 3 * width * model["intermediate_size"]
    embeddings = model["vocab_size"] * width * (1 if model.get("tie_word_embeddings") else 2)
    return int(layers * (attention + mlp + 2 * width) + embeddings + width)


def memory_estimate(model: dict[str, Json], config: Config, dtype_bytes: int) -> dict[str, float]:
    """MiB by purpose: weights, both adapters with optimizer state, sampling cache, training activations.

    Upper bounds from shapes: the caches and activations are sized by `engine.token_budget`.
    """
    engine = config.engine
    width, layers = model["hidden_size"], model["num_hidden_layers"]
    heads = model["num_attention_heads"]
    head = model.get("head_dim") or width // heads
    kv_heads = model.get("num_key_value_heads") or heads
    inner = model["intermediate_size"]
    per_layer = (2 * (width + heads * head) + 2 * (width + kv_heads * head) + 3 * (width + inner)) * engine.rank
    cache = 2 * layers * kv_heads * head * dtype_bytes
    activations = layers * (8 * width + 3 * inner + 4 * heads * head) * dtype_bytes
    mib = 2**20
    return {
        "weights": parameters_of(model) * dtype_bytes / mib,
        "adapters": 2 * layers * per_layer * 4 * 4 / mib,
        "sampling": CACHE_FACTOR * engine.token_budget * cache / mib,
        "training": engine.token_budget * activations / mib + 3 * 128,
    }


def diagnose(config: Config) -> dict[str, Json]:
    """One finding per line, in the order a person asks."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    findings: dict[str, Json] = {
        "python": platform.python_version(),
        **{name: _installed(name) for name in PACKAGES},
        "device": device,
        "threads": config.engine.threads or torch.get_num_threads(),
        "cores": os.cpu_count(),
        **{f"sandbox {name}": state for name, state in available().items()},
        "engine": f"{config.engine.kind}, {config.engine.model}",
    }
    if config.teacher.model is not None:
        findings["teacher"] = f"{config.teacher.model} at {config.teacher.base_url}"
    if config.engine.kind == "tinker":
        return findings | {
            "server": config.engine.base_url or "the hosted Tinker service",
            "memory": "that of the server",
        }
    description = Path(resolve(config.engine.model)) / "config.json"
    if not description.is_file():
        return findings | {"memory": f"unknown: {config.engine.model} is not on this machine yet"}
    wide = config.engine.dtype == "float32" or (config.engine.dtype == "auto" and device == "CPU")
    parts = memory_estimate(json.loads(description.read_text("utf-8")), config, 4 if wide else 2)
    parts = {name: round(value) for name, value in parts.items()}
    return findings | {"memory_mb": {**parts, "total": sum(parts.values())}}

"""What `genenv doctor` knows: packages, device, and an estimate of the memory that a configuration needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from genenv.config import Config
from genenv.domains.catalogue import read_catalogue
from genenv.errors import InputError
from genenv.models.shapes import shape_of
from genenv.plan import Lengths, local_memory
from genenv.sandbox import available
from genenv.types import Json

PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "llguidance",
    "tinker",
    "tensorboard",
    "wandb",
    "pydantic-monty",
    "reasoning-gym",
)


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _functions(path: Path) -> dict[str, Json]:
    """What came out of a catalogue: the arguments of each function, those that may be left out with a `?`."""
    catalogue, skipped = read_catalogue(path)
    shown = {
        name: ", ".join(f"{n}{'' if n in f.required else '?'}: {s.get('type', 'any')}" for n, s in f.properties.items())
        for name, f in catalogue.items()
    }
    return {
        "functions": f"{len(catalogue)} from {path}, {len(skipped)} things left out",
        **{f"function {name}": arguments for name, arguments in shown.items()},
        **{f"left out {i}": reason for i, reason in enumerate(skipped, 1)},
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
    if config.domain.catalogue is not None:
        findings |= _functions(config.domain.catalogue)
    if config.teacher.model is not None:
        findings["teacher"] = f"{config.teacher.model} at {config.teacher.base_url}"
    if config.engine.kind == "tinker":
        return findings | {
            "server": config.engine.base_url or "the hosted Tinker service",
            "memory": "that of the server",
        }
    try:
        shape = shape_of(config.engine.model)
    except InputError as error:
        return findings | {"memory": f"unknown: {error}"}
    parts = local_memory(shape, config, Lengths.of(config), cuda=device != "CPU")
    return findings | {"memory_mb": {name: round(value / 2**20) for name, value in parts.items()}}

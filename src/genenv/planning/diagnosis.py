"""What `genenv doctor` knows: packages, device, and an estimate of the memory that a configuration needs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path

from genenv.config.sections import Config
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.domains.tool_use.catalogue import read_catalogue
from genenv.planning.plan import Lengths, local_memory
from genenv.planning.shapes import shape_of
from genenv.sandbox.pool import available

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


def _device() -> tuple[str, int | None]:
    """What the local engine would compute on, and with how many threads; the latter is unknown without torch."""
    if importlib.util.find_spec("torch") is None:
        return "CPU", None
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", torch.get_num_threads()


def diagnose(config: Config) -> dict[str, Json]:
    """One finding per line, in the order a person asks."""
    device, threads = _device()
    findings: dict[str, Json] = {
        "python": platform.python_version(),
        **{name: _installed(name) for name in PACKAGES},
        "device": device,
        "threads": config.engine.threads or threads,
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

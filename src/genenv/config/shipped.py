"""The configurations that ship with the package: `genenv train demo` needs no file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from genenv.contracts.errors import InputError

FOLDER = Path(str(resources.files("genenv"))) / "configs"


def shipped() -> list[str]:
    """Their names, demonstrations first."""
    names = [path.stem for path in FOLDER.glob("*.toml")]
    return sorted(names, key=lambda name: (not name.startswith("demo"), name))


def find_config(path: Path) -> Path:
    """`path` where it is a file, else the shipped configuration of that name. Raises InputError if it is neither."""
    if path.is_file():
        return path
    if str(path) in shipped():
        return FOLDER / f"{path}.toml"
    problem = "is a folder" if path.is_dir() else "no such file"
    raise InputError(
        f"cannot read the configuration {path}: {problem}; expected a TOML file, or one of {', '.join(shipped())}"
    )

"""Checkpoints of a run: written beside, checked, renamed; damaged ones are found by their digests.

checkpoints/round_000012/{agent,simulator}/ + pools.json + manifest.json
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from genenv.contracts.errors import GenEnvError, InputError
from genenv.contracts.types import Json

KEEP = 2
"""Complete checkpoints kept; the one before the newest stays in case the newest is damaged later."""


class Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, number: int, write: Callable[[Path], None]) -> None:
        """`write` fills a temporary folder, which is renamed when everything is on disk."""
        self.folder.mkdir(exist_ok=True)
        final, draft = self.folder / f"round_{number:06d}", self.folder / f".draft_{number:06d}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            write(draft)
            files = {str(p.relative_to(draft)): _digest(p) for p in sorted(draft.rglob("*")) if p.is_file()}
            with (draft / "manifest.json").open("w", encoding="utf-8") as handle:
                json.dump({"round": number, "files": files}, handle)
                handle.flush()
                os.fsync(handle.fileno())
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        except Exception as error:  # libraries report a full disk in many ways
            shutil.rmtree(draft, ignore_errors=True)
            raise GenEnvError(f"checkpoint {final.name} could not be written: {error}") from error
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
        for old in sorted(self.folder.glob("round_*"))[:-KEEP]:
            shutil.rmtree(old)

    def latest(self, warn: Callable[[str], None]) -> tuple[int, Path] | None:
        """The newest complete checkpoint; damaged ones are named to `warn` and passed over."""
        for folder in sorted(self.folder.glob("round_*"), reverse=True):
            if fault := checkpoint_fault(folder):
                warn(f"checkpoint {folder.name} is damaged and is passed over: {fault}")
            else:
                return int(folder.name.removeprefix("round_")), folder
        return None

    def of_round(self, number: int) -> Path:
        """The checkpoint of one round. Raises InputError if there is none or it is damaged."""
        folder = self.folder / f"round_{number:06}"
        if not folder.is_dir():
            have = [f.name.removeprefix("round_").lstrip("0") or "0" for f in sorted(folder.parent.glob("round_*"))]
            raise InputError(
                f"{self.folder.parent} has no checkpoint of round {number}, only of {', '.join(have) or 'none'}"
            )
        if fault := checkpoint_fault(folder):
            raise InputError(f"checkpoint {folder.name} of {self.folder.parent} is damaged: {fault}")
        return folder


def checkpoint_fault(folder: Path) -> str:
    """What is wrong with a checkpoint folder, or ""."""
    try:
        manifest: Mapping[str, Json] = json.loads((folder / "manifest.json").read_text("utf-8"))
        for name, digest in manifest["files"].items():
            path = folder / name
            if not path.exists():
                return f"{name} is missing"
            if _digest(path) != digest:
                return f"{name} has been changed or cut"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "manifest.json is missing or unreadable"
    return ""


def _digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()

"""What becomes of one check, and the limits that it runs under: what the backends have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from genenv.contracts.errors import InputError

Status = Literal["scored", "crash", "timeout", "infrastructure"]
INSTALL_BUBBLEWRAP = "install bubblewrap (Debian, Ubuntu: apt install bubblewrap)"


@dataclass(frozen=True)
class Limits:
    """What one check may use. monty knows wall time, memory and output; bubblewrap all of them.

    `file_mb` limits each file, the whole of /tmp and what is printed; of that, `output_chars` are kept for people.
    """

    wall_s: float = 2.0
    memory_mb: int = 256
    file_mb: int = 16
    output_chars: int = 2000

    def __post_init__(self) -> None:
        if min(self.wall_s, self.memory_mb, self.file_mb, self.output_chars) <= 0:
            raise InputError(f"sandbox limits must be positive, found {self}")


@dataclass(frozen=True)
class Outcome:
    """What became of one check. `value` is set exactly where `status` is `scored`; 0.0 is wrong, 1.0 right."""

    status: Status
    value: float | None
    reason: str
    backend: str
    output: str = ""


class Unavailable(Exception):
    """The sandbox failed, not the checker. `stage`: no process, no sandbox from it, or gone in the middle of a check."""

    def __init__(self, why: str, stage: Literal["start", "set-up", "check"] = "start") -> None:
        super().__init__(why)
        self.stage = stage


class NeedsMore(Exception):
    """monty cannot run the checker. `surely` is False where that may be the checker's own mistake."""

    def __init__(self, why: str, surely: bool, output: str) -> None:
        super().__init__(why)
        self.surely = surely
        self.output = output


def scored(value: object, backend: str, output: str) -> Outcome:
    """Judge the verdict itself. Not `isinstance`: 1 is an int, and no checker was told that it may return one."""
    if type(value) is not bool and type(value) is not float:
        return crash(f"invalid verdict of type {type(value).__name__}", backend, output)
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        return crash(f"invalid verdict {value}, expected 0 to 1", backend, output)
    reason = {0.0: "wrong", 1.0: "right"}.get(float(value), "partly right")
    return Outcome("scored", float(value), reason, backend, output)


def crash(why: str, backend: str = "none", output: str = "") -> Outcome:
    return Outcome("crash", None, f"crash: {why}", backend, output)


def timed_out(limits: Limits, backend: str, output: str) -> Outcome:
    return Outcome("timeout", None, f"checker timed out after {limits.wall_s:g} s", backend, output)

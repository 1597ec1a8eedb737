"""Runs untrusted Python checkers, `def check(answer) -> bool | float`, outside this process.

Two backends. `monty` (pydantic-monty, extra `sandbox`): a small Python interpreter written in Rust, in worker
processes of its own; fractions of a millisecond a check. `bubblewrap`: this machine's CPython in a namespace sandbox
with warm workers and one fresh process per check; some milliseconds. `auto` asks monty first and goes to bubblewrap
where the checker needs more of the language; where bubblewrap is absent, such a checker is refused (InputError).

Covered
- Answers enter as JSON data, never as program text, and never under a name that the checker could know.
- Wall time, memory, output, and under bubblewrap CPU time, processes and file size are limited, whatever exceptions the
  checker swallows. Limits do not use signals: any thread, process pool or event loop may call.
- Secrets: no environment, no network, no file of this machine but the standard library and the system's shared
  libraries, read-only. There is no /proc and no /dev; /tmp is small, in memory, and gone after a check that wrote there.
- Checks cannot influence each other or the worker: no signals, tracing, sockets, shared memory, threads, subprocesses.
- The verdict is what `check` returned, a bool or a finite float in [0, 1]. All else is a crash: another type, SystemExit,
  leaving with status 0, writing to inherited descriptors.
- The same verdict every time as far as hashing, set order and `random` go: their seeds are fixed.
- A failure of the sandbox itself is neither right nor wrong; one retry, then the status `infrastructure`.

Not covered
- A checker that evaluates its answer (`eval`, `exec`) gives the agent its own powers, the verdict included.
- Verdicts that depend on time or on `os.urandom`; flaws of the kernel; side channels such as timing.
- monty is not CPython. Where it lacks something, it raises, and the check moves on; but a checker that swallows this
  exception decides on its own. (A missing module is found in spite of `try`.) monty also rests on its own memory safety
  and process boundary, not on namespaces. `backend="bubblewrap"` avoids both.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import weakref
from collections.abc import Callable
from importlib.metadata import version
from typing import Literal, Self

from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Json
from genenv.sandbox.bubblewrap import LAUNCH_SECONDS, BubblewrapBackend, SandboxProcess, find_bwrap
from genenv.sandbox.monty import MontyBackend, start_pool
from genenv.sandbox.outcome import INSTALL_BUBBLEWRAP, Limits, NeedsMore, Outcome, Unavailable, crash

Backend = Literal["auto", "monty", "bubblewrap"]
MAX_SOURCE = 64_000
MAX_ANSWER = 1_000_000


def _retried(run: Callable[[str, Json, bool], Outcome], source: str, answer: Json) -> Outcome:
    """One retry where the sandbox failed. Twice dead under the same check is the check's doing: it must not pay."""
    failures: list[Unavailable] = []
    for fresh in (False, True):
        try:
            return run(source, answer, fresh)
        except Unavailable as failure:
            failures.append(failure)
    if all(f.stage == "check" for f in failures):
        return crash(f"twice, {failures[-1]}")
    return Outcome("infrastructure", None, f"sandbox failure: {failures[-1]}", "none")


_LIVE: weakref.WeakSet[MontyBackend | BubblewrapBackend] = weakref.WeakSet()


class Sandbox:
    """Runs checkers, at most `workers` at a time per backend. Workers start when first needed and stay warm.

    Threads may share it; it may be forked and pickled, and the copy starts its own workers. In a process forked from one
    that has used monty, `auto` means bubblewrap.
    """

    def __init__(self, limits: Limits | None = None, backend: Backend = "auto", workers: int = 2) -> None:
        self.limits = limits or Limits()
        self.backend = backend
        self.workers = workers
        self._monty = MontyBackend(self.limits, workers)
        self._bubblewrap = BubblewrapBackend(self.limits, workers)
        _LIVE.update((self._monty, self._bubblewrap))

    def check(self, source: str, answer: Json) -> Outcome:
        """Run `check(answer)` as `source` defines it. Raises InputError only where no backend can take the checker."""
        try:
            if len(source.encode()) > MAX_SOURCE:
                return crash(f"the checker is longer than {MAX_SOURCE} bytes")
            if len((text := json.dumps(answer, allow_nan=False, ensure_ascii=False)).encode()) > MAX_ANSWER:
                return crash(f"the answer is longer than {MAX_ANSWER} bytes")
            plain = json.loads(text)  # so that what arrives is data and nothing else, the same in both backends
        except (ValueError, TypeError, RecursionError) as error:  # lone surrogates, NaN, objects
            return crash(f"not JSON: {str(error)[:200]}")
        if self.backend == "bubblewrap":
            return _retried(self._bubblewrap.check, source, plain)
        try:
            return _retried(self._monty.check, source, plain)
        except NeedsMore as lack:
            if self.backend == "auto" and shutil.which("bwrap"):
                return _retried(self._bubblewrap.check, source, plain)
            if not lack.surely:
                return crash(str(lack), "monty", lack.output)
            remedy = INSTALL_BUBBLEWRAP if self.backend == "auto" else 'use the backend "auto"'
            raise InputError(f"pydantic-monty cannot run this checker ({lack}): {remedy}") from None

    async def check_async(self, source: str, answer: Json) -> Outcome:
        """`check` in a thread, for event loops."""
        return await asyncio.to_thread(self.check, source, answer)

    def close(self) -> None:
        """End the workers. A later check would start new ones."""
        self._monty.close()
        self._bubblewrap.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Sandbox], tuple[Limits, Backend, int]]:
        return Sandbox, (self.limits, self.backend, self.workers)


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=lambda: [backend.forget() for backend in list(_LIVE)])


def available() -> dict[str, str]:
    """For each backend, its version or why it cannot be used: what `genenv doctor` prints. Starts each once."""
    try:
        start_pool(1).__exit__(None, None, None)
        monty = f"pydantic-monty {version('pydantic-monty')}"
    except (MissingExtraError, NeedsMore, Unavailable) as error:
        monty = f"unusable: {error}"
    try:
        bwrap = find_bwrap()
        name = subprocess.check_output([bwrap, "--version"], text=True, timeout=LAUNCH_SECONDS)
        SandboxProcess(bwrap, Limits()).kill()
    except (InputError, Unavailable, OSError, subprocess.SubprocessError) as error:
        return {"monty": monty, "bubblewrap": f"unusable: {error}"}
    return {"monty": monty, "bubblewrap": f"{name.strip()} ({bwrap})"}

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
import functools
import importlib
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self

from genenv.errors import InputError, MissingExtraError
from genenv.types import Json

Backend = Literal["auto", "monty", "bubblewrap"]
Status = Literal["scored", "crash", "timeout", "infrastructure"]

MAX_SOURCE = 64_000
MAX_ANSWER = 1_000_000
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))  # not the one of a virtual environment
LAUNCH_SECONDS = 20.0
GRACE_SECONDS = 5.0  # how much longer than its wall time a worker may take to report a killed check
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


class _Unavailable(Exception):
    """The sandbox failed, not the checker. `stage`: no process, no sandbox from it, or gone in the middle of a check."""

    def __init__(self, why: str, stage: Literal["start", "set-up", "check"] = "start") -> None:
        super().__init__(why)
        self.stage = stage


class _NeedsMore(Exception):
    """monty cannot run the checker. `surely` is False where that may be the checker's own mistake."""

    def __init__(self, why: str, surely: bool, output: str) -> None:
        super().__init__(why)
        self.surely = surely
        self.output = output


def _scored(value: object, backend: str, output: str) -> Outcome:
    """Judge the verdict itself. Not `isinstance`: 1 is an int, and no checker was told that it may return one."""
    if type(value) is not bool and type(value) is not float:
        return _crash(f"invalid verdict of type {type(value).__name__}", backend, output)
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        return _crash(f"invalid verdict {value}, expected 0 to 1", backend, output)
    reason = {0.0: "wrong", 1.0: "right"}.get(float(value), "partly right")
    return Outcome("scored", float(value), reason, backend, output)


def _crash(why: str, backend: str = "none", output: str = "") -> Outcome:
    return Outcome("crash", None, f"crash: {why}", backend, output)


def _timed_out(limits: Limits, backend: str, output: str) -> Outcome:
    return Outcome("timeout", None, f"checker timed out after {limits.wall_s:g} s", backend, output)


def _monty() -> ModuleType:
    try:
        return importlib.import_module("pydantic_monty")
    except ImportError:
        raise MissingExtraError("pydantic-monty", "sandbox", "running Python checkers") from None


def _monty_pool(workers: int) -> Any:
    """A started pool. Its threads do not survive a fork of this process, after which a new pool would hang."""
    pool = _monty().Monty(min_processes=1, max_processes=workers)
    if _MONTY_PROCESSES - {os.getpid()}:
        raise _NeedsMore('its threads are lost in a forked process; use the start method "spawn"', True, "")
    _MONTY_PROCESSES.add(os.getpid())
    try:
        return pool.__enter__()
    except (RuntimeError, OSError) as error:
        raise _Unavailable(str(error)) from None


_MONTY_PROCESSES: set[int] = set()
_ABANDONED: list[Any] = []


@dataclass
class _Printed:
    """Takes what monty prints and keeps little of it; too much ends the check."""

    limits: Limits
    total: int = 0
    kept: str = ""
    too_much: bool = False

    def __call__(self, stream: str, text: str) -> None:
        self.total += len(text)
        self.kept += text[: self.limits.output_chars - len(self.kept)]
        self.too_much = self.total > self.limits.file_mb * 2**20
        if self.too_much:
            raise OverflowError

    @property
    def text(self) -> str:
        return self.kept + (" [cut]" if self.total > len(self.kept) else "")


_IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+(\w[\w.]*)[ \t]+import\b)", re.MULTILINE)


def _hidden_imports(source: str) -> list[str]:
    """Modules whose absence the checker might hide by catching the error, as far as plain text shows."""
    if "except" not in source:
        return []
    return [n.split()[0] for several, one in _IMPORT.findall(source) for n in (several or one).split(",") if n.split()]


class _MontyBackend:
    def __init__(self, limits: Limits, workers: int) -> None:
        self.limits = limits
        self.workers = workers
        self.pool: Any = None
        self.lock = threading.Lock()

    def close(self) -> None:
        with self.lock:
            if self.pool is not None:
                self.pool.__exit__(None, None, None)
            self.pool = None

    def forget(self) -> None:
        """After a fork: without its threads even releasing the pool could hang. It is kept, unused."""
        _ABANDONED.append(self.pool)
        self.pool = None
        self.lock = threading.Lock()

    def check(self, source: str, answer: Json, fresh: bool) -> Outcome:
        monty = _monty()  # and nothing to do for `fresh`: the pool replaces a dead worker by itself
        with self.lock:
            pool = self.pool = self.pool or _monty_pool(self.workers)
        printed = _Printed(self.limits)
        name = "answer_"
        while name in source:  # a global of this name is what the checker may compare with
            name += "_"
        session = pool.checkout(
            limits={"max_feed_duration_secs": self.limits.wall_s, "max_memory": self.limits.memory_mb * 2**20},
            os_policy={"sleep": "zero", "random_start": {"seed": 0}},
            assert_message_annotations=False,
        )
        try:
            with session as opened:
                for module in _hidden_imports(source):
                    opened.feed_run(f"import {module}", print_callback=printed)
                opened.feed_run(source, print_callback=printed)
                value = opened.feed_run(f"check({name})", inputs={name: answer}, print_callback=printed)
        except monty.MontyCrashedError as error:
            if error.timed_out:
                return _timed_out(self.limits, "monty", printed.text)
            raise _Unavailable(str(error), "check") from None
        except monty.MontyError as error:
            return self._failed(error.exception(), printed)
        except (RuntimeError, OSError) as error:  # a worker could not be started
            raise _Unavailable(str(error)) from None
        return _scored(value, "monty", printed.text)

    def _failed(self, error: BaseException, printed: _Printed) -> Outcome:
        why = "too much output" if printed.too_much else f"{type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, TimeoutError) and "time limit exceeded" in why:
            return _timed_out(self.limits, "monty", printed.text)
        plain = ValueError | LookupError | ArithmeticError | AssertionError | RecursionError | MemoryError
        if printed.too_much or isinstance(error, plain):
            return _crash(why, "monty", printed.text)
        raise _NeedsMore(why, isinstance(error, NotImplementedError | ImportError), printed.text)


def _bwrap() -> str:
    if (path := shutil.which("bwrap")) is None:
        raise InputError(f"Python checkers in CPython need bwrap, which is not on the PATH: {INSTALL_BUBBLEWRAP}")
    return path


def _view() -> Iterator[list[str]]:
    """Interpreter, standard library and shared libraries. No /proc; no /dev, whose nodes root could still change."""
    system = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"]
    for path in filter(os.path.exists, system):
        yield ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    library = f"{sys.base_prefix}/lib"
    if library not in system:
        yield ["--ro-bind", library, library]
    standard = sysconfig.get_path("stdlib")
    for packages in (f"{standard}/site-packages", f"{standard}/dist-packages", f"{library}/python3/dist-packages"):
        if os.path.isdir(packages):
            yield ["--tmpfs", packages, "--remount-ro", packages]
    yield ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind", PYTHON, PYTHON]


def _command(bwrap: str, limits: Limits) -> list[str]:
    rlimits = {"AS": limits.memory_mb * 2**20, "CPU": math.ceil(limits.wall_s) + 1, "FSIZE": limits.file_mb * 2**20}
    rlimits |= {"CORE": 0, "NOFILE": 64, "NPROC": 1}
    options = {"wall": limits.wall_s, "output_chars": limits.output_chars, "limits": rlimits}
    return [
        *(bwrap, "--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--unshare-cgroup-try", "--as-pid-1", "--cap-drop", "ALL", "--hostname", "sandbox"),
        # a fixed hash seed, so that the order of a set is no coin to flip
        *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "LC_ALL", "C.UTF-8"),
        *(word for words in _view() for word in words),
        *("--ro-bind", str(Path(__file__).with_name("_sandbox_worker.py")), "/worker.py"),
        *("--size", str(limits.file_mb * 2**20), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"),
        # not -I, which would ignore the hash seed
        *(PYTHON, "-B", "-S", "-s", "-P", "/worker.py", json.dumps(options)),
    ]


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(f"sandbox: {text}", RuntimeWarning, stacklevel=2)


class _Worker:
    """A running sandbox with its socket. Not for two threads at once."""

    def __init__(self, bwrap: str, limits: Limits) -> None:
        self.limits = limits
        self.socket, theirs = socket.socketpair()
        try:
            # A session of its own: `kill` reaches bubblewrap and its child together, Ctrl-C neither. Not
            # --die-with-parent, which follows the *thread* that starts it: the closed socket ends the worker.
            line, end = _command(bwrap, limits), theirs.fileno()
            self.process = subprocess.Popen(
                line, stdin=end, stdout=end, stderr=subprocess.PIPE, env={}, cwd="/", start_new_session=True
            )
        except OSError as error:
            self.socket.close()
            raise _Unavailable(f"bubblewrap could not be started: {error}") from None
        finally:
            theirs.close()
        ready = self._receive(time.monotonic() + LAUNCH_SECONDS)
        if ready is None:
            # dead or not, it is killed first, so that reading what it said cannot block
            os.killpg(self.process.pid, signal.SIGKILL)
            said = self.process.stderr.read(2000).decode(errors="replace") if self.process.stderr else ""
            self.kill()
            raise _Unavailable(f"bubblewrap gave no sandbox: {' '.join(said.split()) or 'no message'}", "set-up")
        for text in ready["lowered"]:
            _warn_once(text)

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        data = b""
        while not data.endswith(b"\n"):
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = b""
            with suppress(OSError):
                chunk = self.socket.recv(65536)
            if not chunk:
                return None
            data += chunk
        return dict(json.loads(data))

    def ask(self, request: bytes) -> dict[str, Any] | None:
        """The reply to one request; None when the worker died or hangs, after which it is good for nothing."""
        deadline = time.monotonic() + self.limits.wall_s + GRACE_SECONDS
        self.socket.settimeout(GRACE_SECONDS)
        try:
            self.socket.sendall(request)
        except OSError:
            return None
        return self._receive(deadline)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.release()

    def release(self) -> None:
        """Let go of it without ending it: in a forked process it is the parent's."""
        self.socket.close()
        if self.process.stderr:
            self.process.stderr.close()
        self.process.returncode = self.process.returncode or 0  # or Popen would look after it


def _kill_all(idle: list[_Worker]) -> None:
    while idle:
        idle.pop().kill()


class _BubblewrapBackend:
    def __init__(self, limits: Limits, workers: int) -> None:
        self.limits = limits
        self.workers = workers
        self.idle: list[_Worker] = []
        self.slots = threading.BoundedSemaphore(workers)
        self.launched = False
        weakref.finalize(self, _kill_all, self.idle)

    def close(self) -> None:
        _kill_all(self.idle)

    def forget(self) -> None:
        """After a fork: the workers are the parent's, and its threads may have held the slots."""
        while self.idle:
            self.idle.pop().release()
        self.slots = threading.BoundedSemaphore(self.workers)

    def _worker(self, fresh: bool) -> _Worker:
        if not fresh:
            with suppress(IndexError):
                return self.idle.pop()
        try:
            worker = _Worker(_bwrap(), self.limits)
        except _Unavailable as error:
            if self.launched or error.stage == "start":
                raise
            # it never worked here, so that trying again for every check would only leave everything unscored
            raise InputError(f"{error}; Python checkers in CPython cannot run on this machine") from None
        self.launched = True
        return worker

    def check(self, source: str, answer: Json, fresh: bool) -> Outcome:
        request = json.dumps({"source": source, "answer": answer}).encode() + b"\n"
        with self.slots:
            worker = self._worker(fresh)
            healthy = False
            try:
                reply = worker.ask(request)
                healthy = reply is not None and not reply["used"]
            finally:
                # also on KeyboardInterrupt: a worker with a check half done must not serve the next one
                if healthy:
                    self.idle.append(worker)
                else:
                    worker.kill()
        if reply is None:
            raise _Unavailable("the sandbox died during the check", "check")
        if "timeout" in reply:
            return _timed_out(self.limits, "bubblewrap", reply["output"])
        if "error" in reply:
            return _crash(reply["error"], "bubblewrap", reply["output"])
        return _scored(reply["value"], "bubblewrap", reply["output"])


def _retried(run: Callable[[str, Json, bool], Outcome], source: str, answer: Json) -> Outcome:
    """One retry where the sandbox failed. Twice dead under the same check is the check's doing: it must not pay."""
    failures: list[_Unavailable] = []
    for fresh in (False, True):
        try:
            return run(source, answer, fresh)
        except _Unavailable as failure:
            failures.append(failure)
    if all(f.stage == "check" for f in failures):
        return _crash(f"twice, {failures[-1]}")
    return Outcome("infrastructure", None, f"sandbox failure: {failures[-1]}", "none")


_LIVE: weakref.WeakSet[_MontyBackend | _BubblewrapBackend] = weakref.WeakSet()


class Sandbox:
    """Runs checkers, at most `workers` at a time per backend. Workers start when first needed and stay warm.

    Threads may share it; it may be forked and pickled, and the copy starts its own workers. In a process forked from one
    that has used monty, `auto` means bubblewrap.
    """

    def __init__(self, limits: Limits | None = None, backend: Backend = "auto", workers: int = 2) -> None:
        self.limits = limits or Limits()
        self.backend = backend
        self.workers = workers
        self._monty = _MontyBackend(self.limits, workers)
        self._bubblewrap = _BubblewrapBackend(self.limits, workers)
        _LIVE.update((self._monty, self._bubblewrap))

    def check(self, source: str, answer: Json) -> Outcome:
        """Run `check(answer)` as `source` defines it. Raises InputError only where no backend can take the checker."""
        try:
            if len(source.encode()) > MAX_SOURCE:
                return _crash(f"the checker is longer than {MAX_SOURCE} bytes")
            if len((text := json.dumps(answer, allow_nan=False, ensure_ascii=False)).encode()) > MAX_ANSWER:
                return _crash(f"the answer is longer than {MAX_ANSWER} bytes")
            plain = json.loads(text)  # so that what arrives is data and nothing else, the same in both backends
        except (ValueError, TypeError, RecursionError) as error:  # lone surrogates, NaN, objects
            return _crash(f"not JSON: {str(error)[:200]}")
        if self.backend == "bubblewrap":
            return _retried(self._bubblewrap.check, source, plain)
        try:
            return _retried(self._monty.check, source, plain)
        except _NeedsMore as lack:
            if self.backend == "auto" and shutil.which("bwrap"):
                return _retried(self._bubblewrap.check, source, plain)
            if not lack.surely:
                return _crash(str(lack), "monty", lack.output)
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
        _monty_pool(1).__exit__(None, None, None)
        monty = f"pydantic-monty {version('pydantic-monty')}"
    except (MissingExtraError, _NeedsMore, _Unavailable) as error:
        monty = f"unusable: {error}"
    try:
        bwrap = _bwrap()
        name = subprocess.check_output([bwrap, "--version"], text=True, timeout=LAUNCH_SECONDS)
        _Worker(bwrap, Limits()).kill()
    except (InputError, _Unavailable, OSError, subprocess.SubprocessError) as error:
        return {"monty": monty, "bubblewrap": f"unusable: {error}"}
    return {"monty": monty, "bubblewrap": f"{name.strip()} ({bwrap})"}

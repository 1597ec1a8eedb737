"""The backend `bubblewrap`: this machine's CPython in a namespace sandbox, warm workers and one fresh process per check."""

from __future__ import annotations

import functools
import json
import math
import os
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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.sandbox.outcome import INSTALL_BUBBLEWRAP, Limits, Outcome, Unavailable, crash, scored, timed_out

PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))  # not the one of a virtual environment
LAUNCH_SECONDS = 20.0
GRACE_SECONDS = 5.0  # how much longer than its wall time a worker may take to report a killed check


def find_bwrap() -> str:
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
        *("--ro-bind", str(Path(__file__).with_name("worker.py")), "/worker.py"),
        *("--size", str(limits.file_mb * 2**20), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"),
        # not -I, which would ignore the hash seed
        *(PYTHON, "-B", "-S", "-s", "-P", "/worker.py", json.dumps(options)),
    ]


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(f"sandbox: {text}", RuntimeWarning, stacklevel=2)


class SandboxProcess:
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
            raise Unavailable(f"bubblewrap could not be started: {error}") from None
        finally:
            theirs.close()
        ready = self._receive(time.monotonic() + LAUNCH_SECONDS)
        if ready is None:
            # dead or not, it is killed first, so that reading what it said cannot block
            os.killpg(self.process.pid, signal.SIGKILL)
            said = self.process.stderr.read(2000).decode(errors="replace") if self.process.stderr else ""
            self.kill()
            raise Unavailable(f"bubblewrap gave no sandbox: {' '.join(said.split()) or 'no message'}", "set-up")
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


def _kill_all(idle: list[SandboxProcess]) -> None:
    while idle:
        idle.pop().kill()


class BubblewrapBackend:
    def __init__(self, limits: Limits, workers: int) -> None:
        self.limits = limits
        self.workers = workers
        self.idle: list[SandboxProcess] = []
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

    def _worker(self, fresh: bool) -> SandboxProcess:
        if not fresh:
            with suppress(IndexError):
                return self.idle.pop()
        try:
            worker = SandboxProcess(find_bwrap(), self.limits)
        except Unavailable as error:
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
            raise Unavailable("the sandbox died during the check", "check")
        if "timeout" in reply:
            return timed_out(self.limits, "bubblewrap", reply["output"])
        if "error" in reply:
            return crash(reply["error"], "bubblewrap", reply["output"])
        return scored(reply["value"], "bubblewrap", reply["output"])

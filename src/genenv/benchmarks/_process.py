"""A benchmark's own code in a process of its own: one JSON line in, one JSON line out.

Official checkers and games keep global state, grow, and may hang; here they can be ended. This is no sandbox: what runs
is the benchmark's code, and it must be given data only, never text to be evaluated (`genenv.sandbox` is for that).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable

from genenv.types import Json

SHUTDOWN = 5.0
"""Seconds that a worker gets to end by itself."""


class WorkerError(Exception):
    """The worker died, hung or answered with an error; the text says which. A new one can be started."""


class Worker:
    """A child process that runs `python -m MODULE ARGS...`, which must call `serve`. Not for several threads at once."""

    def __init__(self, module: str, *args: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._rest = b""
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)

    def ask(self, request: Json, timeout: float) -> Json:
        """Send one request and wait for its answer.

        Raises WorkerError. The worker is gone after that, unless the answer itself was an error.
        """
        if self._child.stdin is None or self._child.stdin.closed:
            raise WorkerError("the worker is gone")
        deadline = time.monotonic() + timeout
        left = memoryview(json.dumps(request).encode() + b"\n")
        try:
            while left:
                _, ready, _ = select.select([], [self._child.stdin], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise self._gone(f"took no request within {timeout:g} s")
                left = left[os.write(self._child.stdin.fileno(), left) :]
        except OSError:
            raise self._gone("died before it was asked") from None
        answer = json.loads(self._line(deadline, timeout))
        if "error" in answer:
            raise WorkerError(str(answer["error"]))
        return answer["result"]

    def _line(self, deadline: float, timeout: float) -> bytes:
        assert self._child.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._child.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._gone(f"gave no answer within {timeout:g} s")
            chunk = os.read(self._child.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._gone("died")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _gone(self, how: str) -> WorkerError:
        self._child.kill()
        self.close()
        return WorkerError(f"the worker {how}")

    def close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        try:
            self._child.wait(SHUTDOWN)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def serve(handle: Callable[[Json], Json]) -> None:
    """The child's side: answer every line of standard input until it ends. What `handle` raises becomes an answer.

    Standard output is kept for answers: whatever the benchmark's code prints goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = {"result": handle(json.loads(line))}
        except Exception as error:  # foreign code raises what it likes; the parent decides what that means
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

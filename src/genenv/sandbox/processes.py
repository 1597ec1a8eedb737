"""Foreign code in a process of its own: one JSON line in, one JSON line out.

Official checkers, games and environments of a user's own keep global state, grow, and may hang; here they can be ended.
This is no sandbox: what runs is trusted code, and it must be given data only, never text to be evaluated
(`genenv.sandbox.pool` is for that).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from genenv.contracts.types import Json

SHUTDOWN = 5.0
"""Seconds that a worker gets to end by itself."""


class WorkerError(Exception):
    """The worker died, hung or answered with an error; the text says which. A new one can be started."""


class AnswerError(WorkerError):
    """The request failed in the worker, which lives on."""


class Worker:
    """A child process that runs `python -m MODULE ARGS...`, which must call `serve`. Not for several threads at once."""

    def __init__(self, module: str, *args: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # sets in the same order in every worker
            start_new_session=True,  # what it starts itself can be ended with it
        )
        self._rest = b""
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)

    def ask(self, request: Json, timeout: float) -> Json:
        """Send one request and wait for its answer.

        Raises WorkerError, after which the worker is gone, and AnswerError, after which it is not.
        """
        if self._child.stdin is None or self._child.stdin.closed:
            raise WorkerError("the worker is gone")
        deadline = time.monotonic() + timeout
        try:
            left = memoryview(json.dumps(request).encode() + b"\n")
        except (TypeError, ValueError) as error:
            raise AnswerError(f"expected a request of JSON values: {error}") from None
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
            raise AnswerError(str(answer["error"]))
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
        self._kill()
        self.close()
        return WorkerError(f"the worker {how}")

    def close(self) -> None:
        """End the worker: its input ends, and it gets SHUTDOWN seconds to do what it does then."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        try:
            self._child.wait(SHUTDOWN)
        except subprocess.TimeoutExpired:
            self._kill()
            self._child.wait()

    def _kill(self) -> None:
        """End it and what it started. It has not been waited for yet, so the number is still its own."""
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)


def serve(handle: Callable[[Json], Json]) -> None:
    """The child's side: answer every line of standard input until it ends. What `handle` raises becomes an answer.

    Standard input and output are kept for the two of them: foreign code reads nothing, and what it prints goes to
    standard error.
    """
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for line in requests:
        try:
            answer = json.dumps({"result": handle(json.loads(line))})
        except Exception as error:  # foreign code raises what it likes; the parent decides what that means
            answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
        answers.write(answer + "\n")
        answers.flush()

"""The backend `monty`: pydantic-monty, a small Python interpreter in Rust, in worker processes of its own."""

from __future__ import annotations

import importlib
import os
import re
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from genenv.contracts.errors import MissingExtraError
from genenv.contracts.types import Json
from genenv.sandbox.outcome import Limits, NeedsMore, Outcome, Unavailable, crash, scored, timed_out


def _monty() -> ModuleType:
    try:
        return importlib.import_module("pydantic_monty")
    except ImportError:
        raise MissingExtraError("pydantic-monty", "sandbox", "running Python checkers") from None


def start_pool(workers: int) -> Any:
    """A started pool. Its threads do not survive a fork of this process, after which a new pool would hang."""
    pool = _monty().Monty(min_processes=1, max_processes=workers)
    if _MONTY_PROCESSES - {os.getpid()}:
        raise NeedsMore('its threads are lost in a forked process; use the start method "spawn"', True, "")
    _MONTY_PROCESSES.add(os.getpid())
    try:
        return pool.__enter__()
    except (RuntimeError, OSError) as error:
        raise Unavailable(str(error)) from None


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


class MontyBackend:
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
            pool = self.pool = self.pool or start_pool(self.workers)
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
                return timed_out(self.limits, "monty", printed.text)
            raise Unavailable(str(error), "check") from None
        except monty.MontyError as error:
            return self._failed(error.exception(), printed)
        except (RuntimeError, OSError) as error:  # a worker could not be started
            raise Unavailable(str(error)) from None
        return scored(value, "monty", printed.text)

    def _failed(self, error: BaseException, printed: _Printed) -> Outcome:
        why = "too much output" if printed.too_much else f"{type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, TimeoutError) and "time limit exceeded" in why:
            return timed_out(self.limits, "monty", printed.text)
        plain = ValueError | LookupError | ArithmeticError | AssertionError | RecursionError | MemoryError
        if printed.too_much or isinstance(error, plain):
            return crash(why, "monty", printed.text)
        raise NeedsMore(why, isinstance(error, NotImplementedError | ImportError), printed.text)

"""A worker process: answers, errors, death and silence, each told apart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from genenv.sandbox.processes import Worker, WorkerError

CODE = """
import os, sys, time
from genenv.sandbox.processes import serve

def handle(request):
    print("noise on standard output")
    if request == "read":
        return sys.stdin.read()
    if request == "crash":
        os._exit(3)
    if request == "hang":
        time.sleep(60)
    if request == "raise":
        raise ValueError("no such thing")
    return [request, len(request)]

if sys.argv[1:] == ["deaf"]:
    time.sleep(60)
serve(handle)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "odd_worker.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(p for p in sys.path if p)}")
    return "odd_worker"


def test_answers_and_errors_leave_the_worker_alive(module: str) -> None:
    worker = Worker(module)
    assert worker.ask("hi", 30) == ["hi", 2]
    with pytest.raises(WorkerError, match="ValueError: no such thing"):
        worker.ask("raise", 30)
    assert worker.ask("read", 30) == ""  # requests are not for the code that serves them
    long = "x" * 300_000  # more than a pipe holds, there and back
    assert worker.ask(long, 30) == [long, 300_000]
    worker.close()


@pytest.mark.parametrize(
    ("arguments", "request_", "timeout", "how"),
    [
        ((), "crash", 30, "died"),
        ((), "hang", 0.5, "gave no answer within 0.5 s"),
        (("deaf",), "x" * 300_000, 0.5, "took no request within 0.5 s"),
    ],
)
def test_a_worker_that_is_lost_is_gone(module: str, arguments: tuple, request_: str, timeout: float, how: str) -> None:
    worker = Worker(module, *arguments)
    if not arguments:
        worker.ask("hi", 30)
    with pytest.raises(WorkerError, match=how):
        worker.ask(request_, timeout)
    with pytest.raises(WorkerError, match="the worker is gone"):
        worker.ask("hi", 30)
    worker.close()

"""One test per attack on the sandbox, in both backends where the attack can be written for both."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genenv.contracts.errors import InputError, MissingExtraError
from genenv.sandbox import bubblewrap
from genenv.sandbox.outcome import Limits, Outcome
from genenv.sandbox.pool import Backend, Sandbox, available

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")
BOTH = [pytest.param("monty"), pytest.param("bubblewrap", marks=needs_bubblewrap)]
LIMITS = Limits(wall_s=0.6, memory_mb=256, file_mb=4, output_chars=1000)

HONEST = "def check(answer):\n    return answer.strip() == '42'\n"
ENDLESS = "def check(answer):\n    while True: pass\n"
SWALLOWS = """
def check(answer):
    while True:
        try:
            x = 1
        except BaseException:
            pass
"""
GENERATOR = "def numbers():\n    yield 42\ndef check(answer):\n    return int(answer) in numbers()\n"


@pytest.fixture(scope="module", params=BOTH)
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(LIMITS, request.param, workers=2) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def cpython() -> Iterator[Sandbox]:
    """One worker, so that whatever a check leaves behind would meet the next one."""
    with Sandbox(LIMITS, "bubblewrap", workers=1) as sandbox:
        yield sandbox


def function(body: str) -> str:
    return "def check(answer):\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())


def still_works(sandbox: Sandbox) -> None:
    assert sandbox.check(HONEST, "42").value == 1.0
    assert sandbox.check(HONEST, "43").value == 0.0


def descendants(root: int) -> set[int]:
    """Living processes below `root`, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: set[int] = set()
    while more := {p for p, parent in parents.items() if parent in found | {root}} - found:
        found |= more
    return found


# -- verdicts ------------------------------------------------------------------------------------------------------


def test_right_wrong_and_partly_right(box: Sandbox) -> None:
    right, wrong = box.check(HONEST, "42"), box.check(HONEST, "41")
    partly = box.check("def check(answer):\n    return 0.25\n", "x")
    assert (right.status, right.value, right.reason) == ("scored", 1.0, "right")
    assert (wrong.status, wrong.value, wrong.reason) == ("scored", 0.0, "wrong")
    assert (partly.status, partly.value, partly.reason) == ("scored", 0.25, "partly right")


@pytest.mark.parametrize(
    "value", ["1", "0", "None", "'True'", "[True]", "float('nan')", "float('inf')", "1.5", "-0.25"]
)
def test_verdict_of_the_wrong_kind_is_a_crash(box: Sandbox, value: str) -> None:
    outcome = box.check(f"def check(answer):\n    return {value}\n", "x")
    assert (outcome.status, outcome.value) == ("crash", None)
    assert "invalid verdict" in outcome.reason


def test_crash_names_the_exception_and_keeps_what_was_printed(box: Sandbox) -> None:
    outcome = box.check("def check(answer):\n    print('looking')\n    return int(answer) == 7\n", "seven")
    assert outcome.status == "crash"
    assert "ValueError" in outcome.reason
    assert outcome.output == "looking\n"


@pytest.mark.parametrize(
    "source", ["", "check = 3", "def check(answer:\n", "raise ValueError('no')", "import no_such_module"]
)
def test_broken_checker_is_a_crash_or_refused(box: Sandbox, source: str) -> None:
    try:
        outcome = box.check(source, "42")
    except InputError:
        assert box.backend == "monty"
        assert source == "import no_such_module"
    else:
        assert outcome.status == "crash"


# -- answers are data ----------------------------------------------------------------------------------------------

HOSTILE_ANSWERS = [
    "0) or (1 == 1",
    '5"); raise SystemExit(0)  #',
    '"""\nimport os; os._exit(0)',
    'type("E", (), {"__eq__": lambda s, o: True})()',
]


@pytest.mark.parametrize("answer", HOSTILE_ANSWERS)
def test_hostile_answer_is_wrong(box: Sandbox, answer: str) -> None:
    checker = 'def check(answer): return answer.strip() == "5"'
    assert (box.check(checker, answer).reason, box.check(checker, "5").value) == ("wrong", 1.0)
    assert box.check(checker, "6").value == 0.0


def test_answer_arrives_unchanged(box: Sandbox) -> None:
    answer = "'\"\\\n\r\t{}{{}}%s\0 \u2028é漢🙂 </tool_call> \\u0041"
    codes = [ord(c) for c in answer]
    assert box.check(f"def check(answer):\n    return [ord(c) for c in answer] == {codes}\n", answer).value == 1.0
    value = {"a": [1, None, 2.5, {"b": True}], "big": 10**30}
    assert box.check(f"def check(answer):\n    return answer == {value!r}\n", value).value == 1.0


def test_object_that_equals_anything_is_no_answer(box: Sandbox) -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class EqualText(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    assert box.check("def check(answer): return answer == '5'", Equal()).status == "crash"
    assert box.check("def check(answer): return answer == '5'", EqualText("6")).value == 0.0


def test_answer_is_plain_json_in_both_backends(box: Sandbox) -> None:
    assert box.check("def check(answer): return answer == [1, {'2': None}]", (1, {2: None})).value == 1.0


@pytest.mark.parametrize("answer", ["\ud800", float("nan"), "x" * 1_000_001])
def test_answer_that_is_no_data_costs_the_agent(box: Sandbox, answer: Any) -> None:
    assert box.check("def check(answer): return True", answer).status == "crash"


@pytest.mark.parametrize("name", ["answer", "answer_", "answer__", "value", "source"])
def test_global_of_the_checker_is_not_replaced_by_the_answer(box: Sandbox, name: str) -> None:
    checker = f"{name} = '42'\ndef check(given):\n    return given == {name}\n"
    assert box.check(checker, "6").value == 0.0
    assert box.check(checker, "42").value == 1.0


# -- time, memory, output, processes, files ------------------------------------------------------------------------


@pytest.mark.parametrize("source", [ENDLESS, SWALLOWS, "while True: pass"])
def test_endless_loop_times_out(box: Sandbox, source: str) -> None:
    outcome = box.check(source, "42")
    assert (outcome.status, outcome.value) == ("timeout", None)
    assert "checker timed out" in outcome.reason
    still_works(box)


@pytest.mark.parametrize(
    "source", ["while True: print('x' * 10000)", function("while True: print('x' * 10000)"), "print('x' * 30_000_000)"]
)
def test_output_flood_is_cut(box: Sandbox, source: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = box.check(source, "42")
    assert outcome.status == "crash"
    assert len(outcome.output) == LIMITS.output_chars + len(" [cut]")
    assert outcome.output.endswith("x [cut]")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024  # kilobytes
    still_works(box)


@needs_bubblewrap
def test_output_flood_that_swallows_the_error_times_out(cpython: Sandbox) -> None:
    outcome = cpython.check(function("while True:\n    try: print('x' * 10000)\n    except BaseException: pass"), "42")
    assert outcome.status == "timeout"
    assert len(outcome.output) <= LIMITS.output_chars + len(" [cut]")
    still_works(cpython)


@pytest.mark.parametrize("backend", BOTH)
def test_memory_bomb_dies_of_its_own_limit(backend: Backend) -> None:
    # little memory and much time: to fill it must not take longer than the check may
    with Sandbox(Limits(wall_s=10.0, memory_mb=96), backend, workers=1) as box:
        outcome = box.check(function("x = 'a' * 2**20\nwhile True: x += x"), "42")
        assert outcome.status == "crash"
        assert "MemoryError" in outcome.reason
        still_works(box)


@needs_bubblewrap
def test_memory_bomb_of_bytearrays(cpython: Sandbox) -> None:
    outcome = cpython.check(function("x = []\nwhile True: x.append(bytearray(10**8))"), "42")
    assert "MemoryError" in outcome.reason
    still_works(cpython)


def test_recursion_is_a_crash(box: Sandbox) -> None:
    assert "RecursionError" in box.check(function("return check(answer)"), "42").reason
    still_works(box)


@needs_bubblewrap
def test_memory_outside_the_address_space_is_denied(cpython: Sandbox) -> None:
    assert "PermissionError" in cpython.check(function("import os\nos.memfd_create('x')\nreturn True"), "42").reason


@needs_bubblewrap
def test_fork_bomb_starts_nothing(cpython: Sandbox) -> None:
    before = descendants(os.getpid())
    source = """
import os
while True:
    try:
        if os.fork():
            raise SystemExit("forked")
    except OSError:
        pass
"""
    assert cpython.check(function(source), "42").status == "timeout"
    assert descendants(os.getpid()) <= before | descendants(cpython._bubblewrap.idle[0].process.pid)
    still_works(cpython)


@needs_bubblewrap
@pytest.mark.parametrize(
    "body",
    [
        "import os\nos.fork()\nreturn True",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})\nreturn True",
        "import os, sys\nos.execv(sys.executable, ['python', '-c', ''])\nreturn True",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])\nreturn True",
        "import threading\nthreading.Thread(target=print).start()\nreturn True",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn True",
    ],
)
def test_no_process_no_thread_no_higher_limit(cpython: Sandbox, body: str) -> None:
    assert cpython.check(function(body), "42").status == "crash"
    still_works(cpython)


@needs_bubblewrap
def test_huge_file_stops_at_the_limit_and_leaves_nothing(cpython: Sandbox) -> None:
    host = set(os.listdir(tempfile.gettempdir()))
    body = "with open('big', 'wb') as f:\n    for _ in range(10_000): f.write(b'0' * 10**6)\nreturn True"
    outcome = cpython.check(function(body), "42")
    assert outcome.status == "crash"
    assert "File too large" in outcome.reason
    many = "for i in range(100):\n    with open(str(i), 'wb') as f: f.write(b'0' * 10**6)\nreturn True"
    assert "No space left" in cpython.check(function(many), "42").reason
    assert cpython.check(function("import os\nreturn os.listdir('/tmp') == []"), "42").value == 1.0
    assert set(os.listdir(tempfile.gettempdir())) <= host


# -- leaving without a verdict, and forging one --------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "import os\nos._exit(0)",
        "raise SystemExit(0)",
        "import sys\nsys.exit()",
        "raise KeyboardInterrupt",
        "exit()",
        "print('{\"value\": true}')\nraise SystemExit(0)",
    ],
)
def test_leaving_is_not_passing(box: Sandbox, body: str) -> None:
    outcome = box.check(function(body), "42")
    assert (outcome.status, outcome.value) == ("crash", None)
    assert box.check(body, "42").status == "crash"
    still_works(box)


@needs_bubblewrap
@pytest.mark.parametrize(
    "text", ['{"value": true}', '{"value": true, "output": "", "used": false}\n', "\0" * 16 + '{"value": true}']
)
def test_verdict_written_to_inherited_descriptors_counts_for_nothing(cpython: Sandbox, text: str) -> None:
    body = f"""
import os
for fd in range(256):
    try:
        os.write(fd, {text.encode()!r})
    except OSError:
        pass
"""
    gone = cpython.check(function(body + "os._exit(0)"), "42")
    assert (gone.status, gone.value) == ("crash", None)
    assert cpython.check(function(body + "return False"), "42").value != 1.0
    still_works(cpython)


@needs_bubblewrap
def test_no_descriptor_of_the_worker_is_open(cpython: Sandbox) -> None:
    body = """
import os
opened = []
for fd in range(256):
    try:
        os.fstat(fd)
        opened.append(fd)
    except OSError:
        pass
raise ValueError(opened)
"""
    assert "[0, 1, 2, 3]" in cpython.check(function(body), "42").reason


@needs_bubblewrap
@pytest.mark.parametrize(
    "body",
    [
        "import builtins\nbuiltins.type = lambda x: bool\nreturn 7",
        "import builtins, json\nbuiltins.type = lambda x: bool\njson.dumps = lambda x: '{\"value\": true}'\nreturn 7",
        "import os\nos.write = lambda fd, data: None\nos._exit = lambda code: None\nreturn 7",
        "import sys\nsys.stdout = None\nreturn 7",
        "import json\njson.loads = json.dumps = None\nreturn 7",
        "class E(BaseException):\n    def __str__(self): raise SystemExit(0)\nraise E",
    ],
)
def test_overwritten_builtins_forge_nothing(cpython: Sandbox, body: str) -> None:
    assert cpython.check(function(body), "42").status == "crash"
    still_works(cpython)


@needs_bubblewrap
def test_flood_of_the_verdict_channel_is_a_crash(cpython: Sandbox) -> None:
    assert cpython.check(function("import os\nwhile True: os.write(3, b'[' * 4096)"), "42").status == "crash"
    still_works(cpython)


@needs_bubblewrap
@pytest.mark.parametrize(
    "call",
    [
        "os.kill(1, 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        "os.kill(os.getppid(), 19)",
        "__import__('resource').prlimit(1, 7, (0, 0))",
        "os.setpriority(os.PRIO_PROCESS, 1, 19)",
        "os.sched_setaffinity(1, {0})",
        "os.pidfd_open(1)",
        "libc('ptrace', 16, 1, 0, 0)",
        "libc('unshare', 0x10000000)",
        "libc('shmget', 0, 4096, 0o1666)",
        "libc('process_vm_readv', 1, 0, 0, 0, 0, 0)",
        "libc('mount', 0, 0, 0, 0, 0)",
        "libc('personality', 0x0400000) and open('/worker.py', 'w')",
        "__import__('socket').socketpair()",
    ],
)
def test_worker_and_kernel_are_out_of_reach(cpython: Sandbox, call: str) -> None:
    source = f"""
import ctypes, os

def libc(name, *arguments):
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True

def check(answer):
    {call}
    return True
"""
    still_works(cpython)
    worker = cpython._bubblewrap.idle[0]
    outcome = cpython.check(source, "42")
    assert outcome.status == "crash", outcome
    assert "Error: [Errno" in outcome.reason
    still_works(cpython)
    assert cpython._bubblewrap.idle == [worker], "the attack cost a worker"


@needs_bubblewrap
def test_nothing_of_one_check_is_left_for_the_next(cpython: Sandbox) -> None:
    leave = """
import builtins, json, os, sys
open("/tmp/json.py", "w").write("raise SystemExit")
builtins.mark = json.mark = sys.mark = True
os.environ["MARK"] = "1"
for where in ("/worker.py", json.__file__, os.path.dirname(os.__file__) + "/mark.py", "/mark"):
    try:
        open(where, "a").write("#")
        raise SystemExit("could write " + where)
    except OSError:
        pass
def check(answer): return True
"""
    look = """
import builtins, json, os, sys
def check(answer):
    marks = [hasattr(x, "mark") for x in (builtins, json, sys)]
    return not any(marks) and "MARK" not in os.environ and not os.path.exists("/tmp/json.py")
"""
    assert cpython.check(leave, "42").reason == "right"
    assert cpython.check(look, "42").reason == "right"


# -- secrets and network -------------------------------------------------------------------------------------------


def test_environment_is_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENENV_TEST_TOKEN", "sesame")
    for backend in available_backends():
        with Sandbox(LIMITS, backend, workers=1) as fresh:
            for body in ("raise ValueError(os.getenv('GENENV_TEST_TOKEN'))", "raise ValueError(sorted(os.environ))"):
                outcome = fresh.check("import os\n" + function(body), "42")
                assert outcome.status == "crash"
                assert "sesame" not in outcome.reason
                assert "GENENV" not in outcome.reason


def available_backends() -> list[Backend]:
    return ["monty", "bubblewrap"] if shutil.which("bwrap") else ["monty"]


def test_files_are_not_visible(box: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame")
    readable = [str(secret), "/etc/passwd", "/proc/self/environ", "/proc/1/cmdline", __file__, "/dev/urandom"]
    for path in readable:
        outcome = box.check(function(f"raise ValueError(open({path!r}, 'rb').read(5))"), "42")
        assert outcome.status == "crash"
        assert any(error in outcome.reason for error in ("FileNotFoundError", "PermissionError")), outcome


@needs_bubblewrap
def test_packages_of_the_host_are_not_visible(cpython: Sandbox) -> None:
    body = "import os\nreturn not any(os.listdir(d) for d in [os.path.dirname(os.__file__) + '/site-packages'])"
    outcome = cpython.check(function(body), "42")
    assert outcome.value == 1.0 or "FileNotFoundError" in outcome.reason
    assert "ModuleNotFoundError" in cpython.check(function("import pytest\nreturn True"), "42").reason


@needs_bubblewrap
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX"])
def test_no_network(cpython: Sandbox, family: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        body = f"import socket\ns = socket.socket(socket.{family})\ns.connect(('127.0.0.1', {port}))\nreturn True"
        assert "PermissionError" in cpython.check(function(body), "42").reason
        with pytest.raises(BlockingIOError):
            server.accept()


@needs_bubblewrap
def test_network_namespace_is_empty(cpython: Sandbox) -> None:
    """The system-call filter is one wall, the namespace another: this looks behind the first."""
    assert "--unshare-net" in bubblewrap._command("bwrap", LIMITS)


# -- the same verdict every time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "return hash(answer) % 1000 / 1000",
        "return 'abcdefgh'.index(list(set(answer))[0]) / 8",
        "import random\nreturn random.random()",
    ],
)
@pytest.mark.parametrize("backend", BOTH)
def test_chance_is_fixed(backend: Backend, body: str) -> None:
    values = set()
    for _ in range(3):
        with Sandbox(LIMITS, backend, workers=1) as fresh:
            values |= {fresh.check(function(body), "abcdefgh").value for _ in range(2)}
    assert len(values) == 1
    assert None not in values


# -- which backend -------------------------------------------------------------------------------------------------


@needs_bubblewrap
@pytest.mark.parametrize(
    "source",
    [
        GENERATOR,
        "class A: pass\nclass B(A): pass\ndef check(answer):\n    return isinstance(B(), A)\n",
        "def check(answer):\n    return bytearray(answer.encode()) == bytearray(b'42')\n",
        "import heapq\ndef check(answer):\n    return True\n",
        "def check(answer):\n    try:\n        import heapq, json\n    except ImportError:\n        return False\n    return True\n",
    ],
)
def test_auto_goes_to_cpython_where_monty_ends(source: str) -> None:
    with Sandbox(LIMITS, workers=1) as auto:
        assert auto.check(HONEST, "42").backend == "monty"
        outcome = auto.check(source, "42")
        assert (outcome.backend, outcome.value) == ("bubblewrap", 1.0)


def test_plain_errors_are_final_in_monty() -> None:
    with Sandbox(LIMITS, workers=1) as auto:
        assert auto.check(function("return int(answer) == 7"), "seven").backend == "monty"


def test_without_bubblewrap_a_checker_beyond_monty_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with Sandbox(LIMITS, workers=1) as auto:
        assert auto.check(HONEST, "42").value == 1.0
        for source in ("def check(answer):\n    yield True\n", "import heapq\ndef check(answer): return True\n"):
            with pytest.raises(InputError, match="apt install bubblewrap") as refusal:
                auto.check(source, "42")
            assert "\n" not in str(refusal.value)
        # this may as well be the checker's mistake: no reason to stop the run
        assert auto.check(function("return answer.no_such_method()"), "42").status == "crash"
    with Sandbox(LIMITS, "bubblewrap") as only, pytest.raises(InputError, match="bwrap"):
        only.check(HONEST, "42")
    assert available()["bubblewrap"].startswith("unusable: ")


def test_without_monty_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with Sandbox(LIMITS) as auto, pytest.raises(MissingExtraError, match=r"genenv-rl\[sandbox\]"):
        auto.check(HONEST, "42")
    assert "genenv-rl[sandbox]" in available()["monty"]


def test_bubblewrap_that_may_not_make_namespaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exit\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        Sandbox(LIMITS, "bubblewrap") as box,
        pytest.raises(InputError, match="No permissions to create new namespace"),
    ):
        box.check(HONEST, "42")
    assert "No permissions" in available()["bubblewrap"]


def test_available_names_versions() -> None:
    state = available()
    assert state["monty"].startswith("pydantic-monty 1.")
    assert shutil.which("bwrap") is None or state["bubblewrap"].startswith("bubblewrap ")


@pytest.mark.parametrize("limits", [{"wall_s": 0.0}, {"memory_mb": -1}, {"file_mb": 0}])
def test_limits_must_be_positive(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be positive"):
        Limits(**limits)


# -- failures of the sandbox itself --------------------------------------------------------------------------------


@needs_bubblewrap
def test_one_failed_launch_is_retried_two_are_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, left = subprocess.Popen, [1]

    def flaky(*arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(11, "Resource temporarily unavailable")
        return launch(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", flaky)
    with Sandbox(LIMITS, "bubblewrap", workers=1) as box:
        assert box.check(HONEST, "42").value == 1.0
        box.close()
        left[0] = 2
        outcome = box.check(HONEST, "42")
        assert (outcome.status, outcome.value) == ("infrastructure", None)
        assert "Resource temporarily unavailable" in outcome.reason
        still_works(box)


def test_monty_that_does_not_start_is_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONTY_BIN", "/no/such/monty")
    with Sandbox(LIMITS, "monty") as box:
        assert box.check(HONEST, "42").status == "infrastructure"
        monkeypatch.delenv("MONTY_BIN")
        still_works(box)


@needs_bubblewrap
def test_worker_that_died_in_between_is_replaced(cpython: Sandbox) -> None:
    still_works(cpython)
    os.killpg(cpython._bubblewrap.idle[0].process.pid, signal.SIGKILL)
    cpython._bubblewrap.idle[0].process.wait()
    assert cpython.check(HONEST, "42").value == 1.0


@needs_bubblewrap
def test_check_that_takes_its_sandbox_down_twice_is_a_crash(monkeypatch: pytest.MonkeyPatch, cpython: Sandbox) -> None:
    monkeypatch.setattr(bubblewrap.SandboxProcess, "ask", lambda self, request: None)
    assert cpython.check(HONEST, "42").status == "crash"


@needs_bubblewrap
def test_interrupted_check_does_not_answer_the_next(monkeypatch: pytest.MonkeyPatch, cpython: Sandbox) -> None:
    still_works(cpython)

    def interrupted(self: Any, deadline: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bubblewrap.SandboxProcess, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cpython.check(HONEST, "42")
    assert cpython.check(HONEST, "43").value == 0.0


@needs_bubblewrap
def test_hard_limit_below_the_configured_one_is_used_with_one_warning() -> None:
    program = """
import json, resource, sys, warnings
from genenv.sandbox.pool import Limits, Sandbox
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    boxes = [Sandbox(Limits(memory_mb=1024), "bubblewrap", workers=1) for _ in range(2)]
    values = [box.check("def check(answer): return answer == '42'", "42").value for box in boxes]
    for box in boxes: box.close()
print(json.dumps([values, [str(w.message) for w in caught]]))
"""
    source = str(Path(bubblewrap.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    values, warned = json.loads(done.stdout)
    assert values == [1.0, 1.0]
    assert len(warned) == 1
    assert str(2**29) in warned[0]


# -- threads, processes, event loops -------------------------------------------------------------------------------

TIMED_OUT = f"checker timed out after {LIMITS.wall_s:g} s"
CASES = [
    (HONEST, "42", "right"),
    (ENDLESS, "42", TIMED_OUT),
    (SWALLOWS, "", TIMED_OUT),
]


def reasons(outcomes: list[Outcome]) -> list[str]:
    return [o.reason for o in outcomes]


def test_from_a_thread_pool(box: Sandbox) -> None:
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda case: box.check(case[0], case[1]), CASES))
    assert reasons(outcomes) == [c[2] for c in CASES]
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda i: box.check(HONEST, str(i)).value, range(32, 52)))
    assert values == [float(i == 42) for i in range(32, 52)]


def test_workers_outlive_the_thread_that_started_them(box: Sandbox) -> None:
    box.close()
    thread = threading.Thread(target=still_works, args=(box,))
    thread.start()
    thread.join()
    idle = list(box._bubblewrap.idle)
    still_works(box)
    assert box._bubblewrap.idle == idle


def from_a_process_pool(box: Sandbox, method: str) -> list[Outcome]:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context, initializer=_inherit, initargs=(box,)) as pool:
        return list(pool.map(_check_inherited, [c[0] for c in CASES], [c[1] for c in CASES]))


def test_from_a_spawned_process_pool(box: Sandbox) -> None:
    assert reasons(from_a_process_pool(box, "spawn")) == [c[2] for c in CASES]


@needs_bubblewrap
@pytest.mark.parametrize("backend", ["auto", "bubblewrap"])
def test_from_a_forked_process_pool(backend: Backend) -> None:
    with Sandbox(LIMITS, backend, workers=1) as box:
        still_works(box)
        assert box.check(GENERATOR, "42").backend == "bubblewrap"
        outcomes = from_a_process_pool(box, "fork")
        assert reasons(outcomes) == [c[2] for c in CASES]
        assert {o.backend for o in outcomes} == {"bubblewrap"}
        # the children let go of the workers that they inherited, without ending them
        idle = list(box._bubblewrap.idle)
        still_works(box)
        assert box.check(GENERATOR, "42").value == 1.0
        assert box._bubblewrap.idle == idle


def test_monty_in_a_forked_process_is_refused_instead_of_hanging() -> None:
    with Sandbox(LIMITS, "monty", workers=1) as box:
        still_works(box)
        with pytest.raises(InputError, match="spawn"):
            from_a_process_pool(box, "fork")
        still_works(box)


_inherited: list[Sandbox] = []


def _inherit(sandbox: Sandbox) -> None:
    _inherited[:] = [sandbox]


def _check_inherited(source: str, answer: str) -> Outcome:
    return _inherited[0].check(source, answer)


def test_from_async_code(box: Sandbox) -> None:
    async def run() -> list[Outcome]:
        return await asyncio.gather(*(box.check_async(source, answer) for source, answer, _ in CASES))

    assert reasons(asyncio.run(run())) == [c[2] for c in CASES]


@pytest.mark.parametrize("backend", BOTH)
def test_no_process_is_left_after_close(backend: Backend) -> None:
    before = descendants(os.getpid())
    with Sandbox(LIMITS, backend, workers=1) as box:
        assert box.check(ENDLESS, "42").status == "timeout"
        still_works(box)
        started = descendants(os.getpid()) - before
        assert started
        for pid in started if backend == "bubblewrap" else ():
            os.kill(pid, signal.SIGSTOP)  # a worker that hangs must go as well
    # a killed process may take a moment to be gone
    assert any(not alive(started) for _ in range(1000))


def alive(processes: set[int]) -> set[int]:
    found = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found

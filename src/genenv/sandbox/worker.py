"""The program that runs inside bubblewrap: forks one process per check and reports what became of it.

It stands alone (standard library only, no import of the package), because the sandbox shows it nothing else. It is
process 1 of its own process namespace, so no check can signal it and all processes die with it. Requests and replies
are JSON lines on the socket at descriptors 0 and 1; each check runs in a fresh fork that has neither of them.

What the fork gives up before the first line of the checker runs: every descriptor but an output file and the pipe for
its verdict, its resource limits, and, by a system-call filter, the means to start or touch another process, to open a
socket, to make shared memory, or to change a namespace. `RLIMIT_NPROC` alone would not do: the kernel ignores it for
user 0, whom a sandbox started by root still is outside its namespace.
"""

from __future__ import annotations

import bisect  # noqa: F401  (these are loaded so that a check which needs them does not pay for it in every fork)
import contextlib
import ctypes
import datetime  # noqa: F401
import difflib  # noqa: F401
import gc
import heapq  # noqa: F401
import json
import os
import random
import resource
import select
import signal
import statistics  # noqa: F401
import string  # noqa: F401
import struct
import sys
import time
import unicodedata  # noqa: F401
from typing import Any, NoReturn

MAX_MESSAGE = 4096
TMP = "/tmp"

# System calls that a check may not make, by name; numbers for (x86_64, aarch64), None where there is no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes: starting, signalling, reading, changing them
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    # channels that outlive a check, or memory that no limit counts
    "socket": (41, 198),
    "socketpair": (53, 199),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # namespaces, mounts and corners of the kernel that a checker has no business in
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of DENIED, AUDIT_ARCH_*


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def filter_instructions(machine: str) -> bytes:
    """Classic BPF for seccomp: another ABI kills the process, a denied call fails with EPERM, the rest is allowed."""
    column, arch = MACHINES[machine]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    kill, refuse, allow = 0x80000000, 0x00050001, 0x7FFF0000

    def op(code: int, if_true: int, if_false: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    program = [op(load, 0, 0, 4), op(equal, 1, 0, arch), op(give, 0, 0, kill), op(load, 0, 0, 0)]
    if machine == "x86_64":  # the x32 calls have the same architecture and other numbers
        program += [op(at_least, 0, 1, 0x40000000), op(give, 0, 0, kill)]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            program += [op(equal, 0, 1, number), op(give, 0, 0, refuse)]
    program.append(op(give, 0, 0, allow))
    return b"".join(program)


def evaluate(source: str, answer: Any) -> dict[str, Any]:
    """Run the checker on the answer. Everything that it raises is its own failure, SystemExit included."""
    try:
        random.seed(0)
        namespace: dict[str, Any] = {"__name__": "checker"}
        exec(compile(source, "<checker>", "exec", dont_inherit=True), namespace)
        if not callable(namespace.get("check")):
            return {"error": "it defines no function check(answer)"}
        value = namespace["check"](answer)
        if type(value) is bool or type(value) is float:
            return {"value": value}
        return {"error": f"invalid verdict of type {type(value).__name__}"}
    except BaseException as error:
        try:
            text = str(error)[:300]
        except BaseException:
            text = ""
        return {"error": f"{type(error).__name__}: {text}"}


def check_process(
    request: dict[str, Any],
    nonce: bytes,
    limits: dict[str, int],
    libc: ctypes.CDLL,
    program: FilterProgram,
    output: int,
    pipe: int,
) -> NoReturn:
    """The fork: lock the doors, run the checker, write nonce and verdict. Never returns.

    Text that is written blindly to the pipe lacks the nonce and counts for nothing.
    """
    try:
        # a session of its own: signalling "my process group" would otherwise reach bubblewrap itself
        os.setsid()
        os.dup2(os.memfd_create("input"), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(pipe, 3)
        os.closerange(4, 256)
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
        if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
            os._exit(70)
        write, dumps, leave = os.write, json.dumps, os._exit
        message = evaluate(request["source"], request["answer"])
        with contextlib.suppress(BaseException):  # a full output file, or a checker that replaced sys.stdout
            sys.stdout.flush()
        write(3, nonce + dumps(message).encode())
        leave(0)
    finally:
        os._exit(71)


def read_message(pipe: int, deadline: float) -> bytes | None:
    """What the check wrote to its pipe, cut at MAX_MESSAGE; None when the time is over first."""
    data = b""
    while len(data) < MAX_MESSAGE:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return None
        chunk = os.read(pipe, MAX_MESSAGE)
        if not chunk:
            break
        data += chunk
    return data


def run_check(
    request: dict[str, Any],
    wall: float,
    output_chars: int,
    limits: dict[str, int],
    libc: ctypes.CDLL,
    program: FilterProgram,
) -> dict[str, Any]:
    """One check from fork to burial. The reply has exactly one of `value`, `error`, `timeout`."""
    nonce = os.urandom(16)
    output = os.memfd_create("output")
    pipe, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        check_process(request, nonce, limits, libc, program, output, write_end)
    os.close(write_end)
    message = read_message(pipe, time.monotonic() + wall)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(pipe)
    printed = os.pread(output, 4 * output_chars, 0).decode(errors="replace")
    cut = os.fstat(output).st_size > 4 * output_chars or len(printed) > output_chars
    os.close(output)
    reply: dict[str, Any] = {"output": printed[:output_chars] + (" [cut]" if cut else "")}
    if message is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return {**reply, "timeout": True}
    try:
        verdict = json.loads(message.removeprefix(nonce)) if message.startswith(nonce) else {}
    except (ValueError, RecursionError):
        verdict = {}
    if isinstance(verdict, dict) and ("value" in verdict or "error" in verdict):
        return {**reply, **verdict}
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {os.WEXITSTATUS(status)}"
    return {**reply, "error": f"its process ended without a verdict ({how})"}


def lower(limits: dict[str, int]) -> list[str]:
    """Lower each limit to what may still be set here; says which ones."""
    lowered = []
    for name, value in limits.items():
        hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]
        if hard != resource.RLIM_INFINITY and hard < value:
            limits[name] = hard
            lowered.append(f"RLIMIT_{name} should be {value}, but the hard limit here is {hard}, which is used")
    return lowered


def main() -> None:
    options = json.loads(sys.argv[1])
    machine = os.uname().machine
    if machine not in MACHINES:
        sys.exit(f"no system-call filter for {machine}; known are {', '.join(MACHINES)}")
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = filter_instructions(machine)
    program = FilterProgram(len(instructions) // 8, instructions)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()
    os.write(1, json.dumps({"lowered": lower(options["limits"])}).encode() + b"\n")
    for line in sys.stdin.buffer:
        reply = run_check(json.loads(line), options["wall"], options["output_chars"], options["limits"], libc, program)
        # Files left behind would be seen by the next check: such a worker is thrown away with its file system.
        used = bool(os.listdir(TMP))
        data = memoryview(json.dumps({**reply, "used": used}).encode() + b"\n")
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()

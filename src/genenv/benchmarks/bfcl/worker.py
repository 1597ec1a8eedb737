"""BFCL's simulated APIs and its checker, in a process of their own.

A question brings a whole sample and all calls so far, and leaves nothing behind, so that a worker can be replaced at any
time and verdicts depend on no order. The official code does keep state, and both kinds are undone after each question:

- instances of the APIs, in globals of `multi_turn_utils` named after model, sample and class;
- constants of `long_context` that instances share: a booking there changes the card for every later sample.

The official code evaluates call strings. So each is read as syntax first, and only a call of a public method of the
sample's classes with literal arguments is written anew and handed over. Any other becomes `REFUSED`, a name that nothing
has: the official code answers it with an error, as it answers a function that does not exist.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import inspect
import math
import resource
from collections.abc import Collection

from genenv.contracts.types import Json
from genenv.reading.parsing import shorten
from genenv.sandbox.processes import serve

MODEL = "genenv"
REFUSED = "refused_call()"
MAX_CALL = 200_000
"""Characters of one call."""
MEMORY = 4 << 30
"""Bytes that the process may address: a model may ask for 9 ** 9 ** 9."""


def literal_call(text: str, names: Collection[str]) -> str:
    """The call in `text`, written anew. Raises ValueError, with what an agent is told, if it is anything else."""
    if len(text) > MAX_CALL:
        raise ValueError(f"a call of more than {MAX_CALL:,} characters")
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError("invalid syntax") from None
    if not isinstance(call, ast.Call):
        raise ValueError("not a function call")
    if not isinstance(call.func, ast.Name) or call.func.id not in names:
        raise ValueError(f"name {shorten(text.strip().partition('(')[0])!r} is not defined")
    positional = [_literal(value) for value in call.args]
    named = [f"{keyword.arg}={_literal(keyword.value)}" for keyword in call.keywords if keyword.arg]
    if len(named) < len(call.keywords):
        raise ValueError("the name of an argument is no identifier")
    return f"{call.func.id}({', '.join(positional + named)})"


def _literal(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=None | bool() | int() | str()):
            return repr(node.value)
        case ast.Constant(value=float(number)) if math.isfinite(number):
            return repr(number)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)) if type(number) in (int, float):
            return f"-{_literal(node.operand)}"
        case ast.List(elts=items):
            return f"[{', '.join(map(_literal, items))}]"
        case ast.Tuple(elts=items):
            return f"({''.join(_literal(item) + ', ' for item in items)})"
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in pairs if k is not None)}}}"
    raise ValueError("arguments must be literal values")


class Official:
    """The official code, with its own state undone after each question."""

    def __init__(self) -> None:
        from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
        from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import long_context

        self._modules = CLASS_FILE_PATH_MAPPING
        self._execute = multi_turn_utils.execute_multi_turn_func_call
        self._check = multi_turn_checker.multi_turn_checker
        self._globals = vars(multi_turn_utils)
        self._shared = [
            value for name, value in vars(long_context).items() if name.isupper() and isinstance(value, list | dict)
        ]
        self._intact = copy.deepcopy(self._shared)

    def answer(self, question: Json) -> Json:
        """`{"entry", "turns"}`: the results of the last step; with `"gold"`: the verdict on all turns.

        Turns are lists of steps, steps are lists of call strings. `refused` counts the calls that were not handed over.
        """
        try:
            if "gold" in question:
                return self._score(question["entry"], question["turns"], question["gold"])
            return self._run(question["entry"], [step for turn in question["turns"] for step in turn])
        finally:
            for name in [name for name in self._globals if name.startswith(f"{MODEL}_")]:
                del self._globals[name]
            for value, intact in zip(self._shared, self._intact, strict=True):
                if value != intact:
                    _restore(value, copy.deepcopy(intact))

    @functools.cache  # noqa: B019  (one object for the whole process)
    def _methods(self, class_name: str) -> frozenset[str]:
        """What the official code finds by its name: the public methods of a class."""
        kind = getattr(importlib.import_module(self._modules[class_name]), class_name)
        return frozenset(name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_"))

    def _names(self, entry: Json) -> frozenset[str]:
        return frozenset().union(*map(self._methods, entry["involved_classes"]))

    def _run(self, entry: Json, steps: list[list[str]]) -> Json:
        names = self._names(entry)
        results: list[str] = []
        where = entry["initial_config"], entry["involved_classes"], MODEL, entry["id"], "long_context" in entry["id"]
        for step in steps:
            calls, refusals = _read(step, names)
            results, _ = self._execute(calls, *where)
            for place, why in refusals.items():
                results[place] = f"Error during execution: {why}"
        return {"results": results}

    def _score(self, entry: Json, turns: list[list[list[str]]], gold: list[list[str]]) -> Json:
        names = self._names(entry)
        read = [[_read(step, names) for step in turn] for turn in turns]
        calls = [[step for step, _ in turn] for turn in read]
        verdict = self._check(calls, gold, entry, entry["id"].rpartition("_")[0], MODEL)
        return {
            "valid": verdict["valid"],
            "error": verdict.get("error_type", ""),
            "message": verdict.get("error_message", ""),
            "refused": sum(len(refusals) for turn in read for _, refusals in turn),
        }


def _read(step: list[str], names: Collection[str]) -> tuple[list[str], dict[int, str]]:
    """The calls of a step as they are handed over, and why some were refused, by place."""
    calls, refusals = [], {}
    for place, text in enumerate(step):
        try:
            calls.append(literal_call(text, names))
        except ValueError as error:
            calls.append(REFUSED)
            refusals[place] = str(error)
    return calls, refusals


def _restore(value: list[Json] | dict[str, Json], intact: Json) -> None:
    value.clear()
    if isinstance(value, dict):
        value.update(intact)
    else:
        value.extend(intact)


if __name__ == "__main__":
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already, or the system has none
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    serve(Official().answer)

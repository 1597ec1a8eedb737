"""An agent, or recorded predictions, on an official test set: every requested sample counts, whatever became of it.

With an output folder an evaluation can be stopped and goes on where it was: `records.jsonl` gets one line per sample as
each batch of episodes ends, `settings.json` says what they were played with. A sample's episode depends on the settings
and on the sample alone, so an evaluation that was stopped ends with the same records as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, cast

from genenv.benchmarks import make_benchmark
from genenv.benchmarks.base import Benchmark, Result
from genenv.contracts.engine import ChatFormat, Policy
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Json, Score, Task, Trajectory, canonical, content_id, derive_seed
from genenv.evaluation.own_files import MISSING, failures, read_outputs
from genenv.evaluation.table import COLUMNS
from genenv.loop.rollouts import PlayConfig, play, turns
from genenv.reading.parsing import parse_json_object

BATCH = 32
"""Episodes played at once, and lost when an evaluation is killed."""

Progress = Callable[[int, int, float], None]
"""(samples done, samples requested, mean score so far)."""


@dataclass(frozen=True)
class Options:
    """How a benchmark is played. `limit` samples, drawn by `seed`; `max_tokens` None is the benchmark's own number."""

    limit: int | None = None
    seed: int = 0
    temperature: float = 0.0
    max_tokens: int | None = None


@dataclass(frozen=True)
class Player:
    """Who plays; without a policy, chance. `context` is the number of tokens that the model takes, None if unknown."""

    name: str
    policy: Policy | None
    context: int | None = None


def sample_id(task: Task) -> str:
    return str(task.spec["id"])


def draw(tasks: Sequence[Task], limit: int | None, seed: int) -> list[Task]:
    """`limit` of the tasks at random, in the official order. A smaller draw with the same seed is part of a larger one."""
    if limit is None or limit >= len(tasks):
        return list(tasks)
    chosen = set(sorted(range(len(tasks)), key=lambda i: derive_seed(seed, "sample", sample_id(tasks[i])))[:limit])
    return [task for i, task in enumerate(tasks) if i in chosen]


def run(
    benchmark: Benchmark, player: Player, options: Options, out: Path | None, progress: Progress
) -> dict[str, Json]:
    """Play the benchmark and return the result as one document. Raises InputError; ends the benchmark's processes."""
    try:
        if player.policy is None and not hasattr(benchmark, "random_attempt"):
            raise InputError(f"{benchmark.name} does not say what is possible, so there is nothing to draw from")
        tasks = benchmark.tasks()
        chosen = draw(tasks, options.limit, options.seed)
        max_tokens = options.max_tokens or benchmark.max_tokens
        settings: dict[str, Json] = {
            "benchmark": benchmark.name,
            "protocol": benchmark.protocol,
            "subject": player.name,
            "limit": options.limit,
            "seed": options.seed,
            "temperature": options.temperature,
            "max_tokens": max_tokens,
            "max_turns": benchmark.max_turns,
            "samples": content_id([task.id for task in chosen]),
        }
        done = _resume(out, settings) if out is not None else {}
        config = PlayConfig(1, max_tokens, benchmark.max_turns, options.temperature, player.context, cut_ends=False)
        left = [(i, task) for i, task in enumerate(chosen) if sample_id(task) not in done]
        for start in range(0, len(left), BATCH):
            numbers, batch = zip(*left[start : start + BATCH], strict=True)
            if player.policy is None:
                results = [_by_chance(benchmark, task, options.seed) for task in batch]
            else:
                chat = player.policy.chat
                attempts = play(player.policy, chat, benchmark, batch, config, options.seed, numbers)
                results = [_result(task, group[0], chat) for task, group in zip(batch, attempts, strict=True)]
            if out is not None:
                _append(out / "records.jsonl", results)
            done |= {r.id: r for r in results}
            progress(len(done), len(chosen), sum(r.value for r in done.values()) / len(done))
        document = _document(benchmark, [done[sample_id(t)] for t in chosen], len(tasks))
        document |= {k: settings[k] for k in ("subject", "seed", "temperature", "max_tokens", "max_turns")}
        if len(chosen) < len(tasks):
            document["sample"] = f"{len(chosen)} of {len(tasks)} at random, seed {options.seed}"
        if out is not None:
            _write(out / "result.json", document)
        return document
    finally:
        benchmark.close()


def score_predictions(benchmark: Benchmark, path: Path) -> dict[str, Json]:
    """The result of recorded predictions, one JSONL record `{"id": ..., "output": ...}` or `{"id": ..., "error": "..."}`.

    What an output is says the benchmark. A sample without one counts as wrong. Raises InputError for unknown and repeated
    ids.
    """
    try:
        tasks = {sample_id(task): task for task in benchmark.tasks()}
        outputs = read_outputs(path, tasks, benchmark.name, object)
        results = []
        for key, task in tasks.items():
            output = outputs.get(key, Score(0.0, MISSING))
            score = output if isinstance(output, Score) else benchmark.replay(task, output)
            results.append(Result(key, task.family, score))
        lines = [{"id": r.id, "category": r.category, **asdict(r.score)} for r in results]
        return _document(benchmark, results, len(tasks)) | {"lines": lines}
    finally:
        benchmark.close()


def _document(benchmark: Benchmark, results: Sequence[Result], total: int) -> dict[str, Json]:
    figures = benchmark.summarize(results)
    return {
        "benchmark": benchmark.name,
        "protocol": benchmark.protocol,
        "score": figures["score"],
        "figures": {name: value for name, value in figures.items() if name != "score"},
        "samples": len(results),
        "of": total,
        **failures([r.score for r in results]),
        "cut_off": sum(r.stop == "length" for r in results),
        "missing": sum(r.score.reason == MISSING for r in results),
    }


def _result(task: Task, trajectory: Trajectory, chat: ChatFormat) -> Result:
    prompt = chat.render(Chat(task.messages, task.tools))
    written = turns(trajectory, chat)
    return Result(sample_id(task), task.family, trajectory.score, prompt, written, trajectory.stop)


class Chance(Protocol):
    """A benchmark with a baseline that draws from what is possible."""

    def random_attempt(self, task: Task, seed: int) -> Score:
        """The answer of the score is what was drawn."""
        ...


def _by_chance(benchmark: Benchmark, task: Task, seed: int) -> Result:
    score = cast(Chance, benchmark).random_attempt(task, seed)
    return Result(sample_id(task), task.family, score, output=score.answer)


def _record(result: Result) -> dict[str, Json]:
    record: dict[str, Json] = asdict(result)
    score = asdict(result.score)
    return record | {"score": score.pop("value")} | score


def _read(record: dict[str, Json]) -> Result:
    score = Score(record["score"], record["reason"], record["answer"], record["checks"])
    return Result(record["id"], record["category"], score, record["prompt"], record["output"], record["stop"])


def _append(path: Path, results: Sequence[Result]) -> None:
    with path.open("a", encoding="utf-8") as handle:
        handle.writelines(json.dumps(_record(r)) + "\n" for r in results)


def _write(path: Path, document: Json) -> None:
    """All of it or nothing: a killed process leaves no half file."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    draft.replace(path)


def _resume(out: Path, settings: dict[str, Json]) -> dict[str, Result]:
    """The records that `out` holds, made ready for more. Raises InputError if they were played with other settings."""
    out.mkdir(parents=True, exist_ok=True)
    path, records = out / "settings.json", out / "records.jsonl"
    try:
        before = parse_json_object(path.read_text("utf-8")) if path.exists() else None
    except ValueError as error:
        raise InputError(f"{path}: {error}: choose another --out") from None
    if before is None and records.exists():
        raise InputError(f"{records} has no settings.json beside it: choose another --out")
    if before is None:
        _write(path, settings)
    elif changed := [k for k in settings if canonical(before.get(k)) != canonical(settings[k])]:
        what = ", ".join(f"{k} {before.get(k)}, now {settings[k]}" for k in changed)
        raise InputError(f"{out} holds an evaluation with other settings ({what}): choose another --out")
    if not records.exists():
        return {}
    whole = records.read_bytes().rpartition(b"\n")
    if whole[2]:
        records.write_bytes(whole[0] + whole[1])  # a line that was being written when the process ended
    results = {}
    for number, line in enumerate(whole[0].splitlines(), 1):
        try:
            result = _read(json.loads(line))
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{records}:{number}: not a record of an evaluation: choose another --out") from None
        results[result.id] = result
    return results


def open_all(data: Path | None, passages: Path | None) -> tuple[dict[str, Benchmark], dict[str, str]]:
    """The benchmarks that can be played, and why the others cannot. Files are in `data`/NAME, else where each looks itself."""
    found: dict[str, Benchmark] = {}
    reasons: dict[str, str] = {}
    for name in COLUMNS:
        try:
            folder = data / name if data is not None and (data / name).is_dir() else None
            benchmark = make_benchmark(name, folder, passages if name == "bamboogle" else None)
            benchmark.tasks()
        except InputError as error:
            reasons[name] = str(error)
        else:
            found[name] = benchmark
    return found, reasons

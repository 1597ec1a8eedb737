"""reasoning_gym: the puzzles of the package reasoning-gym, with their own verifiers. A family is a data set.

A specification is `{"dataset": NAME, "seed": N, "levels": {ATTRIBUTE: LEVEL}}`: the levels are places in the data set's own
curriculum. Question, answer and verdict are the library's, which runs in a worker process, since some puzzles take for ever
to make, and the verifiers read hostile text. docs/reasoning-gym.md says which data sets pass the gate.

Nine of the verifiers evaluate the agent's text. Three of these data sets are refused; the answers to the other six are
let through only if they have no characters but those of a list or a sum.

Scoring: the verifier's figure if it is at least `threshold`, else 0. Many verifiers pay a little for any answer, or a part
for an answer that contains the right one, which the default, 1, does not. A verifier that fails or hangs on an answer
gives 0 with that reason if it works on the reference, for then the answer is at fault; else the attempt is unscored.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import itertools
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genenv.contracts.domain import SpecError, Step, fault, object_schema, order_line
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Chat, Direction, Json, Message, Origin, Score, Seed, Task, canonical, derive_seed
from genenv.domains.python_checker import altered
from genenv.sandbox.processes import AnswerError, Worker, WorkerError

WORKER = "genenv.domains.reasoning_gym.worker"
PACKAGE = "reasoning_gym"
START_TIMEOUT = 120.0
SEEDS = 1_000_000
"""Seeds below are for training, as many above for evaluation."""
DRAWS = 20
"""Random specifications of a data set of which one must be a task."""
KEPT = 4096
REFUSED = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})
"""Their verifiers give the agent's text to `eval`, by way of sympy's `parse_expr`."""
_SUM = re.compile(r"(?!.*\*\*)[0-9+\-*/() ]*")
_LIST = re.compile(r"""[\w\s,\[\]'"-]*""")
HARMLESS: Mapping[str, re.Pattern[str]] = {
    "countdown": _SUM,
    "puzzle24": _SUM,
    "binary_matrix": _LIST,
    "n_queens": _LIST,
    "spiral_matrix": _LIST,
    "string_insertion": _LIST,
}
"""So do these, whose right answers need neither names with calls nor powers: other characters never get there."""
OPEN, CLOSE = "<answer>", "</answer>"

AGENT_INSTRUCTIONS = f"Solve the task. Write the final answer, and nothing but the answer, between {OPEN} and {CLOSE}."
SIMULATOR_INSTRUCTIONS = (
    "You choose puzzles for an agent. Answer with one JSON object: "
    '"dataset" as in the example, "seed" is any number, "levels" says how hard the puzzle is, 0 is easiest.'
)


class PuzzleSpec(BaseModel):
    """What the simulator writes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    dataset: str
    seed: int = Field(ge=0, lt=2 * SEEDS)
    levels: dict[str, int] = Field(default_factory=dict)


class ReasoningGym:
    """The domain. `max_level` is the highest level used, `timeout` the seconds for one puzzle or one verdict."""

    name = "reasoning_gym"
    max_turns = 1

    def __init__(
        self, datasets: Sequence[str], max_level: int = 4, threshold: float = 1.0, timeout: float = 30.0
    ) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise MissingExtraError("reasoning-gym", "reasoning-gym", "domain.name = reasoning_gym")
        if not datasets or not 0 < threshold <= 1 or timeout <= 0 or max_level < 0:
            raise InputError("reasoning_gym: expected datasets, max_level >= 0, 0 < threshold <= 1 and timeout > 0")
        if refused := sorted(REFUSED & set(datasets)):
            raise InputError(f"reasoning_gym: datasets: {', '.join(refused)}: the verifier runs answers as Python code")
        self.families = tuple(datasets)
        self._threshold = threshold
        self._timeout = timeout
        self._worker: Worker | None = None
        self._entry = functools.lru_cache(KEPT)(self._made)
        curricula = self._curricula()
        self._levels: Mapping[str, Mapping[str, list[str]]] = {
            name: {key: values[: max_level + 1] for key, values in attributes.items()}
            for name, attributes in curricula.items()
        }

    def _curricula(self) -> Json:
        try:
            found = self._ask({"curricula": self.families})
        except WorkerError as error:
            self.close()
            raise InputError(f"reasoning_gym: the library does not start: {error}") from None
        if unknown := [d for d in self.families if d not in found]:
            self.close()
            raise InputError(f"reasoning_gym: datasets: no data set {', '.join(unknown)} in the installed version")
        return found

    def _ask(self, request: Json) -> Json:
        """Raises WorkerError; the next request gets a new worker where this one is lost."""
        try:
            if self._worker is None:
                self._worker = Worker(WORKER)
                self._worker.ask({"curricula": []}, START_TIMEOUT)
            return self._worker.ask(request, self._timeout)
        except AnswerError:
            raise
        except WorkerError:
            self._worker = None
            raise

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def random_spec(self, dataset: str, rng: random.Random) -> PuzzleSpec:
        """Levels and seed drawn evenly; the library may refuse the combination."""
        levels = {key: rng.randrange(len(values)) for key, values in self._levels[dataset].items()}
        return PuzzleSpec(dataset=dataset, seed=rng.randrange(SEEDS), levels=levels)

    def _stream(self, seed: int, first: int, origin: Origin) -> Iterator[Task]:
        rng = random.Random(seed)
        for dataset in itertools.cycle(self.families):
            refused = ""
            for _ in range(DRAWS):
                spec = self.random_spec(dataset, rng)
                try:
                    task = self._task(spec.model_copy(update={"seed": spec.seed + first}), origin)
                except SpecError as error:
                    refused = str(error)
                    continue
                yield task
                break
            else:
                raise InputError(f"reasoning_gym: {DRAWS} random puzzles of {dataset} are no tasks: {refused}")

    def seeds(self, count: int, seed: int) -> list[Seed]:
        tasks = itertools.islice(self._stream(derive_seed(seed, "seeds"), 0, "seed"), count)
        return [Seed(t.family, t.spec) for t in tasks]

    def heldout(self, count: int, seed: int) -> list[Task]:
        return list(itertools.islice(self._stream(derive_seed(seed, "heldout"), SEEDS, "heldout"), count))

    # -- the simulator's side ----------------------------------------------------------------------------------

    def simulator_chat(
        self,
        example: Seed,
        success: float | None,
        direction: Direction,
        seed: int,
        target: Seed | None = None,
        edit: bool = False,
    ) -> tuple[Chat, Json]:
        family = example.family if target is None else target.family
        levels = self._levels[family]
        values = [f"{key}: level 0 to {len(v) - 1} is {', '.join(v)}." for key, v in levels.items()]
        text = "\n".join(
            [f"Example: {canonical(dict(example.spec))}", *values, order_line(family, success, direction, edit)]
        )
        properties: dict[str, Json] = {
            "dataset": {"const": family},
            "seed": {"type": "integer", "minimum": 0, "maximum": SEEDS - 1},
            "levels": object_schema(
                {k: {"type": "integer", "minimum": 0, "maximum": len(v) - 1} for k, v in levels.items()}
            ),
        }
        return Chat((Message("system", SIMULATOR_INSTRUCTIONS), Message("user", text))), object_schema(properties)

    def direction(self, example: Seed, other: Seed) -> Direction:
        """By the sum of the levels, within one data set."""
        if example.family != other.family:
            return "similar"
        one, two = (sum(s.spec["levels"].values()) for s in (example, other))
        return "harder" if two > one else "easier" if two < one else "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        try:
            parsed = PuzzleSpec.model_validate(spec)
        except ValidationError as error:
            raise SpecError("schema", fault(error)) from None
        if parsed.dataset not in self._levels:
            near = difflib.get_close_matches(parsed.dataset, self.families, n=1) or self.families
            raise SpecError("schema", f"dataset: unknown data set {parsed.dataset[:60]!r}, for example {near[0]}")
        if parsed.seed >= SEEDS:
            raise SpecError("schema", f"seed: those from {SEEDS} are for evaluation")
        known = self._levels[parsed.dataset]
        if parsed.levels.keys() != known.keys():
            raise SpecError("schema", f"levels: expected {', '.join(known) or 'none'}")
        for key, level in parsed.levels.items():
            if not 0 <= level < len(known[key]):
                raise SpecError("schema", f"levels.{key}: expected 0 to {len(known[key]) - 1}, found {level}")
        return self._task(parsed, "simulator")

    def _task(self, spec: PuzzleSpec, origin: Origin) -> Task:
        whole = spec.model_dump()
        question, answer = self._entry(canonical(whole))
        return Task(
            family=spec.dataset,
            messages=(Message("system", AGENT_INSTRUCTIONS), Message("user", question)),
            tools=(),
            target={"answer": answer},
            spec=whole,
            origin=origin,
        )

    def _made(self, spec: str) -> tuple[str, str]:
        """Question and answer of a specification in JSON. Raises SpecError."""
        try:
            entry = self._ask({"entry": json.loads(spec)})
        except AnswerError as error:
            raise SpecError("schema", f"the library refuses it: {error}") from None
        except WorkerError as error:
            raise SpecError("unscored", str(error)) from None
        if not isinstance(entry["answer"], str) or not entry["answer"]:
            raise SpecError("reference_fails", "the library gives no answer to this puzzle")
        return entry["question"], entry["answer"]

    # -- the agent's side --------------------------------------------------------------------------------------

    def reference(self, task: Task) -> Sequence[str]:
        return [f"{OPEN}{task.target['answer']}{CLOSE}"]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """One character changed, in a number the first digit, for some verifiers round; and both answers at once."""
        right: str = task.target["answer"]
        digit = re.search("[0-9]", right)
        if digit is None:
            wrong = altered(right, random.Random(task.id))
        else:
            wrong = f"{right[: digit.start()]}{(int(digit[0]) + 1) % 10}{right[digit.end() :]}"
        return [[f"{OPEN}{text}{CLOSE}"] for text in (wrong, f"{right} or {wrong}")]

    def episode(self, task: Task) -> PuzzleEpisode:
        return PuzzleEpisode(self, task)

    def score(self, task: Task, answer: str) -> Score:
        """The verdict on an answer."""
        if (harmless := HARMLESS.get(task.family)) is not None and not harmless.fullmatch(answer):
            return Score(0.0, "wrong, it has characters that no right answer has", answer)
        try:
            value = self._verdict(task, answer)
        except WorkerError as error:
            if answer != task.target["answer"] and self._right(task):
                return Score(0.0, f"the verifier fails on this answer: {error}", answer)
            return Score(None, f"environment error: {error}", answer)
        if value < self._threshold:
            return Score(0.0, f"wrong, the verifier says {value:g}", answer)
        return Score(value, "right" if value == 1 else f"the verifier says {value:g}", answer)

    def _verdict(self, task: Task, answer: str) -> float:
        request = {"score": dict(task.spec), "question": task.messages[-1].content, "answer": answer}
        value = float(self._ask(request))
        if not 0 <= value <= 1:
            raise WorkerError(f"the verifier says {value:g}, which is no share")
        return value

    def _right(self, task: Task) -> bool:
        try:
            return self._verdict(task, task.target["answer"]) >= self._threshold
        except WorkerError:
            return False


@dataclass(frozen=True)
class PuzzleEpisode:
    """One turn: the library judges the answer."""

    domain: ReasoningGym
    task: Task

    def step(self, text: str) -> Step:
        return Step(score=self.domain.score(self.task, final_answer(text)))

    def close(self) -> None:
        """Nothing to release: the worker is not the episode's."""


def final_answer(text: str) -> str:
    """What stands in the last pair of tags, all of the text if there is none."""
    _, tag, rest = text.rpartition(OPEN)
    return (rest.partition(CLOSE)[0] if tag else text).strip()

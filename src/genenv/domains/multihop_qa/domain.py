"""multihop_qa: answer a question by looking up one fact after the other.

The simulator's specification is a small world: where the question starts, the hops that lead to the answer, and other
facts that mislead. Question and passages are rendered from it, so a question can neither omit nor contradict a fact, and
its answer is computed by a query over all facts. All names are made up: what is not looked up cannot be known. A family
is a number of hops. Prompt, search tool and reading of answers are those of the Bamboogle benchmark with search.

Scoring: 1 if the answer equals the computed one after SQuAD's normalisation, else 0. Not by containment as the benchmark
scores: there the gold is one wording of many, here it is a name, and an answer that lists all names must earn nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genenv.benchmarks.bamboogle import INSTRUCTIONS, SEARCHING, TOOL, TURNS, covers, look_up, read_answer
from genenv.benchmarks.search import Passages, normalized
from genenv.contracts.domain import SpecError, Step, fault, object_schema, order_line
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Direction, Json, Message, Origin, Score, Seed, Task, derive_seed
from genenv.domains.multihop_qa.facts import (
    ALL,
    FROM,
    KINDS,
    NAME,
    RELATIONS,
    TRAIN,
    Fact,
    Names,
    question,
    read,
    sentence,
    walk,
)
from genenv.reading.parsing import Call, format_tool_calls, shorten

MAX_HOPS = 6
MAX_OTHERS = 30
FEWEST_OTHERS = 2
FOUND = 3
"""Passages that one search returns at most: the observations stay short."""

SIMULATOR_INSTRUCTIONS = (
    "You write questions for an agent that searches. Answer with one JSON object: "
    '"start" is a name, "hops" lead from it to the answer, each a relation and the next name, "others" are facts that '
    "mislead. Invent the names. Relations:\n"
    + "\n".join(
        f"{kind}: " + ", ".join(f"{name} {RELATIONS[name].object}" for name in names) for kind, names in FROM.items()
    )
)


class QaSpec(BaseModel):
    """What the simulator writes: a hop is [relation, object], another fact [subject, relation, object]."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    start: str
    hops: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(min_length=1, max_length=MAX_HOPS)
    others: list[Annotated[list[str], Field(min_length=3, max_length=3)]] = Field(
        min_length=FEWEST_OTHERS, max_length=MAX_OTHERS
    )


class MultihopQa:
    """The domain. Seeds have up to `hops` hops and between three and `others` other facts."""

    name = "multihop_qa"

    def __init__(self, hops: int = 4, others: int = 5) -> None:
        if not 1 <= hops <= MAX_HOPS:
            raise InputError(f"multihop_qa: hops {hops}: expected 1 to {MAX_HOPS}")
        if not 3 <= others <= MAX_OTHERS:
            raise InputError(f"multihop_qa: others {others}: expected 3 to {MAX_OTHERS}")
        self.families = tuple(f"{n}-hop" for n in range(1, hops + 1))
        self.others = others
        self._indexed: tuple[Task, Passages] | None = None

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def random_spec(self, hops: int, names: Names, rng: random.Random) -> dict[str, Json]:
        """A specification with `hops` hops that `build` mostly takes; names that collide are its affair."""
        kind = rng.choice(KINDS)
        entities = [(names.draw(kind, rng), kind)]
        chain = []
        for _ in range(hops):
            relation = rng.choice(FROM[kind])
            kind = RELATIONS[relation].object
            entities.append((names.draw(kind, rng), kind))
            chain.append([relation, entities[-1][0]])
        path = [relation for relation, _ in chain]
        stated = {(name, relation) for (name, _), relation in zip(entities, path, strict=False)}
        others: list[list[str]] = []
        count = rng.randint(3, self.others)
        while len(others) < count:
            subject, relation, name = _other(entities, path, names, rng)
            if (subject, relation) not in stated:
                stated.add((subject, relation))
                others.append([subject, relation, name])
                entities.append((subject, RELATIONS[relation].subject))
        return {"start": entities[0][0], "hops": chain, "others": others}

    def _stream(self, names: Names, seed: int, origin: Origin) -> Iterator[Task]:
        rng = random.Random(seed)
        while True:
            for hops in range(1, len(self.families) + 1):
                while True:
                    try:
                        task = self._build(self.random_spec(hops, names, rng), origin)
                    except SpecError:
                        continue  # a name or a relation twice by chance
                    break
                yield task

    def seeds(self, count: int, seed: int) -> list[Seed]:
        stream = self._stream(TRAIN, seed, "seed")
        return [Seed(t.family, t.spec) for t, _ in zip(stream, range(count), strict=False)]

    def heldout(self, count: int, seed: int) -> list[Task]:
        """Tasks over all names, of which a sixth is in no seed."""
        stream = self._stream(ALL, derive_seed("heldout", seed), "heldout")
        return [t for t, _ in zip(stream, range(count), strict=False)]

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
        shown = json.dumps(dict(example.spec), separators=(",", ":"), ensure_ascii=False)
        text = f"Example: {shown}\n{order_line(example.family, success, direction, edit)}"
        chat = Chat((Message("system", SIMULATOR_INSTRUCTIONS), Message("user", text)))
        return chat, self._edit_schema(example.spec, direction) if edit else self._spec_schema(example.spec)

    def _spec_schema(self, example: Mapping[str, Json]) -> Json:
        """JSON schema of a specification of the example's family, properties in the order they are to be written."""
        others = {"type": "array", "items": _tuple(_NAME, _RELATION, _NAME), "minItems": 3, "maxItems": self.others}
        return object_schema({"start": _NAME, "hops": _hops(len(example["hops"])), "others": others})

    def _edit_schema(self, example: Mapping[str, Json], direction: Direction) -> Json:
        """The example with other hops, one more or fewer where that is wished and can be, else with another start.

        Never with other facts that mislead: they change no question, and the gate takes that for the same task.
        """
        same = {field: {"const": example[field]} for field in QaSpec.model_fields}
        count = len(example["hops"])
        wanted = count + {"harder": 1, "similar": 0, "easier": -1}[direction]
        wanted = min(max(wanted, 1), len(self.families))
        variants = [object_schema({**same, "hops": _hops(wanted)})]
        if wanted == count:
            variants.append(object_schema({**same, "start": _NAME}))
        return {"anyOf": variants}

    def direction(self, example: Seed, other: Seed) -> Direction:
        """By the number of hops, then of other facts."""
        hops, others = (len(other.spec[field]) - len(example.spec[field]) for field in ("hops", "others"))
        change = hops or others
        return "harder" if change > 0 else "easier" if change < 0 else "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        return self._build(spec, "simulator")

    def _build(self, spec: Mapping[str, Json], origin: Origin) -> Task:
        try:
            parsed = QaSpec.model_validate(spec)
        except ValidationError as error:
            raise SpecError("schema", fault(error)) from None
        if len(parsed.hops) > len(self.families):
            raise SpecError("schema", f"{len(parsed.hops)} hops, at most {len(self.families)} are asked for")
        subjects = [parsed.start, *(name for _, name in parsed.hops)]
        chain = [Fact(subject, *hop) for subject, hop in zip(subjects, parsed.hops, strict=False)]
        facts = [*chain, *(Fact(*other) for other in parsed.others)]
        path = [fact.relation for fact in chain]
        visited = walk(facts, parsed.start, path)
        text = question(parsed.start, path)
        for name in visited[1:]:
            if covers(normalized(text), normalized(name)):
                raise SpecError("leak", f"{name} stands in the question")
        return Task(
            family=f"{len(path)}-hop",
            messages=(Message("system", INSTRUCTIONS + SEARCHING), Message("user", text)),
            tools=(TOOL,),
            # sorted, so that the place of a passage gives nothing away
            target={"answer": visited[-1], "passages": sorted(map(sentence, facts))},
            spec=dict(spec),
            origin=origin,
        )

    # -- the agent's side --------------------------------------------------------------------------------------

    def reference(self, task: Task) -> Sequence[str]:
        """Reads its way along the path; where a search does not return the needed passage it ends without an answer."""
        search = self._search(task)
        turns, name = [], task.spec["start"]
        for relation, _ in task.spec["hops"]:
            query = f"{name} {relation}"
            turns.append(search_call(query))
            told = (read(passage, name, relation) for passage in search(query))
            name = next((found for found in told if found), None)
            if name is None:
                return turns
        return [*turns, answer_turn(name)]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """Every other name, the answer with a letter changed, doubled or among all names, nothing, and only searches."""
        answer: str = task.target["answer"]
        names = list(dict.fromkeys(_names(task.spec)))
        last = "x" if answer[-1] != "x" else "y"
        wrong = [name for name in names if name != answer]
        wrong += ["", answer[:-1] + last, f"{answer} {answer}", ", ".join(names), f"{names[0]} or {answer}"]
        return [*([answer_turn(text)] for text in wrong), [search_call(task.spec["start"])] * TURNS]

    def _search(self, task: Task) -> Passages:
        # the gate and the members of a group ask for the same task again and again
        if self._indexed is None or self._indexed[0] is not task:
            self._indexed = task, Passages(task.target["passages"], FOUND)
        return self._indexed[1]

    def episode(self, task: Task) -> QaEpisode:
        return QaEpisode(self._search(task), task.target["answer"])


class QaEpisode:
    """Up to TURNS turns: a turn without a call is the answer."""

    def __init__(self, search: Passages, answer: str) -> None:
        self._search = search
        self._answer = answer
        self._turns = 0

    def step(self, text: str) -> Step:
        self._turns += 1
        result = look_up(self._search, text)
        if result is None:
            return Step(score=self._score(text))
        if self._turns >= TURNS:
            return Step(score=Score(0.0, "out of turns"))
        return Step((Message("tool", result),))

    def _score(self, text: str) -> Score:
        said, error = read_answer(text)
        if said is None:
            return Score(0.0, f"malformed: {error}")
        right = normalized(said) == normalized(self._answer)
        return Score(float(right), "right" if right else f"{shorten(said)!r} is not the answer", said)

    def close(self) -> None:
        """Nothing to release."""


def search_call(query: str) -> str:
    """The turn that searches."""
    return format_tool_calls([Call("search", {"query": query})])


def answer_turn(answer: str) -> str:
    """The turn that answers."""
    return f"<answer>{answer}</answer>"


def _other(known: Sequence[tuple[str, str]], path: Sequence[str], names: Names, rng: random.Random) -> list[str]:
    """A fact that misleads: another one of a known name, or the relation of a hop from another name."""
    if rng.random() < 0.6:
        subject, kind = rng.choice(known)
        relation = rng.choice(FROM[kind])
    else:
        relation = rng.choice(path)
        subject = names.draw(RELATIONS[relation].subject, rng)
    return [subject, relation, names.draw(RELATIONS[relation].object, rng)]


def _names(spec: Mapping[str, Json]) -> Iterator[str]:
    """All names of a specification, the visited ones first."""
    yield spec["start"]
    for _, name in spec["hops"]:
        yield name
    for subject, _, name in spec["others"]:
        yield from (subject, name)


_NAME: Json = {"type": "string", "pattern": f"^{NAME}$"}
"""The pattern bounds the length too: a rambling simulator ends its string."""
_RELATION: Json = {"enum": list(RELATIONS)}


def _tuple(*items: Json) -> Json:
    return {"type": "array", "prefixItems": list(items), "items": False, "minItems": len(items), "maxItems": len(items)}


def _hops(count: int) -> Json:
    return {"type": "array", "items": _tuple(_RELATION, _NAME), "minItems": count, "maxItems": count}

"""Text of `tool_use`: requests with their calls, and specifications.

- agent: a request and its calls. Each call is damaged with probability DAMAGE (an argument dropped, changed or added,
  a wrong function, a missing call), so that the model is uncertain where an agent can be wrong and reinforcement
  learning has something to choose from. A base that has only seen perfect answers is always right or always wrong.
- simulator: an example specification and a direction, answered by a new specification.

A third of both uses made-up functions (random names, parameters and values), so that the model learns to read
declarations and to copy rather than to recite the catalogue. The catalogue's held-out functions never occur.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from base_text import Example, Turn

from genenv.contracts.domain import SpecError
from genenv.contracts.types import Chat, Json, Seed
from genenv.domains.tool_use.catalogue import builtin_catalogue
from genenv.domains.tool_use.domain import ToolUse
from genenv.domains.tool_use.functions import Function, random_value
from genenv.domains.tool_use.spec import MAX_CALLS
from genenv.reading.parsing import Call, format_tool_calls

WORDS: tuple[str, ...] = ()
"""The vocabulary is trained on this text: no word has to be added to it."""
DAMAGE = 0.5
MADE_UP = 0.35
SIMULATOR = 0.35


def made_up_word(rng: random.Random) -> str:
    return "".join(
        rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "s", "l"))
        for _ in range(rng.randint(1, 3))
    )


def made_up_catalogue(rng: random.Random, words: list[str]) -> dict[str, Function]:
    """Eight functions with random names, half of their words real, without a wording of their own."""

    def word() -> str:
        return rng.choice(words) if rng.random() < 0.5 else made_up_word(rng)

    def parameter() -> dict[str, Json]:
        kind = rng.random()
        if kind < 0.45:
            names = [" ".join(word() for _ in range(rng.choice((1, 1, 2)))) for _ in range(6)]
            return {"type": "string", "examples": [n.title() if rng.random() < 0.5 else n for n in names]}
        if kind < 0.65:
            return {"type": "integer", "minimum": 0, "maximum": rng.choice((10, 100, 1000))}
        if kind < 0.75:
            return {"type": "number", "minimum": 0, "maximum": 100}
        if kind < 0.87:
            return {"type": "string", "enum": list(dict.fromkeys(word() for _ in range(3)))}
        return {"type": "string", "format": "date"}

    catalogue: dict[str, Function] = {}
    while len(catalogue) < 8:
        name = f"{word()}_{word()}"
        properties = {word(): parameter() for _ in range(rng.randint(1, 4))}
        required = [n for n in properties if rng.random() < 0.6] or [next(iter(properties))]
        catalogue[name] = Function(
            name=name,
            description=" ".join(word() for _ in range(rng.randint(2, 5))).capitalize() + ".",
            parameters={"type": "object", "properties": properties, "required": required},
        )
    return catalogue


def damaged(calls: list[Call], domain: ToolUse, rng: random.Random) -> list[Call]:
    """`calls`, each with probability DAMAGE replaced by a mistake that an agent could make."""
    out: list[Call] = []
    names = list(domain.catalogue)
    for call in calls:
        if rng.random() >= DAMAGE:
            out.append(call)
            continue
        properties = domain.catalogue[call.name].properties
        missing = [n for n in properties if n not in call.arguments]
        kind = rng.choices(("drop", "change", "swap", "add", "rename", "skip"), (3, 3, 1, 1.5, 1.5, 1))[0]
        arguments = dict(call.arguments)
        key = rng.choice(list(arguments))
        if kind == "drop":
            del arguments[key]
        elif kind == "swap":
            donor = rng.choice(calls)
            arguments[key] = rng.choice(list(donor.arguments.values()))
        elif kind == "add" and missing:
            extra = rng.choice(missing)
            arguments[extra] = random_value(properties[extra], rng)
        elif kind == "rename":
            call = Call(rng.choice(names), arguments)
        elif kind == "skip":
            continue
        else:
            arguments[key] = random_value(properties[key], rng)
        out.append(Call(call.name, arguments))
    return out or calls


def simulator_example(domain: ToolUse, seed: Seed, rng: random.Random) -> Example:
    """The direction is read off the answer: more or fewer arguments and distractors than the example's."""
    key = rng.getrandbits(32)
    success = rng.choice((None, rng.random(), rng.random()))
    chat, _ = domain.simulator_chat(seed, success, "similar", key)
    shown = [domain.catalogue[t["function"]["name"]] for t in chat.tools]
    spec = domain.random_spec(len(seed.spec["calls"]), shown, rng)
    domain.build(spec)
    chat, _ = domain.simulator_chat(seed, success, domain.direction(seed, Seed(seed.family, spec)), key)
    return Example(chat, (Turn(json.dumps(spec, separators=(",", ":"), ensure_ascii=False)),))


def early_examples(rng: random.Random) -> Iterator[Example]:
    """Mostly one or two calls."""
    return examples(rng, long_share=0.3)


def examples(rng: random.Random, long_share: float = 1.0) -> Iterator[Example]:
    """An endless stream. `long_share` in [0, 1] is the share drawn evenly over 1-4 calls; the rest has one or two."""
    catalogue = {n: f for n, f in builtin_catalogue().items() if f.split == "train"}
    words = sorted({w for n in catalogue for w in n.split("_")})
    plain = {n: f.model_copy(update={"request": None}) for n, f in catalogue.items()}
    builtin = [ToolUse(catalogue), ToolUse(catalogue), ToolUse(catalogue), ToolUse(plain)]
    while True:
        domain = ToolUse(made_up_catalogue(rng, words)) if rng.random() < MADE_UP else rng.choice(builtin)
        functions = list(domain.catalogue.values())
        calls = rng.randint(1, MAX_CALLS if rng.random() < long_share else 2)
        try:
            task = domain.build(domain.random_spec(calls, functions, rng))
            if rng.random() < SIMULATOR:
                yield simulator_example(domain, Seed(task.family, task.spec), rng)
            else:
                target = [Call(c["name"], c["arguments"]) for c in task.target]
                text = format_tool_calls(damaged(target, domain, rng))
                yield Example(Chat(task.messages, task.tools), (Turn(text),))
        except SpecError:
            continue  # two equal calls by chance

"""multihop_qa: what the gate admits of random specifications, a second look at each, and the speed of episodes.

    python bench/worlds_multihop_qa.py [--specs 1000] [--episodes 2000] [--seed 0]

Half of the specifications are damaged in one of the ways of DAMAGES. The second look is an agent that shares no code
with the domain: it knows the words of question and tool results only, and tells the direction of a fact by its grammar. It must
earn what the reference earns, and find the answer that a plain dictionary over all passages gives. Times are CPU time of one thread, so
that other work on the same core does not count.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator

from genenv.contracts.domain import SpecError
from genenv.contracts.types import Json, Task
from genenv.domains.multihop_qa.domain import MultihopQa
from genenv.domains.multihop_qa.facts import RELATIONS, TRAIN
from genenv.loop.gate import Gate

KEYWORD = re.compile(
    r"\b(?:birthplace|employer|teacher|doctor|school|author|publisher|director|studio|novel|founder|seat|country|mayor|river|"
    r"president|poet|mouth|explorer|principal|town)\b"
)
NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)*")
TURNED = re.compile(r"[A-Z][A-Za-z ]* (?:is the|was the|lies at the mouth of) ")
"""`X is the author of Y`: here the second name is the subject."""

DAMAGES = (
    "field", "extra", "type", "relation", "kind", "name", "empty", "many", "twice", "self", "circle", "shortcut", "leak",
    "same", "answer", "keyword",
)  # fmt: skip


def damaged(spec: dict[str, Json], rng: random.Random) -> dict[str, Json]:
    """`spec` with one fault, or one change that may be none."""
    spec = copy.deepcopy(spec)
    hops, others = spec["hops"], spec["others"]
    hop, other = rng.choice(hops), rng.choice(others)
    match rng.choice(DAMAGES):
        case "field":
            del spec[rng.choice(list(spec))]
        case "extra":
            spec["answer"] = hops[-1][1]
        case "type":
            spec[rng.choice(list(spec))] = rng.choice((None, 7, "x", [], {}, [[]], [["author"]], [[1, 2, 3]]))
        case "relation":
            rng.choice((hop, other))[0 if rng.random() < 0.5 else -2] = rng.choice(
                ("aunt", "", "Author", "birth place")
            )
        case "kind":
            hop[0] = rng.choice(sorted(RELATIONS))
        case "name":
            other[2] = rng.choice(
                ("orla", "", "A", "Orla  Venn", "Orla venn", "X" * 50, "Örla", "Orla\n", "The", "An Orla")
            )
        case "empty":
            spec["others"] = others[:1]
        case "many":
            spec["hops"] = hops * 5
        case "twice":
            others.append([*other[:2], "Other Name"])
        case "self":
            other[2] = other[0]
        case "circle":
            hops[-1][1] = spec["start"]
        case "shortcut":
            others.append([spec["start"], rng.choice(sorted(RELATIONS)), hops[-1][1]])
        case "leak":
            hops[-1][1] = spec["start"].split()[0]
        case "same":
            other[2] = f"The {other[2].split()[-1]}"
        case "answer":
            hops[-1][1] = rng.choice(others)[2]
        case "keyword":
            hops[-1][1] = rng.choice(sorted(RELATIONS)).title()
    return spec


def specifications(domain: MultihopQa, count: int, rng: random.Random) -> Iterator[dict[str, Json]]:
    """Random specifications of all families, half of them damaged."""
    for _ in range(count):
        spec = domain.random_spec(rng.randint(1, len(domain.families)), TRAIN, rng)
        yield damaged(spec, rng) if rng.random() < 0.5 else spec


def fact(passage: str) -> tuple[str, str, str]:
    """Subject, relation and object of a passage."""
    names = NAME.findall(passage)
    (keyword,) = KEYWORD.findall(passage)
    subject, thing = reversed(names) if TURNED.match(passage) else names
    return subject, keyword, thing


def asked(question: str) -> tuple[str, list[str]]:
    """Where a question starts, and the relations to follow from there."""
    return NAME.findall(question)[-1], KEYWORD.findall(question)[::-1]


def looked_up(task: Task) -> str:
    """The answer that a dictionary over all passages gives to the question as it is worded."""
    facts = {fact(passage)[:2]: fact(passage)[2] for passage in task.target["passages"]}
    name, path = asked(task.messages[-1].content)
    for keyword in path:
        name = facts[name, keyword]
    return name


def second_run(domain: MultihopQa, task: Task) -> float | None:
    """What an agent earns that reads the question and tool results only."""
    episode = domain.episode(task)
    name, path = asked(task.messages[-1].content)
    for keyword in path:
        call = json.dumps({"name": "search", "arguments": {"query": f"{keyword} {name}"}})
        step = episode.step(f"<tool_call>{call}</tool_call>")
        if step.score is not None:
            return step.score.value
        told = [fact(line.split(". ", 1)[1]) for line in step.messages[0].content.splitlines()]
        found = [thing for subject, relation, thing in told if (subject, relation) == (name, keyword)]
        if not found:
            return 0.0
        name = found[0]
    score = episode.step(f"<answer>{name}</answer>").score
    return score.value if score else None


def admission(domain: MultihopQa, count: int, seed: int) -> tuple[Counter[str], int]:
    """Verdicts by reason, and how many admitted tasks fail the second look."""
    gate = Gate(domain)
    reasons: Counter[str] = Counter()
    failed = 0
    for spec in specifications(domain, count, random.Random(seed)):
        try:
            task = domain.build(spec)
        except SpecError as error:
            reasons[error.reason] += 1
            continue
        verdict = gate.judge(task)
        reasons[verdict.reason] += 1
        failed += verdict.admitted and not (
            second_run(domain, task) == 1.0 and looked_up(task) == task.target["answer"]
        )
    return reasons, failed


def episodes_per_second(domain: MultihopQa, count: int, seed: int) -> float:
    """Episodes with the reference as agent, each of a task of its own; the reference itself is worked out beforehand."""
    tasks = [domain.build(s.spec) for s in domain.seeds(count, seed)]
    turns = [domain.reference(task) for task in tasks]
    gate = Gate(domain)
    start = time.process_time()
    values = [gate.execute(task, written).value for task, written in zip(tasks, turns, strict=True)]
    seconds = time.process_time() - start
    if values != [1.0] * count:
        raise SystemExit(f"expected {count} right answers, found {values.count(1.0)}")
    return count / seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--specs", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    domain = MultihopQa()
    start = time.process_time()
    reasons, failed = admission(domain, options.specs, options.seed)
    seconds = time.process_time() - start
    print(f"{options.specs} specifications in {seconds:.1f} s: {dict(reasons.most_common())}")
    print(f"admitted {reasons['admitted'] / options.specs:.1%}; of them failed the second look: {failed}")
    print(f"episodes with the reference as agent: {episodes_per_second(domain, options.episodes, options.seed):.0f}/s")

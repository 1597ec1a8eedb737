"""Training text of multihop_qa: a noisy expert's transcripts, and specifications that a simulator might write.

The expert searches `NAME RELATION`, reads the next name off the passages and answers at the end. It acts on nothing but
the question and what it has read. Before each step it slips with a probability that is drawn once per transcript: it
searches another relation, a misspelt or another name, writes a malformed call, takes the name from a wrong passage, stops
a hop early or answers with another name. Afterwards it goes on as well as it can.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

from base_text import Example, Turn

from genenv.benchmarks.bamboogle import TURNS
from genenv.contracts.domain import SpecError
from genenv.contracts.types import Chat, Direction, Json, Seed, Task
from genenv.domains.multihop_qa.domain import MultihopQa, answer_turn, search_call
from genenv.domains.multihop_qa.facts import FROM, RELATIONS, TRAIN, Names, names, read
from genenv.domains.multihop_qa.facts import WORDS as NAME_WORDS

SIMULATOR = 0.3
EDITS = 1 / 3
MADE_UP = 0.35
LARGER = 1 / 3
SLIP = 0.7
"""The highest probability of a slip in one step; its mean is half of it."""
PATIENCE = 2
"""Searches for one fact before the expert guesses."""
DIRECTIONS: tuple[Direction, ...] = ("easier", "similar", "harder")
WORDS: tuple[str, ...] = (
    "school", "employer", "answer", "explorer", "country", "principal", "president", "company", "birthplace",
    "teacher", "founder", "mayor", "mouth", "hops", "studio", "river", "author", "you", "what", "step", "something",
    "short", "results", "possible", "passages", "know", "about", "Think", "Look", "publisher", "Academy", "House",
    "Works", "Institute", "Group", "College", "seat", "Mills", "Little", "others", "Relations", "North", "Drumm",
    "Old", "not", "poet", "Pryce", "then", "question", "come", "alone", "Port", "Name", "Long", "Yarrow", "Mott",
    "Ulver", "mislead", "facts", "Invent", "Brisk", "Sorrel", "Rusk", "Ekker", "Quill", "director", "Greel",
    "Abner", "Nesk", "honors", "Upper", "Falk", "stands", "Lorne", "Tarn", "Venn", "Jarn", "Cray", "Halm", "Ansel",
    "Pelham", "Orla", "novel", "Korr", "Fenwick", "Stavik", "Fenn", "Dunja", "Pelle", "Merrow", "Ilse", "Maren",
    "Runa", "Hanno", "Lior", "Edda", "Gisa", "elected", "Kasper", "What", "Birgo", "Hestor", "Cora", "Keth",
    "Garlo", "Ostra", "Bruk", "Norvik", "Elsk", "Jora", "Jaska", "Varn", "Dorrin", "Tolo", "Hall", "Mira", "Black",
    "Tellin", "Imber", "Calder", "Kelmo", "Vask", "mapped", "New", "East", "Boll", "searches", "relation", "next",
    "lead", "hop", "film", "are", "Ilmaria", "Dask", "its", "Wend", "lies", "Estovia", "Hovenia", "Bren",
    "Drelland", "Davi", "Corvania", "Iven", "Tam", "Jorland", "Mondria", "Lethia", "Frennia", "Orchard", "Change",
    "sees", "Aldoria", "Oskar", "Who", "Osmar", "Morvia", "Hollow", "Karvia", "Rhoda", "Sefa", "had", "Sull",
    "Tresk", "Rusty", "Lund", "national", "Crimson", "Rask", "Loam", "Ullen", "Firth", "Pell", "Isk", "Wyth",
    "went", "Gane", "Frozen", "Needle", "behind", "Anchor", "Dwell", "expected", "character", "Belmar", "Gentle",
    "Summit", "Canyon", "led", "Sarn", "Candle", "Naked", "Broken", "Orrin", "Kestland", "follows", "Amber",
    "Midnight", "error", "Garden", "equally", "Distant", "Bitter", "Lantern", "Avenue", "Winter", "Shadow",
    "Golden", "Burning", "Mirror", "Key", "Glass", "Atlas", "Harvest", "Velvet", "Island", "Ladder", "Galdor",
    "Ebba", "Wild", "Mede", "Compass", "Letter", "Paper", "Silent", "Iron", "Bridge", "Parade", "needs", "Desert",
    "Hidden", "made", "Ballroom", "gets", "Feather", "Carnival", "Horizon", "Basket", "Station", "Harbor",
)  # fmt: skip
"""Frequent words that `builtin:tiny` splits, those first that would save most tokens as one."""
_NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)*")


def made_up_names(rng: random.Random) -> Names:
    """Names over words that nobody has seen."""

    def word() -> str:
        return "".join(
            rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "s", "l"))
            for _ in range(rng.randint(2, 3))
        ).capitalize()

    return names({role: tuple(word() for _ in range(6)) for role in NAME_WORDS})


def random_task(domain: MultihopQa, hops: int, pool: Names, rng: random.Random) -> Task:
    while True:
        try:
            return domain.build(domain.random_spec(hops, pool, rng))
        except SpecError:
            continue  # a name twice by chance


# -- the agent -------------------------------------------------------------------------------------------------


class Expert:
    """One try at one task. `slip` in [0, 1] is the probability of a mistake in one step."""

    def __init__(self, task: Task, slip: float, rng: random.Random) -> None:
        self._path = [relation for relation, _ in task.spec["hops"]]  # as the question says
        self._rng = rng
        self._slip = slip
        self._name: str = task.spec["start"]
        self._hop = 0
        self._tries = 0
        self._sought = ("", "")
        self._seen = [self._name]

    def _slips(self) -> bool:
        return self._rng.random() < self._slip

    def write(self, turn: int) -> str:
        """What it writes next."""
        if self._hop == len(self._path) or self._tries > PATIENCE or turn == TURNS - 1:
            return answer_turn(self._rng.choice(self._seen) if self._slips() else self._name)
        self._tries += 1
        self._sought = self._name, self._path[self._hop]
        if not self._slips():
            return search_call(" ".join(self._sought))
        kind = self._rng.choice(("early", "relation", "misread", "misspelt", "name", "malformed"))
        name, relation = self._sought
        if kind == "early" and self._hop:
            return answer_turn(name)
        if kind == "misspelt":
            at = self._rng.randrange(1, len(name))
            name = name[:at] + name[at + 1 :]
        elif kind == "name":
            name = self._rng.choice(self._seen)
        elif kind == "malformed":
            call = search_call(f"{name} {relation}")
            return self._rng.choice(
                (call.replace('"}}', '"}'), call.replace("search", "find"), call.replace("{", "", 1))
            )
        else:
            relation = self._rng.choice((*self._path, *FROM[RELATIONS[relation].subject]))
            if kind == "misread":  # and takes what it finds for the fact
                self._sought = name, relation
        return search_call(f"{name} {relation}")

    def look(self, result: str) -> None:
        """What it makes of a search's result."""
        passages = [line.partition(". ")[2] for line in result.splitlines() if line[:1].isdigit()]
        found = [_NAME.findall(passage) for passage in passages]
        self._seen += [name for two in found for name in two if name not in self._seen]
        told = next((name for passage in passages if (name := read(passage, *self._sought))), None)
        if found and self._slips():
            told = self._rng.choice(self._rng.choice(found))
        if told is not None:
            self._name, self._tries = told, 0
            self._hop += 1


def transcript(domain: MultihopQa, task: Task, slip: float, rng: random.Random) -> tuple[Example, float]:
    """A try in a real episode, and what it earned."""
    expert, episode = Expert(task, slip, rng), domain.episode(task)
    turns: list[Turn] = []
    while True:
        text = expert.write(len(turns))
        step = episode.step(text)
        turns.append(Turn(text, step.messages))
        if step.score is not None:
            return Example(Chat(task.messages, task.tools), tuple(turns)), float(step.score.value or 0.0)
        expert.look(step.messages[0].content)


# -- the simulator ---------------------------------------------------------------------------------------------


def edited(
    domain: MultihopQa, spec: dict[str, Json], direction: Direction, pool: Names, rng: random.Random
) -> dict[str, Json]:
    """`spec` with one field changed: a hop more or fewer if that is wished and can be, else another last hop or start.

    Raises SpecError where the result is no task, as when both facts of the last name are stated already.
    """
    hops: list[list[str]] = spec["hops"]
    first = RELATIONS[hops[0][0]].subject
    longer = direction == "harder" and len(hops) < len(domain.families)
    if direction == "easier" and len(hops) > 1:
        changed = {**spec, "hops": hops[:-1]}
    elif not longer and rng.random() < 0.5:
        changed = {**spec, "start": pool.draw(first, rng)}
    else:
        kept = hops if longer else hops[:-1]
        kind = RELATIONS[kept[-1][0]].object if kept else first
        relation = rng.choice(FROM[kind])
        changed = {**spec, "hops": [*kept, [relation, pool.draw(RELATIONS[relation].object, rng)]]}
    domain.build(changed)
    return changed


def simulator_example(domain: MultihopQa, task: Task, pool: Names, rng: random.Random) -> Example:
    example = Seed(task.family, task.spec)
    success = rng.choice((None, rng.random(), rng.random()))
    edit = rng.random() < EDITS
    if edit:
        direction = rng.choice(DIRECTIONS)
        spec = edited(domain, dict(task.spec), direction, pool, rng)
    else:
        spec = dict(random_task(domain, len(task.spec["hops"]), pool, rng).spec)
        direction = domain.direction(example, Seed(task.family, spec))
    chat, _ = domain.simulator_chat(example, success, direction, rng.getrandbits(32), edit=edit)
    return Example(chat, (Turn(json.dumps(spec, separators=(",", ":"), ensure_ascii=False)),))


def examples(rng: random.Random) -> Iterator[Example]:
    """An endless stream, evenly over one to four hops; a third of the agent's worlds have more facts than the seeds."""
    domain, larger = MultihopQa(), MultihopQa(others=8)
    while True:
        pool = made_up_names(rng) if rng.random() < MADE_UP else TRAIN
        hops = rng.randint(1, len(domain.families))
        if rng.random() >= SIMULATOR:
            task = random_task(larger if rng.random() < LARGER else domain, hops, pool, rng)
            yield transcript(domain, task, rng.uniform(0.0, SLIP), rng)[0]
            continue
        task = random_task(domain, hops, pool, rng)
        try:
            yield simulator_example(domain, task, pool, rng)
        except SpecError:
            continue  # an edit that cannot be

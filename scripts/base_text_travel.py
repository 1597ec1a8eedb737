"""Training text of the world `travel`: three-day trips, planned by an expert that errs, and queries of a simulator.

Most worlds have the domain's own words in other places, some have made-up ones, and none is the domain's default: so
there is nothing to recite. Names of held-out cities never occur.

    python scripts/base_text_travel.py      # how often the expert earns 1, by family
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from base_text import Example, Turn

from genenv.benchmarks.travelplanner.plan import SEATS, Query
from genenv.benchmarks.travelplanner.tables import Flight, Place, Restaurant, Room
from genenv.contracts.domain import SpecError
from genenv.contracts.types import Chat, Json, Message, Seed, Task
from genenv.domains.travel.domain import Travel
from genenv.domains.travel.spec import LIMITS, MAX_PEOPLE, SLACK
from genenv.domains.travel.trip import allows, nightly
from genenv.domains.travel.world import NAMES, Names, Size, World, made_up_name
from genenv.reading.parsing import Call, format_tool_calls

SIMULATOR = 0.3
EDITS = 1 / 3
MADE_UP = 0.3
WORLD_LASTS = 20
"""Examples from one world."""
ERROR = 0.65
"""Errors per decision are up to this, evenly."""
CARELESS = 0.5
"""Share of transcripts in which prices do not count."""
# fmt: off
WORDS: tuple[str, ...] = (
    "attractions", "transportation", "driving", "attraction", "Self", "Little", "roads", "Jarrow", "Kettle",
    "Kelmot", "Needed", "Golden", "Wexley", "Pellan", "Delmar", "Green", "Greek", "Sorel", "Lunden", "rooms",
    "Indian", "Silver", "Royal", "entire", "Sunny", "French", "Chinese", "private", "Thai", "Mexican", "Oster",
    "children", "slack", "Garda", "Varna", "Quill", "Ulver", "Norvik", "Rosk", "Grill", "either", "night", "Free",
    "Look", "three", "twice", "Budget", "Kitchen", "cuisines", "Fenton", "Lodge", "Taxi", "Loft", "Marle", "House",
    "Estby", "Spoon", "Cabin", "Villa", "Flight", "smoking", "parties", "what", "Corin", "Hollin", "Tamsin", "New",
    "visitors", "Red", "Old", "Ister", "Quiet", "Yarm", "trips", "Grand", "house", "Museum", "queries", "org",
    "dest", "cheapest", "Cities", "Bridge", "Castle", "must", "Oven", "Garden", "Alba", "things", "ways", "there",
    "meals", "full", "only", "When", "moving", "Plan", "Pot", "Brec", "Table", "Inn", "Fork", "under", "above",
    "eaten", "pets", "allow", "Rooms", "found", "Tower", "Park", "Only", "No", "plans", "lies", "self", "want",
    "eat", "Change", "equally", "not", "gets"
)
# fmt: on
"""Words that are worth a token of their own: `frequent_words` of the tokenizer before they were added."""


def random_domain(rng: random.Random) -> Travel:
    """A world of any size, a part of them with made-up names."""

    def words(count: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(made_up_name(rng) for _ in range(count)))

    names = Names(words(20), words(9), words(8), words(10), words(6), words(8), words(6))
    # no name of a city may be part of another one: made-up ones all have six letters
    size = Size(rng.randint(6, 12), 3, rng.randint(4, 6), rng.randint(2, 3), rng.randint(3, 4))
    seed = rng.randrange(1, 10**9)
    return Travel(seed, (3,), "compact", size, names if rng.random() < MADE_UP else NAMES)


# -- the agent -------------------------------------------------------------------------------------------------


@dataclass
class Expert:
    """Looks up what it needs and takes what fits, of the limits that it does not overlook: the cheapest, unless careless.

    It errs the more, the more is asked of it.
    """

    query: Query
    world: World
    rng: random.Random
    error: float

    def __post_init__(self) -> None:
        self.careless = self.rng.random() < CARELESS
        asked = (self.query.house_rule, self.query.cuisines, self.query.room_type, self.query.transportation)
        self.error *= 1 + 0.25 * sum(map(bool, asked))
        limits = {"house_rule": None, "cuisines": (), "room_type": None, "transportation": None}
        overlooked: dict[str, Any] = {name: none for name, none in limits.items() if self.errs()}
        self.query = dataclasses.replace(self.query, **overlooked)

    def errs(self, share: float = 1.0) -> bool:
        return self.rng.random() < share * self.error

    def look_ups(self) -> list[list[Call]]:
        """Calls, turn by turn; some are forgotten."""
        there = {"origin": self.query.org, "destination": self.query.dest}
        back = {"origin": self.query.dest, "destination": self.query.org}
        city = {"city": self.query.dest}
        ways = [Call("flights", there), Call("flights", back), Call("roads", there)]
        if self.query.transportation == "no flight" and not self.errs(0.3):
            ways = ways[2:]
        stay = [Call(name, city) for name in ("rooms", "restaurants", "attractions")]
        turns = [ways + stay] if self.rng.random() < 0.7 else [ways, stay]
        return [[call for call in turn if not self.errs(0.05)] or turn for turn in turns]

    def plan(self, calls: Sequence[Call]) -> str:
        """The compact plan, from what these calls have told."""
        known = {(call.name, tuple(call.arguments.values())) for call in calls}
        there, back = self._rides(known)
        room, meals, seen = self._room(known), self._meals(known), self._attraction(known)
        org, dest = self.query.org, self.query.dest
        if self.errs(0.15):
            meals[self.rng.randrange(3)] = "-"
        lines = [
            f"1|{org} to {dest}|{there}|{room}",
            f"2|{dest}|-|{room}|{'|'.join(meals)}" + (f"|{seen}" if seen != "-" else ""),
            f"3|{dest} to {org}|{back}",
        ]
        if self.errs(0.15):
            lines.pop()
        return "\n".join(lines)

    def _rides(self, known: set[tuple[str, tuple[str, ...]]]) -> tuple[str, str]:
        legs = ((self.query.org, self.query.dest), (self.query.dest, self.query.org))
        options: list[dict[str, float]] = []
        for leg in legs:
            ways: dict[str, float] = {}
            if ("flights", leg) in known:
                flights: Sequence[Flight] = self.world.flights[leg]
                ways |= {f"Flight {f.number}": f.price * self.query.people for f in flights}
            if ("roads", leg) in known or ("roads", leg[::-1]) in known:
                for mode, seats in SEATS.items():
                    fare = self.world.tables.fare(mode, *leg)
                    if fare is not None:
                        ways[mode.capitalize()] = fare * math.ceil(self.query.people / seats)
            options.append(ways)
        if self.errs(0.5):
            first, second = (self.rng.choice(list(ways) or ["Taxi", "Self-driving"]) for ways in options)
            return first, second
        word = {"no flight": "Flight", "no self-driving": "Self-driving"}.get(self.query.transportation or "", "?")
        good = [{way: price for way, price in ways.items() if not way.startswith(word)} for ways in options]
        if self.careless:
            good = [dict.fromkeys(ways, 1) for ways in good]
        own = sum(ways.get("Self-driving", math.inf) for ways in good)
        other = [{way: price for way, price in ways.items() if way != "Self-driving"} for ways in good]
        if own <= sum(min(ways.values(), default=math.inf) for ways in other) and own < math.inf:
            return "Self-driving", "Self-driving"
        first, second = (min(ways, key=lambda way: ways[way], default="Taxi") for ways in other)
        return first, second

    def _room(self, known: set[tuple[str, tuple[str, ...]]]) -> str:
        rooms: Sequence[Room] = self.world.rooms[self.query.dest]
        if ("rooms", (self.query.dest,)) not in known:
            return self._guess(NAMES.rooms)
        if self.errs(0.7):
            return self.rng.choice(rooms).name
        fits = [room for room in rooms if allows(self.query, room) and room.minimum_nights <= 2] or list(rooms)
        return (self.rng.choice(fits) if self.careless else min(fits, key=lambda room: nightly(self.query, room))).name

    def _meals(self, known: set[tuple[str, tuple[str, ...]]]) -> list[str]:
        """One for each cuisine, then others, in the order in which they were read."""
        rows: Sequence[Restaurant] = self.world.restaurants[self.query.dest]
        if ("restaurants", (self.query.dest,)) not in known:
            return [self._guess(NAMES.restaurants) for _ in range(3)]
        by_price = rows if self.careless else sorted(rows, key=lambda row: row.cost)
        chosen: list[Restaurant] = []
        for cuisine in self.query.cuisines:
            served = any(cuisine in row.cuisines for row in chosen)
            fit = next((row for row in by_price if cuisine in row.cuisines), None)
            if fit and not served:
                chosen.append(fit)
        for row in by_price:
            if len(chosen) < 3 and row not in chosen:
                chosen.append(row)
        meals = [row.name for row in sorted(chosen, key=rows.index)]
        return [self.rng.choice(rows).name if self.errs(0.3) else meal for meal in meals]

    def _attraction(self, known: set[tuple[str, tuple[str, ...]]]) -> str:
        places: Sequence[Place] = self.world.attractions[self.query.dest]
        if ("attractions", (self.query.dest,)) not in known:
            return self._guess(NAMES.attractions)
        return "-" if self.errs(0.15) else self.rng.choice(places).name

    def _guess(self, nouns: Sequence[str]) -> str:
        return f"{self.rng.choice(NAMES.adjectives)} {self.rng.choice(nouns)}"


def transcript(domain: Travel, task: Task, rng: random.Random) -> tuple[Example, float]:
    """What the expert did in a real episode, and its score."""
    expert = Expert(domain.query(task), domain.world(task.origin), rng, rng.uniform(0, ERROR))
    episode = domain.episode(task)
    calls = expert.look_ups()
    turns = [Turn(text, episode.step(text).messages) for text in map(format_tool_calls, calls)]
    text = expert.plan([call for turn in calls for call in turn])
    score = episode.step(text).score
    assert score is not None
    return Example(Chat(task.messages, task.tools), (*turns, Turn(text))), score.value or 0.0


# -- the simulator ---------------------------------------------------------------------------------------------


def edited(domain: Travel, task: Task, rng: random.Random) -> Task:
    """The task with one field of its specification changed."""
    while True:
        field = rng.choice([name for name in task.spec if name != "days"] + ["slack"])
        values: dict[str, Json] = {
            "org": rng.choice(list(domain.world("seed").states)),
            "dest": rng.choice(list(domain.world("seed").states)),
            "people": rng.randint(1, MAX_PEOPLE),
            "slack": rng.choice(SLACK),
        }
        value = values[field] if field in values else rng.choice(LIMITS[field])
        if value == task.spec[field]:
            continue
        try:
            return domain.build({**task.spec, field: value})
        except SpecError:
            continue  # no such trip


def simulator_example(domain: Travel, task: Task, rng: random.Random) -> Example:
    edit = rng.random() < EDITS
    target = edited(domain, task, rng) if edit else domain.random_task(task.family, "seed", rng)
    example, answer = Seed(task.family, task.spec), Seed(target.family, target.spec)
    success = rng.choice((None, rng.random(), rng.random()))
    direction = domain.direction(example, answer)
    chat, _ = domain.simulator_chat(example, success, direction, rng.getrandbits(32), answer, edit)
    return Example(chat, (Turn(json.dumps(dict(target.spec), separators=(",", ":"), ensure_ascii=False)),))


def examples(rng: random.Random) -> Iterator[Example]:
    """An endless stream."""
    while True:
        domain = random_domain(rng)
        for _ in range(WORLD_LASTS):
            task = domain.random_task(rng.choice(domain.families), "seed", rng)
            if rng.random() < SIMULATOR:
                yield simulator_example(domain, task, rng)
            else:
                yield transcript(domain, task, rng)[0]


def frequent_words(tokenizer: Any, count: int = 250, sample: int = 2000) -> list[str]:
    """Whole words of letters that the tokenizer splits, those first that would save most tokens."""
    saved: Counter[str] = Counter()
    for example, _ in zip(examples(random.Random(0)), range(sample), strict=False):
        messages = [m for turn in example.turns for m in (Message("assistant", turn.text), *turn.answer)]
        declared = [f"{t['function']['name']} {t['function']['description']}" for t in example.chat.tools]
        for text in [*declared, *(m.content for m in [*example.chat.messages, *messages])]:
            # as the tokenizer splits: "house_rule" is "house" and "_rule", and tags are tokens already
            for word in re.findall(r"_?[A-Za-z]+", re.sub(r"</?tool_call>", "", text)):
                if word.isalpha():
                    saved[word] += len(tokenizer.encode(word, add_special_tokens=False)) - 1
    # made-up names are all but unique
    return [word for word, tokens in saved.most_common(count) if tokens >= sample / 100]


def success(count: int, seed: int = 0) -> dict[str, float]:
    """Share of `count` tasks of each family that the expert solves, in the domain's default world."""
    domain, rng = Travel(days=(3,), plan="compact"), random.Random(seed)
    tasks = {family: [domain.random_task(family, "seed", rng) for _ in range(count)] for family in domain.families}
    return {family: sum(transcript(domain, task, rng)[1] for task in some) / count for family, some in tasks.items()}


if __name__ == "__main__":
    print(", ".join(f"{family} {share:.1%}" for family, share in success(1000).items()))

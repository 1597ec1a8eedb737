"""Training text of the world household: a searching agent that errs, and a simulator that writes and edits houses.

The agent is not told where things are: it goes by what it has read. It looks where an object is likely to be, opens what
is closed, takes the object, changes its state at the right appliance and puts it where it belongs. At each decision it
errs with a probability that is drawn per transcript, and goes on from where that leaves it. Held-out things never occur.

    python scripts/base_text_household.py    # success by family, lengths in tokens, speed, WORDS
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from base_text import Example, Turn

from genenv.contracts.domain import SpecError
from genenv.contracts.types import Chat, Json, Score, Seed
from genenv.domains.household.domain import Household
from genenv.domains.household.seeds import known, random_spec
from genenv.domains.household.things import OBJECTS, OPENABLE
from genenv.domains.household.world import CHANGES, FAMILIES, LAMP, MAX_KIND, Action, Goal, World, parse

AGENT = 0.7
EDIT = 1 / 3
TOO_SIMILAR = 0.7
"""Of the edits that make a task neither harder nor easier, which are three in four, this share is left out."""
MAX_ERROR = 0.7
LARGE = 0.1
SMALL_PLACES, LARGE_PLACES = 8, 25
TURNS, LARGE_TURNS = 12, 28
"""Transcripts end here, won or not."""

_SEEN = re.compile(r"(?:On the .+?|In it), you see (.+)\.$")
"""What the agent reads of the receptacle that it is at."""
_ITEM = re.compile(r"a ([a-z]+ \d+)")

_WORDS = """\
receptacle countertop arrive fridge shelf sidetable microwave you sinkbasin see diningtable commands
happens garbagecan ALFRED closed stoveburner drawer On cabinet examine inventory dresser armchair are
Nothing desklamp Looking middle TextWorld Things Welcome take coffeemachine close quickly creditcard What
Your answered cannot command example house something think coffeetable bathtubbasin look clean household
receptacles what where tissuebox dishsponge pick put goal objects soapbottle use cellphone keychain
tomato egg act done have help last may slice bowl cloth toilet sofa butterknife carrying lettuce desk
remotecontrol stands which spraybottle handtowelholder laptop toiletpaperhanger peppershaker soapbar
handtowel toaster mug alarmclock candle glassbottle plate saltshaker cup pencil apple bread Next facing
vase bed spatula recep counts if its state anything spoon knife some towelholder pot pillow equally box
Change then not fork obj cd under them simple gets"""
WORDS: tuple[str, ...] = tuple(_WORDS.split())
"""Whole words that save the most tokens, the first most: `frequent_words` on 4,000 examples."""


class Searcher:
    """What the agent knows of one game, and what it does next. `error` is the probability of a mistake at a decision."""

    def __init__(self, world: World, rng: random.Random, error: float) -> None:
        self.goal: Goal = world.goal
        self._places = [place.name for place in world.places]
        self._rng = rng
        self._error = error
        self._at: str | None = None
        self._held: str | None = None
        self._seen: dict[str, list[str]] = {}
        self._closed = {name for name in self._places if _kind(name) in OPENABLE}
        self._changed: set[str] = set()
        self._end: str | None = None
        self._mistaken: str | None = None
        """A wrong object that is taken for the right one."""
        self._order = self._search_order()

    def _search_order(self) -> list[str]:
        """Likely receptacles first, not quite strictly."""
        likely = OBJECTS[self.goal.object].places
        rank = {kind: i for i, kind in enumerate(likely)}
        return sorted(self._places, key=lambda name: rank.get(_kind(name), len(likely)) + self._rng.random() * 2)

    def read(self, command: str, observation: str) -> None:
        """Take in what a command did."""
        if observation == "Nothing happens.":
            return
        verb, _, rest = command.partition(" ")
        if verb == "go":
            self._at = rest.removeprefix("to ")
        elif verb == "open":
            self._closed.discard(rest)
        elif verb == "close":
            self._closed.add(rest)
        elif verb == "take":
            self._held, _, place = rest.partition(" from ")
            self._seen[place].remove(self._held)
        elif verb == "move":
            name, _, place = rest.partition(" to ")
            self._seen.setdefault(place, []).append(name)
            self._held = self._mistaken = None
        elif verb in CHANGES:
            self._changed.add(rest.partition(" with ")[0])
        if (found := _SEEN.search(observation)) and self._at:
            self._seen[self._at] = _ITEM.findall(found[1])

    def command(self) -> str:
        right = self._right()
        return self._wrong(right) if self._rng.random() < self._error else right

    # -- the right thing -------------------------------------------------------------------------------------------

    def _right(self) -> str:
        if self._held is None:
            return self._fetch(self.goal.object)
        if _kind(self._held) != self.goal.object and self._held != self._mistaken:
            return self._put_away()
        if self.goal.do == "look":
            return self._fetch(LAMP)
        if self.goal.do in CHANGES and self._held not in self._changed:
            kind = CHANGES[self.goal.do][1]
            place = self._at if self._at and _kind(self._at) == kind else self._first(kind)
            return self._near(place, f"{self.goal.do} {self._held} with {place}")
        return self._deliver()

    def _fetch(self, kind: str) -> str:
        """Take an object of a kind, or use the lamp, where it was seen; search for it if it was not."""
        for place, names in self._seen.items():
            for name in names:
                if _kind(name) == kind and not self._delivered(name, place):
                    if kind == LAMP:
                        return self._near(place, f"use {name}")
                    return self._inside(place, f"take {name} from {place}")
        if self._at in self._closed:
            return f"open {self._at}"
        unseen = [place for place in self._order if place not in self._seen]
        if kind == LAMP:
            unseen.sort(key=lambda place: _kind(place) not in OBJECTS[LAMP].places)
        if not unseen:
            return f"go to {self._rng.choice([place for place in self._places if place != self._at])}"
        return f"go to {unseen[0]}"

    def _delivered(self, name: str, place: str) -> bool:
        """Whether an object is where it has to be, as far as the agent believes."""
        if self.goal.do == "two":
            return place == self._end
        return _kind(place) == self.goal.to and (self.goal.do not in CHANGES or name in self._changed)

    def _deliver(self) -> str:
        if self._end is None or self.goal.do != "two":
            near = self._at is not None and _kind(self._at) == self.goal.to
            self._end = self._at if near else self._first(self.goal.to)
        assert self._end is not None
        return self._inside(self._end, f"move {self._held} to {self._end}")

    def _put_away(self) -> str:
        """Get rid of the wrong object: here if it may stand here, else where it may."""
        assert self._held is not None
        fit = [place for place in self._places if _kind(place) in OBJECTS[_kind(self._held)].places]
        place = self._at if self._at in fit else fit[0]
        return self._inside(str(place), f"move {self._held} to {place}")

    def _first(self, kind: str) -> str:
        return next(place for place in reversed(self._places) if _kind(place) == kind)

    def _near(self, place: str, command: str) -> str:
        return command if place == self._at else f"go to {place}"

    def _inside(self, place: str, command: str) -> str:
        if place == self._at and place in self._closed:
            return f"open {place}"
        return self._near(place, command)

    # -- mistakes --------------------------------------------------------------------------------------------------

    def _wrong(self, right: str) -> str:
        """One of the mistakes that can be made here."""
        open_here = self._at is not None and self._at not in self._closed
        choices: list[tuple[float, Callable[[], str]]] = [(2.0, self._stray), (0.8, self._idle)]
        if self._held is None and open_here:
            choices += [(0.7, self._take_blindly)] + [(2.0, self._take_wrong)] * bool(self._takeable())
        if right.startswith("open "):
            choices.append((2.0, self._pass_by))
        if self._held and self.goal.do in CHANGES and self._held not in self._changed:
            choices.append((4.0, self._forget_change))
        elif self._held and self._at:
            choices.append((1.0, lambda: f"move {self._held} to {self._at}"))
        if self._held and self._at and self.goal.do in CHANGES:
            choices.append((0.5, lambda: f"{self.goal.do} {self._held} with {self._at}"))
        if open_here and _kind(str(self._at)) in OPENABLE:
            choices.append((0.5, lambda: f"close {self._at}"))
        return self._rng.choices([do for _, do in choices], [weight for weight, _ in choices])[0]()

    def _stray(self) -> str:
        return f"go to {self._rng.choice(self._places)}"

    def _idle(self) -> str:
        return self._rng.choice(("look", "inventory", f"examine {self._at}" if self._at else "look"))

    def _takeable(self) -> list[str]:
        here = self._seen.get(self._at or "", [])
        return [name for name in here if _kind(name) not in (self.goal.object, LAMP)]

    def _take_wrong(self) -> str:
        name = self._rng.choice(self._takeable())
        self._mistaken = name if self._rng.random() < 0.5 else None
        return f"take {name} from {self._at}"

    def _take_blindly(self) -> str:
        return f"take {self.goal.object} {self._rng.randint(1, 3)} from {self._at}"

    def _pass_by(self) -> str:
        """Leave a closed receptacle and take it for searched."""
        self._seen.setdefault(str(self._at), [])
        return self._stray()

    def _forget_change(self) -> str:
        self._changed.add(str(self._held))
        return self._deliver()


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def play(domain: Household, spec: Json, rng: random.Random, error: float, turns: int) -> tuple[Example, Score | None]:
    """A transcript and the score, None if the turns ran out."""
    task, world = domain.build(spec), parse(spec)
    episode = domain.episode(task)
    agent = Searcher(world, rng, error)
    written: list[Turn] = []
    while True:
        command = agent.command()
        step = episode.step(command)
        if step.score is not None or len(written) + 1 == turns:
            return Example(Chat(task.messages), (*written, Turn(command))), step.score
        written.append(Turn(command, step.messages))
        agent.read(command, step.messages[0].content)


# -- the simulator -------------------------------------------------------------------------------------------------


def edited(spec: Json, rng: random.Random) -> dict[str, Json]:
    """`spec` with one of its three fields changed: another goal, a few receptacles more or less, an object moved, added
    or taken away. Mostly a task; `build` has the last word."""
    goal, counts, entries = dict(spec["goal"]), dict(spec["places"]), [list(entry) for entry in spec["objects"]]
    _, places = known(heldout=False)
    field = rng.choices(("goal", "places", "objects"), (2, 3, 5))[0]
    if field == "goal" and goal["do"] != "look":
        goal["to"] = rng.choice([kind for kind in OBJECTS[goal["object"]].places if kind in counts])
    elif field == "goal":
        goal["object"] = rng.choice([entry[0] for entry in entries])
    elif field == "places":
        used = {entry[1] for entry in entries}
        free = [kind for kind, count in counts.items() if f"{kind} {count}" not in used]
        if free and rng.random() < 0.4:
            counts[rng.choice(free)] -= 1
        else:
            kind = rng.choice(places if rng.random() < 0.5 else sorted(counts))
            counts[kind] = min(MAX_KIND, counts.get(kind, 0) + rng.choice((1, 1, 2)))
        counts = {kind: counts[kind] for kind in sorted(counts) if counts[kind] > 0}
    else:
        _edit_objects(entries, goal["object"], counts, rng)
    return {"goal": goal, "places": counts, "objects": entries}


def _edit_objects(entries: list[list[str]], target: str, counts: dict[str, int], rng: random.Random) -> None:
    change = rng.random()
    spare = [i for i, entry in enumerate(entries) if entry[0] not in (target, LAMP)]
    if change < 0.6:
        entry = rng.choice([entry for entry in entries if entry[0] == target])
        entry[1] = _spot(entry[0], counts, rng)
    elif change < 0.85 or len(spare) < 2:
        objects = [kind for kind in known(heldout=False)[0] if kind not in (target, LAMP)]
        kind = rng.choice([kind for kind in objects if counts.keys() & set(OBJECTS[kind].places)])
        entries.append([kind, _spot(kind, counts, rng)])
    else:
        del entries[rng.choice(spare)]


def _spot(kind: str, counts: dict[str, int], rng: random.Random) -> str:
    place = rng.choice([place for place in OBJECTS[kind].places if place in counts])
    return f"{place} {rng.randint(1, counts[place])}"


def simulator_example(domain: Household, do: Action, edit: bool, rng: random.Random) -> Example:
    """A new house of the family, or an edit of the example; the direction is read off the answer."""
    spec = random_spec(do, rng, SMALL_PLACES)
    seed = Seed(domain.build(spec).family, spec)
    answer = edited(spec, rng) if edit else random_spec(do, rng, SMALL_PLACES)
    target = Seed(domain.build(answer).family, answer)
    direction = domain.direction(seed, target)
    if answer == spec or (edit and direction == "similar" and rng.random() < TOO_SIMILAR):
        raise SpecError("duplicate", "little was changed")
    success = rng.choice((None, rng.random(), rng.random()))
    chat, _ = domain.simulator_chat(seed, success, direction, rng.getrandbits(32), target, edit=edit)
    return Example(chat, (Turn(json.dumps(answer, separators=(",", ":"))),))


def examples(rng: random.Random) -> Iterator[Example]:
    """An endless stream: transcripts of the agent and examples of the simulator."""
    domain = Household()
    while True:
        do, agent, edit, large = (
            rng.choice(tuple(FAMILIES)),
            rng.random() < AGENT,
            rng.random() < EDIT,
            rng.random() < LARGE,
        )
        while True:  # rejections must not shift the shares
            try:
                if agent:
                    spec = random_spec(do, rng, LARGE_PLACES if large else SMALL_PLACES)
                    error = rng.uniform(0.0, MAX_ERROR)
                    yield play(domain, spec, rng, error, LARGE_TURNS if large else TURNS)[0]
                else:
                    yield simulator_example(domain, do, edit, rng)
                break
            except SpecError:
                continue  # a goal that holds from the start, an edit that leaves no task or changes little


# -- measured ------------------------------------------------------------------------------------------------------


def parts(example: Example) -> tuple[list[str], list[str]]:
    """The texts of the prompt, and those that come after it."""
    rest = [text for turn in example.turns for text in (turn.text, *(m.content for m in turn.answer))]
    return [m.content for m in example.chat.messages], rest


def frequent_words(encode: Callable[[str], list[int]], count: int, seed: int, most: int = 250) -> list[str]:
    """The words of `count` examples that cost more than a token, by the tokens that they would save."""
    found: Counter[str] = Counter()
    for example, _ in zip(examples(random.Random(seed)), range(count), strict=False):
        found.update(word for part in parts(example) for text in part for word in re.findall(r"[A-Za-z]+", text))
    saved = {word: n * (len(encode(word)) - 1) for word, n in found.items()}
    ranked = sorted(saved, key=lambda word: (-saved[word], word))
    return [word for word in ranked[:most] if saved[word] > 0]


def main() -> None:
    from transformers import AutoTokenizer

    from genenv.engines.chat import TemplateFormat
    from genenv.models import TINY, resolve

    tokenizer = AutoTokenizer.from_pretrained(resolve(TINY))

    def encode(word: str) -> list[int]:
        return list(tokenizer.encode(word, add_special_tokens=False))

    costs = {word: len(encode(word)) for word in WORDS}
    chat = TemplateFormat(tokenizer)
    domain, rng = Household(), random.Random(0)
    won: dict[str, list[list[bool]]] = defaultdict(list)
    for do, family in FAMILIES.items():
        while len(won[family]) < 500:
            try:
                example, score = play(domain, random_spec(do, rng, SMALL_PLACES), rng, rng.uniform(0, MAX_ERROR), 50)
            except SpecError:
                continue
            used = len(example.turns) if score is not None and score.value == 1.0 else 99
            won[family].append([used <= limit for limit in (8, 10, 12, 16, 50)])
    for family, rows in won.items():
        print(
            family, "won within 8, 10, 12, 16, 50:", [f"{sum(col) / len(col):.0%}" for col in zip(*rows, strict=True)]
        )
    start, count = time.process_time(), 2000
    sample = [e for e, _ in zip(examples(random.Random(1)), range(count), strict=False)]
    print(f"{count / (time.process_time() - start):.0f} examples a second")
    lengths: dict[str, list[int]] = defaultdict(list)
    for e in sample:
        prompt = len(chat.encode(e.chat))
        rest = sum(len(chat.encode_text(t.text)) + 1 + len(chat.turn(t.answer, True)) * bool(t.answer) for t in e.turns)
        less = [sum(costs.get(w, 1) - 1 for text in part for w in re.findall(r"[A-Za-z]+", text)) for part in parts(e)]
        kind = "agent" if e.turns[-1].text[:1] != "{" else "simulator"
        lengths[f"{kind} prompt"].append(prompt)
        lengths[f"{kind} whole"].append(prompt + rest)
        lengths[f"{kind} prompt with WORDS"].append(prompt - less[0])
        lengths[f"{kind} whole with WORDS"].append(prompt + rest - sum(less))
    for kind, values in lengths.items():
        values.sort()
        print(f"{kind}: mean {sum(values) / len(values):.0f}, 95% {values[int(0.95 * len(values))]}, max {values[-1]}")
    print(" ".join(frequent_words(encode, 4000, seed=2)))


if __name__ == "__main__":
    main()

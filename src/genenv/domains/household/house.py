"""The built-in engine: ALFWorld's text game for one world, in plain Python.

It says what the TextWorld engine says with ALFWorld's own domain and grammar, byte for byte
(`tests/integration/test_household_textworld.py`), and takes the same commands and no others. Its rules, from that PDDL:

- The agent starts away from all receptacles, goes from one to another in one command, and holds at most one object.
- Only what is held, or the receptacle that one is at, can be examined.
- A closed receptacle hides what stands in it; it need not be open to heat, cool or clean something.
- A lamp that was used once stays on. Slicing reaches into closed receptacles.
"""

from __future__ import annotations

from collections.abc import Iterator

from genenv.domains.household.things import OBJECTS, OPENABLE
from genenv.domains.household.world import CHANGES, LAMP, State, World

NOTHING = "Nothing happens."
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
_ROOM = "You are in the middle of a room. Looking quickly around you, you see "
KNIVES = ("knife", "butterknife")

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


class House:
    """A game in progress (`alfworld_games.Game`); `do` takes any text."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at: str | None = None
        self.held: str | None = None
        self.opened: set[str] = set()
        self.used: set[str] = set()
        self.sliced: set[str] = set()
        self.states: dict[str, set[State]] = {thing.name: set() for thing in world.objects}
        self.inside: dict[str, list[str]] = {place.name: [] for place in world.places}
        for thing in world.objects:
            self.inside[world.where[thing.name]].append(thing.name)
        for name, state in world.states.items():
            self.states[name].add(state)

    # -- what the agent reads --------------------------------------------------------------------------------------

    def first(self) -> str:
        seen = _listed([place.name for place in self.world.places])
        return f"{WELCOME}\n\n{_ROOM}{seen}.\n\nYour task is to: {self.world.goal.text}"

    def do(self, command: str) -> tuple[str, bool]:
        return self._step(command), self.won

    def close(self) -> None:
        """Nothing to release."""

    def _step(self, command: str) -> str:
        command = command.strip()
        match command:
            case "look":
                return self._look()
            case "inventory":
                return f"You are carrying: a {self.held}." if self.held else "You are not carrying anything."
            case "help":
                return HELP
        verb, _, rest = command.partition(" ")
        match verb:
            case "go":
                return self._go(rest.removeprefix("to ")) if rest.startswith("to ") else NOTHING
            case "open" | "close":
                return self._turn(verb, rest)
            case "examine":
                return self._examine(rest)
            case "use":
                return self._use(rest)
            case "take":
                return self._take(*_two(rest, " from "))
            case "move":
                return self._move(*_two(rest, " to "))
            case "slice":
                return self._slice(*_two(rest, " with "))
            case "clean" | "heat" | "cool":
                return self._change(verb, *_two(rest, " with "))
        return NOTHING

    @property
    def won(self) -> bool:
        goal, kinds = self.world.goal, self.world.kinds
        if goal.do == "look":
            near = self.inside[self.at] if self.at else []
            lit = any(name in self.used and kinds[name] == LAMP for name in near)
            return lit and self.held is not None and kinds[self.held] == goal.object
        state = CHANGES[goal.do][0] if goal.do in CHANGES else None
        for place in self.world.places:
            if place.kind == goal.to:
                right = [
                    name
                    for name in self.inside[place.name]
                    if kinds[name] == goal.object and (state is None or state in self.states[name])
                ]
                if len(right) >= (2 if goal.do == "two" else 1):
                    return True
        return False

    def possible(self) -> list[str]:
        """The commands that do something now, sorted."""
        return sorted(self._possible())

    def _possible(self) -> Iterator[str]:
        yield from ("look", "inventory", "help")
        yield from (f"go to {place.name}" for place in self.world.places if place.name != self.at)
        if self.held:
            yield f"examine {self.held}"
        if self.at is None:
            return
        yield f"examine {self.at}"
        kind = self.world.kinds[self.at]
        if kind in OPENABLE:
            yield f"{'close' if self.at in self.opened else 'open'} {self.at}"
        for name in self.inside[self.at]:
            thing = OBJECTS[self.world.kinds[name]]
            if self._visible(self.at) and self.held is None and "fixed" not in thing.can:
                yield f"take {name} from {self.at}"
            if self.world.kinds[name] == LAMP:
                yield f"use {name}"
            if "slice" in thing.can and self.held and self.world.kinds[self.held] in KNIVES:
                yield f"slice {name} with {self.held}"
        if self.held:
            thing = OBJECTS[self.world.kinds[self.held]]
            if self._visible(self.at) and kind in thing.places:
                yield f"move {self.held} to {self.at}"
            for verb, (_, appliance) in CHANGES.items():
                if kind == appliance and verb in thing.can:
                    yield f"{verb} {self.held} with {self.at}"

    # -- commands --------------------------------------------------------------------------------------------------

    def _visible(self, place: str) -> bool:
        return self.world.kinds[place] not in OPENABLE or place in self.opened

    def _look(self) -> str:
        if self.at:
            return f"You are facing the {self.at}. Next to it, you see nothing."
        return f"{_ROOM}nothing."  # the game lists what is where the agent stands; the first observation lists all

    def _content(self, place: str) -> str:
        if not self._visible(place):
            return f"The {place} is closed."
        seen = _listed(self.inside[place])
        if self.world.kinds[place] in OPENABLE:
            return f"The {place} is open. In it, you see {seen}."
        return f"On the {place}, you see {seen}."

    def _go(self, place: str) -> str:
        if place not in self.inside or place == self.at:
            return NOTHING
        self.at = place
        return f"You arrive at {place}. {self._content(place)}"

    def _turn(self, verb: str, place: str) -> str:
        if place != self.at or self.world.kinds[place] not in OPENABLE or (place in self.opened) != (verb == "close"):
            return NOTHING
        if verb == "close":
            self.opened.remove(place)
            return f"You close the {place}."
        self.opened.add(place)
        return f"You open the {place}. {self._content(place)}"

    def _take(self, name: str, place: str) -> str:
        if self.held or place != self.at or not self._visible(place) or name not in self.inside[place]:
            return NOTHING
        if "fixed" in OBJECTS[self.world.kinds[name]].can:
            return NOTHING
        self.inside[place].remove(name)
        self.held = name
        return f"You pick up the {name} from the {place}."

    def _move(self, name: str, place: str) -> str:
        if not name or name != self.held or place != self.at or not self._visible(place):
            return NOTHING
        if self.world.kinds[place] not in OBJECTS[self.world.kinds[name]].places:
            return NOTHING
        self.inside[place] = sorted([*self.inside[place], name], key=self.world.order.__getitem__)
        self.held = None
        return f"You move the {name} to the {place}."

    def _change(self, verb: str, name: str, place: str) -> str:
        if not name or name != self.held or place != self.at:
            return NOTHING
        for action, (state, appliance) in CHANGES.items():
            if action == verb and self.world.kinds[place] == appliance:
                if verb not in OBJECTS[self.world.kinds[name]].can:
                    return NOTHING
                self.states[name] -= {"hot": {"cool"}, "cool": {"hot"}}.get(state, set())
                self.states[name].add(state)
                return f"You {verb} the {name} using the {place}."
        return NOTHING

    def _use(self, name: str) -> str:
        if self.at is None or name not in self.inside[self.at] or self.world.kinds[name] != LAMP:
            return NOTHING
        self.used.add(name)
        return f"You turn on the {name}."

    def _slice(self, name: str, knife: str) -> str:
        if not knife or knife != self.held or self.world.kinds[knife] not in KNIVES or self.at is None:
            return NOTHING
        if name not in self.inside[self.at] or "slice" not in OBJECTS[self.world.kinds[name]].can:
            return NOTHING
        self.sliced.add(name)
        return f"You sliced the {name} with the {knife}."

    def _examine(self, name: str) -> str:
        if name == self.at:
            return self._content(name)
        if not name or name != self.held:
            return NOTHING
        if "hollow" in OBJECTS[self.world.kinds[name]].can:
            return f"This is a normal {name}. In it, you see nothing."
        states, cut = self.states[name], name in self.sliced
        words = []
        if "hot" in states:
            words = ["hot and clean" if "clean" in states else "hot"]
        elif "cool" in states:
            words = ["cool and clean" if "clean" in states else "cool"]
        elif "clean" in states:
            words = ["clean"]
        if words == ["cool"] and not cut:
            words = ["cold"]
        words += ["sliced"] * cut
        if not words:
            return f"There's nothing special about {name}."
        return f"This is a {' '.join(words)} {name}."


def _two(text: str, between: str) -> tuple[str, str]:
    """The two things that a command names, empty if it does not."""
    first, _, second = text.partition(between)
    return (first, second) if second else ("", "")


def _listed(names: list[str]) -> str:
    """`a mug 1, a pen 2, and a pen 1`."""
    if not names:
        return "nothing"
    words = [f"a {name}" for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"

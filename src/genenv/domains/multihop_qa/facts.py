"""Facts of multihop_qa: the relations, their wordings, what a sound world is, and the names of random ones.

A relation leads from an entity of one kind to the one entity of another kind. Its name is a word of every wording, of
facts and of questions, so a search for `ENTITY RELATION` ranks the fact first. All wordings of a question end with
what they speak of, so nested ones read one way: `the mayor of the birthplace of the author of Red Vale`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from genenv.benchmarks.search import normalized
from genenv.contracts.domain import SpecError
from genenv.contracts.types import derive_seed
from genenv.reading.parsing import shorten

NAME = "[A-Z][a-z]{1,11}( [A-Z][a-z]{1,11}){0,2}"
_NAME = re.compile(NAME)


class Fact(NamedTuple):
    """`relation` leads from `subject` to `object`."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class Relation:
    """Kinds of subject and object, the words of a question before its subject, and two wordings of a fact."""

    subject: str
    object: str
    phrase: str
    wordings: tuple[str, str]


RELATIONS = {
    "birthplace": Relation("person", "city", "the birthplace of",
                           ("{s} has {o} as birthplace.", "{o} is the birthplace of {s}.")),
    "employer": Relation("person", "company", "the employer of",
                         ("{s} has the employer {o}.", "{o} is the employer of {s}.")),
    "teacher": Relation("person", "person", "the teacher of",
                        ("{s} had the teacher {o}.", "{o} was the teacher of {s}.")),
    "doctor": Relation("person", "person", "the doctor of",
                       ("{s} sees the doctor {o}.", "{o} is the doctor of {s}.")),
    "school": Relation("person", "school", "the school of",
                       ("{s} went to school at {o}.", "{o} was the school of {s}.")),
    "author": Relation("book", "person", "the author of",
                       ("{s} names {o} as author.", "{o} is the author of {s}.")),
    "publisher": Relation("book", "company", "the publisher of",
                          ("{s} has the publisher {o}.", "{o} is the publisher of {s}.")),
    "director": Relation("film", "person", "the director of",
                         ("{s} has the director {o}.", "{o} is the director of {s}.")),
    "studio": Relation("film", "company", "the studio of",
                       ("{s} was made by the studio {o}.", "{o} is the studio of {s}.")),
    "novel": Relation("film", "book", "the novel behind",
                      ("{s} follows the novel {o}.", "{o} is the novel behind {s}.")),
    "founder": Relation("company", "person", "the founder of",
                        ("{s} honors the founder {o}.", "{o} was the founder of {s}.")),
    "seat": Relation("company", "city", "the seat of",
                     ("{s} has its seat in {o}.", "{o} is the seat of {s}.")),
    "country": Relation("city", "country", "the country of",
                        ("{s} lies in the country {o}.", "{o} is the country of {s}.")),
    "mayor": Relation("city", "person", "the mayor of",
                      ("{s} has elected {o} as mayor.", "{o} is the mayor of {s}.")),
    "river": Relation("city", "river", "the river of",
                      ("{s} stands on the river {o}.", "{o} is the river of {s}.")),
    "president": Relation("country", "person", "the president of",
                          ("{s} has elected {o} as president.", "{o} is the president of {s}.")),
    "poet": Relation("country", "person", "the national poet of",
                     ("{s} honors the poet {o}.", "{o} is the national poet of {s}.")),
    "mouth": Relation("river", "city", "the city at the mouth of",
                      ("{s} has its mouth at {o}.", "{o} lies at the mouth of {s}.")),
    "explorer": Relation("river", "person", "the explorer of",
                         ("{s} was mapped by the explorer {o}.", "{o} was the explorer of {s}.")),
    "principal": Relation("school", "person", "the principal of",
                          ("{s} is led by the principal {o}.", "{o} is the principal of {s}.")),
    "town": Relation("school", "city", "the town of",
                     ("{s} stands in the town {o}.", "{o} is the town of {s}.")),
}  # fmt: skip
KINDS = tuple(dict.fromkeys(r.subject for r in RELATIONS.values()))
FROM = {kind: tuple(name for name, r in RELATIONS.items() if r.subject == kind) for kind in KINDS}
"""The relations that lead on from a kind of entity."""


def is_name(text: str) -> bool:
    """Whether a text is one to three capitalised words."""
    return _NAME.fullmatch(text) is not None


def sentence(fact: Fact) -> str:
    """The passage that states a fact: one of the two wordings, always the same one."""
    wordings = RELATIONS[fact.relation].wordings
    return wordings[derive_seed(*fact) % len(wordings)].format(s=fact.subject, o=fact.object)


def read(passage: str, subject: str, relation: str) -> str | None:
    """Where `relation` leads from `subject` according to a passage, None if it does not tell."""
    for wording in RELATIONS[relation].wordings:
        before, _, after = wording.format(s=subject, o="\0").partition("\0")
        name = passage.removeprefix(before).removesuffix(after)
        if is_name(name) and before + name + after == passage:
            return name
    return None


def question(start: str, path: Sequence[str]) -> str:
    """What is asked for: where the relations of `path` lead from `start`, one after the other."""
    asks = ("Who is {}?" if RELATIONS[path[-1]].object == "person" else "What is {}?", "Name {}.")
    phrases = [RELATIONS[relation].phrase for relation in reversed(path)]
    return asks[derive_seed(start, *path) % len(asks)].format(" ".join([*phrases, start]))


def walk(facts: Sequence[Fact], start: str, path: Sequence[str]) -> list[str]:
    """The names that a query along `path` visits, `start` first. Raises SpecError unless the facts are a sound world.

    Sound: names and relations are what they must be, each name is of one kind, a relation leads from a subject to one
    object, nothing is related to itself; the query visits no name twice and no other fact joins two that it visits.
    """
    kinds: dict[str, str] = {}
    objects: dict[tuple[str, str], str] = {}
    for fact in facts:
        relation = RELATIONS.get(fact.relation)
        if relation is None:
            raise SpecError("schema", f"unknown relation {shorten(fact.relation)!r}")
        for name, kind in ((fact.subject, relation.subject), (fact.object, relation.object)):
            if not is_name(name):
                raise SpecError("schema", f"{shorten(name)!r} is no name of one to three capitalised words")
            if kinds.setdefault(name, kind) != kind:
                raise SpecError("schema", f"{name} is a {kinds[name]} and a {kind}")
        if fact.subject == fact.object:
            raise SpecError("schema", f"{fact.subject} is related to itself")
        if (fact.subject, fact.relation) in objects:
            raise SpecError("schema", f"{fact.subject} has two facts of {fact.relation}")
        objects[fact.subject, fact.relation] = fact.object
    normal = {" ".join(normalized(name)) for name in kinds}
    if len(normal) < len(kinds) or "" in normal:
        raise SpecError("schema", "two names are the same, or one is none, without case and articles")
    visited = [start]
    for relation_name in path:
        visited.append(objects[visited[-1], relation_name])
    if len(set(visited)) < len(visited):
        raise SpecError("schema", "the hops lead to a name twice")
    if sum(fact.subject in visited and fact.object in visited for fact in facts) > len(path):
        raise SpecError("schema", "another fact joins two names of the path: a hop can be skipped")
    return visited


# -- names of random worlds ------------------------------------------------------------------------------------

Pool = tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """Made-up words for names: for each kind those that may come first and those that may come last."""

    pools: dict[str, tuple[Pool, Pool]]

    def draw(self, kind: str, rng: random.Random) -> str:
        first, last = self.pools[kind]
        return f"{rng.choice(first)} {rng.choice(last)}".strip()


def names(words: dict[str, Pool]) -> Names:
    """Names of all kinds over the words for given names, surnames, cities, countries, rivers and titles."""
    return Names(
        {
            "person": (words["given"], words["surname"]),
            "book": (words["quality"], words["thing"]),
            "film": (words["quality"], words["scene"]),
            "company": (words["surname"], ("Works", "Mills", "House", "Group")),
            "city": (("", "", "Port", "Old", "North"), words["city"]),
            "country": (("", "", "New", "East", "Upper"), words["country"]),
            "river": (("", "", "Little", "Black", "Long"), words["river"]),
            "school": (words["city"], ("College", "Academy", "Hall", "Institute")),
        }
    )


WORDS: dict[str, Pool] = {
    role: tuple(text.split())
    for role, text in {
        "given": "Orla Tam Ilse Bren Davi Keth Mira Oskar Pelle Runa Sefa Tolo Ansel Birgo Cora Dunja Edda Fenn Gisa "
        "Hanno Iven Jora Kasper Lior Maren Nilo Odile Piet Quin Rosel",
        "surname": "Venn Korr Dask Halm Brisk Falk Greel Jarn Lorne Mott Nesk Pryce Quill Rusk Sorrel Tarn Ulver Vask "
        "Wend Yarrow Abner Boll Cray Drumm Ekker Flood Grist Hobb Ister Jolk",
        "city": "Tellin Varn Osmar Bruk Calder Dorrin Elsk Fenwick Garlo Hestor Imber Jaska Kelmo Lund Merrow Norvik Ostra "
        "Pelham Rask Stavik Torvi Umbra Velmo Wexley",
        "country": "Morvia Kestland Aldoria Belmar Corvania Drelland Estovia Frennia Galdor Hovenia Ilmaria Jorland "
        "Karvia Lethia Mondria Norland Opalia Pelonia",
        "river": "Sarn Ebba Dwell Firth Gane Isk Loam Mede Orrin Pell Rhoda Sull Tresk Ullen Wyth Yarle Zenn Brock",
        "quality": "Glass Silent Crimson Hollow Golden Winter Broken Distant Paper Iron Velvet Burning Hidden Bitter "
        "Wild Frozen Amber Gentle Naked Rusty Silver Tidal Sunken Woven",
        "thing": "Orchard Letter Mirror Garden Compass Lantern Key Harvest Ladder Feather Atlas Candle Basket Needle "
        "Anchor Bell Carpet Drum",
        "scene": "Harbor Midnight Station Parade Canyon Shadow Carnival Horizon Bridge Island Desert Avenue Ballroom "
        "Summit Tunnel Meadow Rooftop Lagoon",
    }.items()
}
"""The last sixth of each kind of word is held out."""
ALL = names(WORDS)
TRAIN = names({role: words[: -(len(words) // 6)] for role, words in WORDS.items()})

"""multihop_qa: one episode by hand, every way in which a specification is no task, hostile agents, an independent reader."""

from __future__ import annotations

import copy
import json
import random
import re
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import llguidance
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ANY_TEXT, examples

from genenv.benchmarks.bamboogle import INSTRUCTIONS, SEARCHING, TOOL
from genenv.contracts.domain import SpecError
from genenv.contracts.errors import InputError
from genenv.contracts.types import Message, Score, Seed
from genenv.domains.multihop_qa.domain import SIMULATOR_INSTRUCTIONS, MultihopQa, answer_turn, search_call
from genenv.domains.multihop_qa.facts import ALL, RELATIONS, TRAIN, WORDS, Fact, question, read, sentence
from genenv.loop.gate import Gate

ROOT = Path(__file__).parents[3]
DOMAIN = MultihopQa()
SPEC: dict[str, Any] = {
    "start": "Red Vale",
    "hops": [["author", "Orla Venn"], ["birthplace", "Tellin"], ["mayor", "Tam Korr"]],
    "others": [
        ["Red Vale", "publisher", "Halm Works"],
        ["Old Vale", "author", "Bren Dask"],
        ["Tellin", "river", "Sarn"],
    ],
}
HELD = {word for words in WORDS.values() for word in words[-(len(words) // 6) :]}


def changed(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SPEC), **fields}


def test_an_episode() -> None:
    task = DOMAIN.build(SPEC)
    assert task.family == "3-hop"
    assert task.tools == (TOOL,)
    assert task.messages == (
        Message("system", INSTRUCTIONS + SEARCHING),
        Message("user", "Who is the mayor of the birthplace of the author of Red Vale?"),
    )
    assert task.target == {
        "answer": "Tam Korr",
        "passages": [
            "Old Vale names Bren Dask as author.",
            "Orla Venn has Tellin as birthplace.",
            "Orla Venn is the author of Red Vale.",
            "Red Vale has the publisher Halm Works.",
            "Tam Korr is the mayor of Tellin.",
            "Tellin stands on the river Sarn.",
        ],
    }
    assert DOMAIN.reference(task) == [
        '<tool_call>{"name":"search","arguments":{"query":"Red Vale author"}}</tool_call>',
        '<tool_call>{"name":"search","arguments":{"query":"Orla Venn birthplace"}}</tool_call>',
        '<tool_call>{"name":"search","arguments":{"query":"Tellin mayor"}}</tool_call>',
        "<answer>Tam Korr</answer>",
    ]
    episode = DOMAIN.episode(task)
    told = [[m.content for m in episode.step(turn).messages] for turn in DOMAIN.reference(task)[:3]]
    assert told == [
        [
            "1. Orla Venn is the author of Red Vale.\n2. Red Vale has the publisher Halm Works.\n"
            "3. Old Vale names Bren Dask as author."
        ],
        ["1. Orla Venn has Tellin as birthplace.\n2. Orla Venn is the author of Red Vale."],
        [
            "1. Tam Korr is the mayor of Tellin.\n2. Tellin stands on the river Sarn.\n"
            "3. Orla Venn has Tellin as birthplace."
        ],
    ]
    step = episode.step("So it is <answer>tam korr.</answer>")
    assert (step.score, step.messages) == (Score(1.0, "right", "tam korr."), ())
    episode.close()


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<answer>Tam Korr</answer>", Score(1.0, "right", "Tam Korr")),
        ("Answer: the Tam Korr!", Score(1.0, "right", "the Tam Korr!")),
        ("Tam Korr", Score(1.0, "right", "Tam Korr")),  # read as the benchmark reads it: alone on a single line
        ("It is Tam Korr", Score(0.0, "'It is Tam Korr' is not the answer", "It is Tam Korr")),
        ("<answer>Tam Korr or Sarn</answer>", Score(0.0, "'Tam Korr or Sarn' is not the answer", "Tam Korr or Sarn")),
        ("<answer>Tellin</answer>", Score(0.0, "'Tellin' is not the answer", "Tellin")),
        ("<answer>Tam</answer>", Score(0.0, "'Tam' is not the answer", "Tam")),
        ("<answer></answer>", Score(0.0, "malformed: empty answer")),
        ("", Score(0.0, "malformed: no answer")),
        ("I think.\nTam Korr", Score(0.0, "malformed: no answer")),
        ("<answer>Tam Korr", Score(0.0, "malformed: unclosed <answer>")),
    ],
)
def test_what_is_right(text: str, score: Score) -> None:
    assert DOMAIN.episode(DOMAIN.build(SPEC)).step(text).score == score


def test_searches_that_fail_are_told_and_turns_end() -> None:
    episode = DOMAIN.episode(DOMAIN.build(SPEC))
    texts = [
        search_call("zebra"),
        "<tool_call>{",
        '<tool_call>{"name":"find","arguments":{"query":"Tellin"}}</tool_call>',
        '<tool_call>{"name":"search","arguments":{"query":7}}</tool_call>',
        search_call("Red Vale author") + answer_turn("Tam Korr"),
        *[search_call("Tellin")] * 2,
    ]
    told = [episode.step(text).messages[0] for text in texts]
    assert [m.content for m in told[:4]] == [
        "nothing found",
        "error: not JSON: Expecting property name enclosed in double quotes at character 12",
        "error: expected a call of search with a query",
        "error: expected a call of search with a query",
    ]
    assert told[4].content.startswith("1. Orla Venn is the author")
    assert {m.role for m in told} == {"tool"}
    assert episode.step(search_call("Tellin")).score == Score(0.0, "out of turns")
    late = DOMAIN.episode(DOMAIN.build(SPEC))
    for text in texts:
        late.step(text)
    assert late.step(answer_turn("Tam Korr")).score == Score(1.0, "right", "Tam Korr")


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({k: v for k, v in SPEC.items() if k != "start"}, "schema: start: Field required"),
        (changed(answer="Tam Korr"), "schema: answer: Extra inputs are not permitted"),
        (changed(hops=[]), "schema: hops: List should have at least 1 item after validation, not 0"),
        (changed(hops=[["author"]]), "schema: hops.0: List should have at least 2 items after validation, not 1"),
        (
            changed(others=SPEC["others"][:1]),
            "schema: others: List should have at least 2 items after validation, not 1",
        ),
        (changed(start=7), "schema: start: Input should be a valid string"),
        (changed(hops=[["teacher", f"Name {x}"] for x in "abcde"]), "schema: 5 hops, at most 4 are asked for"),
        (changed(hops=[["aunt", "Orla Venn"]]), "schema: unknown relation 'aunt'"),
        (changed(start="red vale"), "schema: 'red vale' is no name of one to three capitalised words"),
        (changed(start="Red Vale\n"), "schema: 'Red Vale\\n' is no name of one to three capitalised words"),
        (changed(start="\ud800"), "schema: '\\ud800' is no name of one to three capitalised words"),
        (changed(hops=[["author", "Orla Venn"], ["mayor", "Tam Korr"]]), "schema: Orla Venn is a person and a city"),
        (changed(hops=[["author", "Red Vale"]]), "schema: Red Vale is a book and a person"),
        (
            changed(hops=[["author", "Orla Venn"], ["teacher", "Orla Venn"]]),
            "schema: Orla Venn is related to itself",
        ),
        (changed(hops=[["publisher", "Dask House"]]), "schema: Red Vale has two facts of publisher"),
        (
            changed(hops=[["author", "The Tam"], ["teacher", "Tam"]]),
            "schema: two names are the same, or one is none, without case and articles",
        ),
        (
            changed(hops=[["author", "The An"]]),
            "schema: two names are the same, or one is none, without case and articles",
        ),
        (
            changed(hops=[["author", "Orla Venn"], ["teacher", "Tam Korr"], ["doctor", "Orla Venn"]]),
            "schema: the hops lead to a name twice",
        ),
        (
            changed(
                hops=[["author", "Orla Venn"], ["teacher", "Bo Halm"], ["doctor", "Tam Korr"]],
                others=[["Orla Venn", "doctor", "Tam Korr"], ["Old Vale", "author", "Bren Dask"]],
            ),
            "schema: another fact joins two names of the path: a hop can be skipped",
        ),
        (
            changed(
                hops=[["author", "Orla Venn"], ["teacher", "Bo Halm"], ["doctor", "Tam Korr"]],
                others=[["Tam Korr", "teacher", "Orla Venn"], ["Old Vale", "author", "Bren Dask"]],
            ),
            "schema: another fact joins two names of the path: a hop can be skipped",
        ),
        (changed(hops=[["author", "Vale"]]), "leak: Vale stands in the question"),
        (changed(hops=[["author", "Author"], ["birthplace", "Tellin"]]), "leak: Author stands in the question"),
    ],
)
def test_what_is_no_task(spec: dict[str, Any], error: str) -> None:
    with pytest.raises(SpecError, match=re.escape(error) + "$"):
        DOMAIN.build(spec)


def test_a_passage_that_search_does_not_return_is_found_by_the_gate() -> None:
    """Three longer names repeat the words of the needed one and push its passage off the list."""
    others = [[f"Vale Vale {last}", "author", f"Bren {last}"] for last in ("Vale", "Vole", "Vile")]
    task = DOMAIN.build({"start": "Vale", "hops": [["author", "Orla Venn"]], "others": others})
    assert DOMAIN.reference(task) == [search_call("Vale author")]
    assert Gate(DOMAIN).judge(task).reason == "reference_fails"


def test_questions() -> None:
    assert [question(f"Ab {c}x", ["mouth"]) for c in "AD"] == [
        "What is the city at the mouth of Ab Ax?",
        "Name the city at the mouth of Ab Dx.",
    ]
    assert question("Ab Bx", ["mouth", "mayor"]) == "Who is the mayor of the city at the mouth of Ab Bx?"


@pytest.mark.parametrize("relation", RELATIONS)
def test_wordings(relation: str) -> None:
    """Both wordings hold the relation's name, at most twelve words, and are read back, as no other relation or subject."""
    for wording in RELATIONS[relation].wordings:
        passage = wording.format(s="Ab Cd Ef", o="Gh Ij Kl")
        assert relation in passage.rstrip(".").split()
        assert len(passage.split()) <= 12
        assert read(passage, "Ab Cd Ef", relation) == "Gh Ij Kl"
        assert [read(passage, "Cd Ef", relation), read(passage, "Gh Ij Kl", relation)] == [None, None]
        assert read("Gh Ij Kl", "Ab Cd Ef", relation) is None
        assert not any(read(passage, "Ab Cd Ef", other) for other in RELATIONS if other != relation)
    assert relation in RELATIONS[relation].phrase.split()
    sentences = {sentence(Fact(f"Ab {c}x", relation, "Gh")).replace(f"Ab {c}x", "S") for c in "ABCDEFGHIJKLMNOP"}
    assert sentences == {wording.format(s="S", o="Gh") for wording in RELATIONS[relation].wordings}


# -- seeds and simulator ---------------------------------------------------------------------------------------


def test_seeds_and_heldout_tasks() -> None:
    seeds, tasks = DOMAIN.seeds(400, 3), DOMAIN.heldout(400, 3)
    assert seeds == DOMAIN.seeds(400, 3) != DOMAIN.seeds(400, 4)
    assert tasks == DOMAIN.heldout(400, 3)
    assert Counter(s.family for s in seeds) == Counter(t.family for t in tasks) == dict.fromkeys(DOMAIN.families, 100)
    assert [DOMAIN.build(s.spec).family for s in seeds] == [s.family for s in seeds]
    words = Counter(re.findall("[A-Z][a-z]+", json.dumps([t.spec for t in tasks])))
    assert not HELD & set(re.findall("[A-Z][a-z]+", json.dumps([s.spec for s in seeds])))
    own = {word: n for word, n in words.items() if word in {w for pool in WORDS.values() for w in pool}}
    assert 0.13 < sum(n for word, n in own.items() if word in HELD) / sum(own.values()) < 0.19
    assert all(4 <= len(t.target["passages"]) <= 9 for t in tasks)


def test_larger_worlds_are_made_on_request() -> None:
    domain = MultihopQa(hops=6, others=30)
    assert domain.families == ("1-hop", "2-hop", "3-hop", "4-hop", "5-hop", "6-hop")
    assert max(len(s.spec["others"]) for s in domain.seeds(60, 0)) > 20
    gate = Gate(domain)
    assert sum(gate.judge(domain.build(s.spec)).admitted for s in domain.seeds(60, 0)) >= 55


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"hops": 0}, "hops 0: expected 1 to 6"), ({"hops": 7}, "hops 7"), ({"others": 2}, "others 2: expected 3 to 30")],
)
def test_sizes_out_of_range_are_refused(arguments: dict[str, int], error: str) -> None:
    with pytest.raises(InputError, match=f"multihop_qa: {error}"):
        MultihopQa(**arguments)


def test_direction() -> None:
    seed = Seed("3-hop", SPEC)
    more = Seed("3-hop", changed(others=[*SPEC["others"], ["Sarn", "mouth", "Varn"]]))
    fewer = Seed("2-hop", {**more.spec, "hops": SPEC["hops"][:2]})
    assert DOMAIN.direction(seed, seed) == "similar"
    assert DOMAIN.direction(seed, more) == "harder"
    assert DOMAIN.direction(more, seed) == "easier"
    assert DOMAIN.direction(seed, fewer) == "easier"  # hops weigh more


def test_what_the_simulator_reads() -> None:
    chat, schema = DOMAIN.simulator_chat(Seed("3-hop", SPEC), 0.4, "harder", 0)
    assert chat.messages == (
        Message("system", SIMULATOR_INSTRUCTIONS),
        Message(
            "user",
            'Example: {"start":"Red Vale","hops":[["author","Orla Venn"],["birthplace","Tellin"],["mayor","Tam Korr"]],'
            '"others":[["Red Vale","publisher","Halm Works"],["Old Vale","author","Bren Dask"],["Tellin","river","Sarn"]]}\n'
            "Family: 3-hop. Solved: 40%. Write a new task, harder.",
        ),
    )
    assert "\nriver: mouth city, explorer person\n" in SIMULATOR_INSTRUCTIONS
    assert list(schema["properties"]) == ["start", "hops", "others"]
    ends = [
        DOMAIN.simulator_chat(Seed("3-hop", SPEC), None, way, 0, edit=True)[0].messages[1].content.rpartition("\n")[2]
        for way in ("easier", "similar", "harder")
    ]
    assert ends == [
        "Family: 3-hop. Solved: unknown. Change one thing in it so that it gets easier.",
        "Family: 3-hop. Solved: unknown. Change one thing in it, equally hard.",
        "Family: 3-hop. Solved: unknown. Change one thing in it so that it gets harder.",
    ]


def allows(schema: Any, spec: Any) -> bool:
    """Whether a text can be sampled under a schema, byte by byte."""
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    assert not matcher.get_error()
    tokens = tokenizer.tokenize_str(json.dumps(spec, separators=(",", ":")))
    return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())


def test_what_can_be_sampled() -> None:
    schema = DOMAIN.simulator_chat(Seed("3-hop", SPEC), None, "similar", 0)[1]
    assert allows(schema, SPEC)
    for spec in (
        changed(start="red vale"),
        changed(start="Red Vale Of Old"),
        changed(start="R" + 12 * "e"),
        changed(hops=SPEC["hops"][:2]),
        changed(hops=[["aunt", "Orla Venn"], *SPEC["hops"][1:]]),
        changed(others=SPEC["others"] * 2),
        changed(others=SPEC["others"][:2]),
        changed(others=[*SPEC["others"], ["Tellin", "river"]]),
        changed(others=[*SPEC["others"], ["Tellin", "river", "Sarn", "Isk"]]),
        changed(more=1),
    ):
        assert not allows(schema, spec), spec


def test_an_edit_changes_one_field() -> None:
    longer = changed(hops=[*SPEC["hops"], ["school", "Varn Hall"]])
    shorter = changed(hops=SPEC["hops"][:2])
    start, last = changed(start="Old Red Vale"), changed(hops=[*SPEC["hops"][:2], ["country", "Morvia"]])
    both, others = {**last, "start": "Old Red Vale"}, changed(others=[*SPEC["others"], ["Sarn", "mouth", "Varn"]])

    def allowed(way: Any, domain: MultihopQa = DOMAIN) -> list[bool]:
        schema = domain.simulator_chat(Seed("3-hop", SPEC), None, way, 0, edit=True)[1]
        return [allows(schema, spec) for spec in (longer, shorter, start, last, both, others)]

    assert allowed("harder") == [True, False, False, False, False, False]
    assert allowed("easier") == [False, True, False, False, False, False]
    assert allowed("similar") == [False, False, True, True, False, False]
    # no family is harder: as hard
    assert allowed("harder", MultihopQa(hops=3)) == [False, False, True, True, False, False]


# -- proofs ----------------------------------------------------------------------------------------------------


def test_answers_that_must_fail() -> None:
    task = DOMAIN.build(SPEC)
    names = ["Red Vale", "Orla Venn", "Tellin", "Halm Works", "Old Vale", "Bren Dask", "Sarn"]
    everything = "Red Vale, Orla Venn, Tellin, Tam Korr, Halm Works, Old Vale, Bren Dask, Sarn"
    assert DOMAIN.perturbed(task) == [
        *([f"<answer>{text}</answer>"] for text in [*names, "", "Tam Korx", "Tam Korr Tam Korr", everything]),
        ["<answer>Red Vale or Tam Korr</answer>"],
        [search_call("Red Vale")] * 8,
    ]


def test_the_gate_compares_questions() -> None:
    gate = Gate(DOMAIN)

    def verdict(spec: dict[str, Any]) -> str:
        return gate.judge(DOMAIN.build(spec)).reason

    assert verdict(SPEC) == "admitted"
    assert verdict(changed(others=[*SPEC["others"], ["Sarn", "mouth", "Varn"]])) == "duplicate"
    assert verdict(changed(hops=[*SPEC["hops"][:2], ["mayor", "Bo Halm"]])) == "contradiction"
    assert verdict(changed(start="Red Hill")) == "admitted"
    assert verdict(changed(hops=SPEC["hops"][:2])) == "admitted"


@examples(150)
@given(st.integers(0, 10**9))
def test_random_tasks_pass_gate_and_independent_reader(seed: int) -> None:
    """The reader is in `bench/worlds_multihop_qa.py`, which looks at a thousand and more."""
    rng = random.Random(seed)
    for spec in BENCH["specifications"](DOMAIN, 2, rng):
        try:
            task = DOMAIN.build(spec)
        except SpecError:
            continue
        verdict = Gate(DOMAIN).judge(task)
        assert verdict.admitted, verdict
        assert BENCH["looked_up"](task) == task.target["answer"]
        assert BENCH["second_run"](DOMAIN, task) == 1.0


BENCH = runpy.run_path(str(ROOT / "bench" / "worlds_multihop_qa.py"))
PIECES = st.lists(
    st.one_of(
        ANY_TEXT,
        st.sampled_from(
            ["<tool_call>", "</tool_call>", '{"name":"search","arguments":{"query":"', '"}}', "<answer>", "</answer>",
             "\\boxed{", "}", "</think>", "Tam Korr", "Answer:", "\ud800", "\0", "9" * 5000]
        ),
    ),
    max_size=8,
)  # fmt: skip


@examples(200)
@given(st.lists(PIECES.map("".join), min_size=1, max_size=4))
def test_no_text_raises(texts: list[str]) -> None:
    episode = DOMAIN.episode(DOMAIN.build(SPEC))
    for text in texts:
        step = episode.step(text)
        if step.score is not None:
            right = "tam korr" in " ".join(text.lower().split())
            assert step.score.value in ((0.0, 1.0) if right else (0.0,))
            break


# -- training text ---------------------------------------------------------------------------------------------


def test_training_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import base_text_multihop_qa as text

    try:
        stream = text.examples(random.Random(0))
        sample = [e for e, _ in zip(stream, range(400), strict=False)]
        expert = [text.transcript(DOMAIN, DOMAIN.build(SPEC), 0.0, random.Random(i))[1] for i in range(5)]
    finally:
        sys.modules.pop("base_text_multihop_qa")
        sys.modules.pop("base_text")
    assert expert == [1.0] * 5
    agents = [e for e in sample if e.chat.tools]
    simulators = [e for e in sample if not e.chat.tools]
    assert 0.6 < len(agents) / 400 < 0.8
    assert not HELD & set(re.findall("[A-Z][a-z]+", repr(sample)))
    assert all(e.turns[-1].answer == () and all(t.answer for t in e.turns[:-1]) for e in agents)
    edits = 0
    for e in simulators:
        spec = json.loads(e.turns[0].text)
        DOMAIN.build(spec)
        if "Change one thing" in e.chat.messages[1].content:
            edits += 1
            example = json.loads(e.chat.messages[1].content.partition("\n")[0].removeprefix("Example: "))
            assert sum(spec[field] != example[field] for field in spec) == 1
    assert 0.2 < edits / len(simulators) < 0.5


def test_names_of_all_kinds_are_names() -> None:
    rng = random.Random(0)
    for names in (ALL, TRAIN):
        for kind in names.pools:
            assert re.fullmatch("[A-Z][a-z]{1,11}( [A-Z][a-z]{1,11})?", names.draw(kind, rng))

"""Transcripts, token by token: literal tokens, masks and logprobs for one and for two turns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from transformers import AutoTokenizer
from turns import TASK, Game

from genenv.contracts.domain import Step
from genenv.contracts.engine import ChatFormat
from genenv.contracts.types import Sample, SampleRequest, Score, Task
from genenv.engines.chat import TemplateFormat
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.rollouts import PlayConfig, demonstration, play, turns
from genenv.models import resolve

EOS = 256


def run(script: Sequence[str], group_size: int = 1, max_turns: int = 4, max_tokens: int = 16) -> tuple:
    """Play a fixed script; the turn is told by how often the prompt shows the tool's answer."""
    engine = ScriptedEngine(agent=lambda prompt, seed: script[prompt.count("tool: ok")], simulator=lambda p, s: "")
    game = Game()
    config = PlayConfig(group_size, max_tokens, max_turns)
    return play(engine.policy("agent"), engine.chat, game, [TASK], config, seed=1)[0], game


def codes(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def test_one_turn() -> None:
    (trajectory,), game = run(["stop"])
    prompt = codes("user: hi\nassistant: ")
    assert trajectory.tokens == (*prompt, *codes("stop"), EOS)
    assert trajectory.mask == (0,) * len(prompt) + (1, 1, 1, 1, 1)
    assert trajectory.prompt_length == len(prompt)
    assert trajectory.score == Score(1.0, "right")
    assert trajectory.stop == "stop"
    assert trajectory.written == 5
    assert game.closed == 1


def test_two_turns_are_appended_as_they_were_sampled() -> None:
    (trajectory,), _ = run(["look", "stop"])
    prompt = codes("user: hi\nassistant: ")
    between = codes("\ntool: ok\nassistant: ")
    assert trajectory.tokens == (*prompt, *codes("look"), EOS, *between, *codes("stop"), EOS)
    assert trajectory.mask == (0,) * len(prompt) + (1,) * 5 + (0,) * len(between) + (1,) * 5
    assert trajectory.text == "look\nok\nstop"


def test_members_of_a_group_start_from_the_same_tokens() -> None:
    trajectories, game = run(["stop"], group_size=3)
    assert len({t.tokens[: t.prompt_length] for t in trajectories}) == 1
    assert game.closed == 3


@pytest.mark.parametrize(
    ("script", "options", "value", "reason", "stop"),
    [
        (["look"] * 3, {"max_turns": 2}, 0.0, "out of turns", "turn_limit"),
        (["look"], {"max_tokens": 2}, 0.0, "cut off by the token limit", "length"),
        (["crash"], {}, None, "environment error: RuntimeError: lost", "environment_error"),
    ],
)
def test_every_ending_has_a_reason(script: list, options: dict, value: float, reason: str, stop: str) -> None:
    (trajectory,), game = run(script, **options)
    assert trajectory.score == Score(value, reason)
    assert trajectory.stop == stop
    assert game.closed == 1


def test_an_answer_cut_off_at_the_limit_is_still_judged() -> None:
    """The environment may end the episode on what was written; the cut stays visible."""
    (trajectory,), _ = run(["stop it"], max_tokens=4)
    assert trajectory.score.value == 1.0
    assert trajectory.stop == "length"


def test_an_episode_that_cannot_be_started_is_a_record() -> None:
    class Broken(Game):
        def episode(self, task: Task) -> Game:
            raise OSError("no such game")

    engine = ScriptedEngine(agent=lambda p, s: "look", simulator=lambda p, s: "")
    played = play(engine.policy("agent"), engine.chat, Broken(), [TASK, TASK], PlayConfig(1, 16, 4), seed=1)
    assert [t.score for (t,) in played] == [Score(None, "environment error: OSError: no such game")] * 2


def test_turns_are_what_the_agent_wrote() -> None:
    engine = ScriptedEngine(agent=lambda p, s: ["look", "", "stop"][p.count("tool: ok")], simulator=lambda p, s: "")
    ((trajectory,),) = play(engine.policy("agent"), engine.chat, Game(), [TASK], PlayConfig(1, 16, 4), seed=1)
    assert turns(trajectory, engine.chat) == ["look", "", "stop"]


# "user: hi\nassistant: " is 20 bytes; "look" with its end 5; "\ntool: ok\nassistant: " 21
@pytest.mark.parametrize(
    ("context", "value", "reason", "stop", "written"),
    [
        (20, 0.0, "context full: prompt of 20 tokens, the model takes 20", "length", 0),
        (21, 0.0, "cut off by the token limit", "length", 1),
        (46, 0.0, "context full: prompt of 46 tokens, the model takes 46", "length", 5),
        (51, 1.0, "right", "stop", 10),
    ],
)
def test_the_context_ends_an_episode(context: int, value: float, reason: str, stop: str, written: int) -> None:
    engine = ScriptedEngine(agent=lambda p, s: ["look", "stop"][p.count("tool: ok")], simulator=lambda p, s: "")
    game = Game()
    config = PlayConfig(2, 16, 4, context=context)
    (attempts,) = play(engine.policy("agent"), engine.chat, game, [TASK], config, seed=1)
    for trajectory in attempts:
        assert trajectory.score == Score(value, reason)
        assert (trajectory.stop, trajectory.written) == (stop, written)
    assert game.closed == 2


def test_a_numbered_task_is_sampled_alike_in_any_company() -> None:
    engine = ScriptedEngine(agent=lambda prompt, seed: f"stop{seed}", simulator=lambda p, s: "")

    class Echo(Game):
        def step(self, text: str) -> Step:
            return Step(score=Score(1.0, text))

    def reasons(tasks: list[Task], numbers: list[int] | None) -> list[str]:
        played = play(engine.policy("agent"), engine.chat, Echo(), tasks, PlayConfig(1, 64, 1), 1, numbers)
        return [t.score.reason for (t,) in played]

    whole = reasons([TASK, TASK, TASK], None)
    assert len(set(whole)) == 3
    assert reasons([TASK], [2]) == whole[2:]
    assert reasons([TASK], [0]) == whole[:1]


def test_where_a_cut_does_not_end_an_episode_it_is_closed_and_read() -> None:
    engine = ScriptedEngine(lambda p, s: "look" if "ok" not in p else "stop", lambda p, s: "")
    config = PlayConfig(1, 4, 4, cut_ends=False)
    ((trajectory,),) = play(engine.policy("agent"), engine.chat, Game(), [TASK], config, seed=1)
    assert trajectory.score == Score(1.0, "right")
    assert trajectory.stop == "length"
    # the template closes the turn that the agent could not end itself
    between = codes("\ntool: ok\nassistant: ")
    prompt = codes("user: hi\nassistant: ")
    assert trajectory.tokens == (*prompt, *codes("look"), *between, *codes("stop"))


def test_a_playable_with_a_turn_limit_ends_there_and_keeps_nothing_after() -> None:
    asked: list[SampleRequest] = []
    engine = ScriptedEngine(agent=lambda prompt, seed: "look", simulator=lambda p, s: "")
    agent = engine.policy("agent")
    sample = agent.sample
    agent.sample = lambda requests: asked.extend(requests) or sample(requests)
    game = Game()
    game.max_turns = 2
    ((trajectory,),) = play(agent, engine.chat, game, [TASK], PlayConfig(1, 16, 5), seed=1)
    assert (trajectory.score, trajectory.stop) == (Score(0.0, "out of turns"), "turn_limit")
    assert [r.keep for r in asked] == [True, False]


def test_what_was_sampled_is_what_is_trained_however_it_would_be_tokenised_again() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("builtin:tiny"))
    chat = TemplateFormat(tokenizer)
    odd = tuple(i for letter in "look" for i in chat.encode_text(letter))
    assert chat.encode_text("look") != odd
    prompts: list[tuple[int, ...]] = []

    class Odd:
        """Writes `look` letter by letter, then `stop`."""

        chat: ChatFormat
        version = 3

        def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
            (request,) = requests
            prompts.append(request.prompt)
            tokens = (*(odd if len(prompts) == 1 else chat.encode_text("stop")), chat.eos)
            return [[Sample(tokens, (-0.5,) * len(tokens), True, 3)]]

    ((trajectory,),) = play(Odd(), chat, Game(), [TASK], PlayConfig(1, 16, 4), seed=1)
    between = chat.encode_text("\n<|im_start|>tool\nok<|im_end|>\n<|im_start|>assistant\n")
    stop = (*chat.encode_text("stop"), chat.eos)
    assert prompts[1] == (*prompts[0], *odd, chat.eos, *between)
    assert trajectory.tokens == (*prompts[1], *stop)
    assert trajectory.mask == (0,) * len(prompts[0]) + (1,) * 5 + (0,) * len(between) + (1,) * len(stop)
    assert [p for p in trajectory.logprobs if p] == [-0.5] * (5 + len(stop))
    assert trajectory.policy_version == 3


def test_a_demonstration_weighs_what_the_agent_would_write() -> None:
    engine = ScriptedEngine(agent=lambda p, s: "", simulator=lambda p, s: "")
    game = Game()
    game.reference = lambda task: ["look", "stop", "never reached"]
    datum = demonstration(engine.chat, game, TASK)
    prompt, between = codes("user: hi\nassistant: "), codes("\ntool: ok\nassistant: ")
    assert datum.tokens == (*prompt, *codes("look"), EOS, *between, *codes("stop"), EOS)
    assert datum.weights == (0.0,) * len(prompt) + (1.0,) * 5 + (0.0,) * len(between) + (1.0,) * 5
    assert datum.prompt_length == len(prompt)
    assert game.closed == 1

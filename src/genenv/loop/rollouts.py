"""Episodes: the only place where transcripts, masks and logprobs are put together.

Turn by turn, all live episodes are sampled in one call. What the model wrote is appended as the very tokens that were
sampled, what the environment answered as the tokens that the template gives it, with mask 0. A failure of the
environment or of the engine ends the episode unscored; a prompt that has outgrown the model's context ends it with nothing
earned. All of them are records, not crashes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from genenv.contracts.domain import Domain, Episode, Playable, Step, turn_limit
from genenv.contracts.engine import ChatFormat, Policy
from genenv.contracts.types import Chat, Datum, Sample, SampleRequest, Score, StopReason, Task, Trajectory, derive_seed


@dataclass(frozen=True)
class PlayConfig:
    """How episodes are played."""

    group_size: int
    max_tokens: int
    max_turns: int
    temperature: float = 1.0
    context: int | None = None
    """Tokens that the model takes, prompt and answer together: near its end, turns get shorter than `max_tokens`."""
    cut_ends: bool = True
    """Whether an answer that the token limit cuts off ends the episode. Official harnesses read it and go on."""


@dataclass
class _Live:
    """One episode in progress."""

    episode: Episode
    prompt: tuple[int, ...]
    seed: tuple[object, ...]
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    score: Score | None = None
    stop: StopReason = "stop"
    version: int = -1

    def wrote(self, sample: Sample) -> None:
        self.tokens += sample.tokens
        self.mask += [1] * len(sample.tokens)
        self.logprobs += sample.logprobs
        self.version = sample.policy_version

    def read(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.mask += [0] * len(tokens)
        self.logprobs += [0.0] * len(tokens)

    def out_of_context(self, context: int) -> None:
        before = len(self.prompt) + len(self.tokens)
        self.score = Score(0.0, f"context full: prompt of {before} tokens, the model takes {context}")
        self.stop = "length"

    def trajectory(self) -> Trajectory:
        assert self.score is not None
        before = len(self.prompt)
        return Trajectory(
            tokens=self.prompt + tuple(self.tokens),
            mask=(0,) * before + tuple(self.mask),
            logprobs=(0.0,) * before + tuple(self.logprobs),
            prompt_length=before,
            text="\n".join(self.text),
            score=self.score,
            stop=self.stop,
            policy_version=self.version,
        )


def play(
    policy: Policy,
    chat: ChatFormat,
    domain: Playable,
    tasks: Sequence[Task],
    config: PlayConfig,
    seed: int,
    numbers: Sequence[int] | None = None,
) -> list[list[Trajectory]]:
    """Let the policy try each task `group_size` times. The members of a group start from the same tokens.

    Sampling seeds derive from `seed`, the task and its number: its place in `tasks` unless `numbers` says otherwise,
    which makes a task's attempts independent of the others that it is played with.
    """
    prompts = [chat.encode(Chat(t.messages, t.tools)) for t in tasks]
    context = config.context or sys.maxsize
    max_turns = min(config.max_turns, turn_limit(domain) or config.max_turns)
    games = [
        [_Live(_start(domain, t), p, (seed, t.id, i, member)) for member in range(config.group_size)]
        for i, t, p in zip(numbers or range(len(tasks)), tasks, prompts, strict=True)
    ]
    try:
        for turn in range(max_turns):
            last = turn + 1 == max_turns
            requests: list[SampleRequest] = []
            players: list[list[_Live]] = []
            for group in games:
                live = [g for g in group if g.score is None]
                # only the first turn is shared by the whole group
                for share in [live] if turn == 0 else [[g] for g in live]:
                    if not share:
                        continue
                    prompt = share[0].prompt + tuple(share[0].tokens)
                    room = min(config.max_tokens, context - len(prompt))
                    if room < 1:
                        for game in share:
                            game.out_of_context(context)
                        continue
                    seeds = tuple(derive_seed(*g.seed, turn) for g in share)
                    requests.append(SampleRequest(prompt, seeds, room, config.temperature, keep=not last))
                    players.append(share)
            if not requests:
                break
            for share, samples in zip(players, policy.sample(requests), strict=True):
                for game, sample in zip(share, samples, strict=True):
                    _advance(game, sample, chat, last, config.cut_ends)
    finally:
        for group in games:
            for game in group:
                game.episode.close()
    return [[g.trajectory() for g in group] for group in games]


def demonstration(chat: ChatFormat, domain: Domain, task: Task) -> Datum:
    """A task's reference solution, played in the environment: weight 1 on what an agent would write."""
    prompt = chat.encode(Chat(task.messages, task.tools))
    tokens, weights = list(prompt), [0.0] * len(prompt)
    episode = domain.episode(task)
    try:
        for text in domain.reference(task):
            own = (*chat.encode_text(text), chat.eos)
            step = episode.step(text)
            read = () if step.done else chat.turn(step.messages, ended=True)
            tokens += [*own, *read]
            weights += [1.0] * len(own) + [0.0] * len(read)
            if step.done:
                break
    finally:
        episode.close()
    return Datum(tuple(tokens), tuple(weights), len(prompt))


class _Failed:
    """An episode that could not be started: its first step says why."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def step(self, text: str) -> Step:
        raise self._error

    def close(self) -> None:
        pass


def _start(domain: Playable, task: Task) -> Episode:
    try:
        return domain.episode(task)
    except Exception as error:  # as in _advance
        return _Failed(error)


def _advance(game: _Live, sample: Sample, chat: ChatFormat, last: bool, cut_ends: bool) -> None:
    game.wrote(sample)
    if sample.error:
        game.score, game.stop = Score(None, sample.error), "engine_error"
        return
    text = chat.decode(sample.tokens)
    game.text.append(text)
    if not sample.stopped:
        game.stop = "length"
    try:
        step = game.episode.step(text)
    except Exception as error:  # a domain is user code: whatever it raises costs this attempt its score, not the run
        game.score = Score(None, f"environment error: {type(error).__name__}: {error}")
        game.stop = "environment_error"
        return
    if step.score is not None:
        game.score = step.score
    elif cut_ends and not sample.stopped:
        game.score = Score(0.0, "cut off by the token limit")
    elif last:
        game.score = Score(0.0, "out of turns")
        if game.stop != "length":  # a cut stays visible
            game.stop = "turn_limit"
    else:
        game.read(chat.turn(step.messages, ended=sample.stopped))
        game.text += [m.content for m in step.messages]


def turns(trajectory: Trajectory, chat: ChatFormat) -> list[str]:
    """What the agent wrote, turn by turn: the decoded runs of tokens with mask 1."""
    written: list[list[int]] = []
    before = 0
    for token, mask in zip(trajectory.tokens, trajectory.mask, strict=True):
        if mask and not before:
            written.append([])
        if mask:
            written[-1].append(token)
        before = mask
    return [chat.decode(tokens) for tokens in written]

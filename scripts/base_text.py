"""What the built-in base models are trained on: chats and what is written in them, turn by turn."""

from __future__ import annotations

from dataclasses import dataclass

from genenv.contracts.types import Chat, Message


@dataclass(frozen=True)
class Turn:
    """What the model writes, and what the environment answers to it: nothing after the last turn."""

    text: str
    answer: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Example:
    """One training text: only what stands in the turns' `text` is learned."""

    chat: Chat
    turns: tuple[Turn, ...]

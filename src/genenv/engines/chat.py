"""Messages to tokens: one adapter around a tokenizer and its chat template, whatever that template lacks.

- A template without a system role, or one that drops it, gets the instruction folded into the first user turn.
- A template that ignores `tools` gets the declarations as JSON in the instruction.
- A template without a tool role gets tool results as user turns.
- No template at all is an error before any work starts.

Later turns of an episode are appended as tokens (`turn`), never by rendering the whole conversation again: what was
sampled is what is trained.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Json, Message

_MARK = "MARK7Q"
_PROBE_TOOL: Json = {
    "type": "function",
    "function": {
        "name": _MARK,
        "description": "probe",
        "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": []},
    },
}


class Tokenizer(Protocol):
    """What is used of a transformers tokenizer."""

    eos_token_id: int | None
    chat_template: str | None
    name_or_path: str

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: object) -> object: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> object: ...


@dataclass(frozen=True)
class Abilities:
    """What a model can be told: a system message, declared tools, messages of the role `tool`. The rest is made up for."""

    system: bool
    tools: bool
    tool_role: bool

    def adapted(self, chat: Chat) -> tuple[list[Message], Sequence[Json]]:
        """Messages that the model can be told, and the tools that are still to be declared."""
        messages, tools = list(chat.messages), chat.tools
        if tools and not self.tools:
            declarations = "\n".join(json.dumps(t["function"], ensure_ascii=False) for t in tools)
            system = messages.pop(0).content + "\n" if messages and messages[0].role == "system" else ""
            messages.insert(0, Message("system", f"{system}Functions:\n{declarations}"))
            tools = ()
        if not self.system and messages and messages[0].role == "system":
            system = messages.pop(0).content
            first = next(i for i, m in enumerate(messages) if m.role == "user")
            messages[first] = Message("user", f"{system}\n\n{messages[first].content}")
        return [self.said(m) for m in messages], tools

    def said(self, message: Message) -> Message:
        """One message in a role that the model knows."""
        if message.role == "tool" and not self.tool_role:
            return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
        return message


class TemplateFormat:
    """Renders chats for one model. Raises InputError if the model has no usable chat template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        name = tokenizer.name_or_path or "the model"
        if not tokenizer.chat_template:
            raise InputError(f"{name} has no chat template: expected an instruction-tuned model, or set one")
        if tokenizer.eos_token_id is None:
            raise InputError(f"{name} has no end-of-sequence token: expected eos_token in its tokenizer")
        self.tokenizer = tokenizer
        user = Message("user", "x")
        self._abilities = Abilities(
            system=self._counts([Message("system", _MARK), user]) == 1,
            tools=self._counts([user], [_PROBE_TOOL]) >= 1,
            tool_role=self._counts([user, Message("assistant", "y"), Message("tool", _MARK)]) == 1,
        )
        if self._counts([Message("user", _MARK)]) != 1:
            raise InputError(f"{name}: its chat template loses the user's text")
        self.eos = self._end_of_turn(int(tokenizer.eos_token_id))

    def _end_of_turn(self, declared: int) -> int:
        """The token that the template ends an assistant's turn with; the declared one is not always it."""
        known = list(
            self.encode_text(self._apply([Message("user", "x"), Message("assistant", _MARK)]).rpartition(_MARK)[2])
        )
        special = str(self.tokenizer.decode(known[:1], skip_special_tokens=True)) == ""
        return known[0] if known and special else declared

    def _counts(self, messages: Sequence[Message], tools: Sequence[Json] = ()) -> int:
        """How often the marker survives rendering; -1 if the template refuses."""
        try:
            return self._apply(messages, tools).count(_MARK)
        except Exception:  # a template raises whatever its author chose, and each refusal means "not supported"
            return -1

    def _apply(self, messages: Sequence[Message], tools: Sequence[Json] = ()) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.content} for m in messages],
                tools=list(tools) or None,
                add_generation_prompt=True,
                tokenize=False,
            )
        )

    def render(self, chat: Chat) -> str:
        """The prompt as text, up to where the model continues."""
        return self._apply(*self._abilities.adapted(chat))

    def encode(self, chat: Chat) -> tuple[int, ...]:
        """The prompt as tokens."""
        return self.encode_text(self.render(chat))

    def encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def turn(self, messages: Sequence[Message], ended: bool) -> tuple[int, ...]:
        """Tokens between the agent's last token and its next turn: the environment's `messages`.

        `ended` says whether the agent wrote the end-of-sequence token itself.
        """
        known = [self._abilities.said(m) for m in messages]
        text = self._apply([Message("user", "x"), Message("assistant", _MARK), *known]).rpartition(_MARK)[2]
        tokens = self.encode_text(text)
        return tokens[1:] if ended and tokens[:1] == (self.eos,) else tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """What the model wrote, its end-of-sequence token removed, special tokens such as `<tool_call>` kept."""
        kept = tokens[:-1] if tokens and tokens[-1] == self.eos else tokens
        return str(self.tokenizer.decode(list(kept), skip_special_tokens=False))

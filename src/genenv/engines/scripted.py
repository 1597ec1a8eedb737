"""An engine without a model: answers come from a function. It ships so that users can test as the project does.

    engine = ScriptedEngine(agent=lambda prompt, seed: "...", simulator=lambda prompt, seed: "...")

It records what it is asked to train on (`policy.trained`) and counts steps, so that versions behave as in a real engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from genenv.contracts.engine import AdamParams, ChatFormat, Loss, Player, TrainStats
from genenv.contracts.types import Datum, Sample, SampleRequest
from genenv.engines.chat import TemplateFormat

Respond = Callable[[str, int], str]
"""(prompt text, sample seed) -> what the model writes."""


class ByteTokenizer:
    """UTF-8 bytes plus one end-of-sequence token; a plain chat template with tools as JSON."""

    eos_token_id: int | None = 256
    chat_template: str | None = "plain"
    name_or_path = "bytes"

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: object) -> object:
        tools = options.get("tools")
        head = f"tools: {json.dumps(tools)}\n" if tools else ""
        turns = "".join(f"{m['role']}: {m['content']}\n" for m in conversation)
        return head + turns + ("assistant: " if options.get("add_generation_prompt") else "")

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode("utf-8", "surrogatepass"))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> object:
        return bytes(t for t in token_ids if t < 256).decode("utf-8", "replace")


class ScriptedPolicy:
    """One player. Every token has logprob 0: the script is certain of what it says."""

    def __init__(self, chat: ChatFormat, respond: Respond) -> None:
        self.version = 0
        self.trained: list[tuple[Loss, list[Datum]]] = []
        self.chat = chat
        self._respond = respond

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        return [[self._sample(r, seed) for seed in r.seeds] for r in requests]

    def _sample(self, request: SampleRequest, seed: int) -> Sample:
        text = self._respond(self.chat.decode(request.prompt), seed)
        tokens = (*self.chat.encode_text(text), self.chat.eos)
        kept = tokens[: request.max_tokens]
        return Sample(kept, (0.0,) * len(kept), stopped=kept == tokens, policy_version=self.version)

    def logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        return [(0.0,) * len(d.tokens) for d in data]

    def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainStats:
        self.trained.append((loss, list(data)))
        return TrainStats(0.0, sum(sum(w != 0 for w in d.weights) for d in data))

    def optim_step(self, params: AdamParams) -> float:
        self.version += 1
        return 0.0

    def save_state(self, folder: Path) -> None:
        (folder / "policy.json").write_text(json.dumps({"version": self.version}), "utf-8")

    def load_state(self, folder: Path) -> None:
        self.version = json.loads((folder / "policy.json").read_text("utf-8"))["version"]


class ScriptedEngine:
    """Two scripted policies."""

    def __init__(self, agent: Respond, simulator: Respond) -> None:
        self.chat = TemplateFormat(ByteTokenizer())
        self.model_name = "scripted"
        self.context: int | None = None
        self.concurrent = False
        self._policies: dict[Player, ScriptedPolicy] = {
            "agent": ScriptedPolicy(self.chat, agent),
            "simulator": ScriptedPolicy(self.chat, simulator),
        }

    def policy(self, player: Player) -> ScriptedPolicy:
        return self._policies[player]

    def base_logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        return self._policies["agent"].logprobs(data)

    def close(self) -> None:
        """Nothing to release."""

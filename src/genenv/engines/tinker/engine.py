"""Both players on a server of the Tinker API: SkyRL on machines of one's own, or the hosted Tinker service.

Each player is a LoRA training client of the server; what is loaded here is the tokenizer. All requests of a call are
submitted before the first is awaited. What a server does otherwise than the local engine:

- No constrained decoding: `SampleRequest.schema` is not used, and the gate rejects what does not parse.
- A seed is passed on with each request, but no server promises the same sample for it.
- Logprobs of sampled tokens are the server's. Those of the base, for the KL terms, come from the same sampler.
- A sampler keeps the weights that it was made from, silently. One is made whenever the version has moved.
- The Tinker API sums a loss over tokens. SkyRL's JAX backend divides it by each sequence's sum of weights and by the
  number of sequences: with `reduction = "mean"` the weights undo that.

Transient failures are retried by the client, which numbers its training requests so that none is counted twice. A
training call that fails all the same has an unknown outcome: the player is given up until a checkpoint is loaded.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from genenv.contracts.engine import PLAYERS, AdamParams, Loss, Player, TrainStats
from genenv.contracts.errors import EngineError, InputError
from genenv.contracts.types import Datum, Sample, SampleRequest, derive_seed
from genenv.engines.chat import TemplateFormat
from genenv.engines.tinker.server import Call, Server
from genenv.engines.tinker.wire import LossCall, Reduction, chunks, loss_call, spread, stats

Gather = Callable[[str, Sequence[Call]], list[Any]]
LORA_ALPHA = 32
"""What Tinker servers scale their adapters with; the API has no field for it."""
ADAM_EPS = 1e-8
MAX_SEED = 2**31 - 2**16
STATE = "policy.json"


class TinkerEngine:
    """Two training clients at `server`, which has to serve `base_model`; `model` gives the tokenizer and chat template.

    `token_budget` bounds the tokens of one training request. Adapters are made at the server when they are first used.
    Raises InputError if the server does not know the base model.
    """

    def __init__(
        self,
        model: str,
        server: Server,
        *,
        base_model: str,
        rank: int,
        seed: int,
        token_budget: int,
        reduction: Reduction = "sum",
    ) -> None:
        self.chat = TemplateFormat(AutoTokenizer.from_pretrained(model))
        self.server = server
        self.model_name = base_model
        self.context: int | None = None
        self.concurrent = True
        self.rank = rank
        self.seed = seed
        self.token_budget = token_budget
        self.reduction = reduction
        self._base: Any = None
        self._making = threading.Lock()
        served = server.call("asking for the models", server.service.get_server_capabilities).supported_models
        names = [str(m.model_name) for m in served]
        if base_model not in names:
            few = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            raise InputError(
                f"engine.base_model: expected a model that the server has, found {base_model}; it has {few}"
            )
        self._policies = {player: TinkerPolicy(self, player) for player in PLAYERS}

    def policy(self, player: Player) -> TinkerPolicy:
        return self._policies[player]

    def base_logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        with self._making:  # both players may come at once
            if self._base is None:
                create = partial(self.server.service.create_sampling_client, base_model=self.model_name)
                self._base = self.server.call("making a sampler of the base", create)
        calls = [partial(self._base.compute_logprobs, self.prompt(d.tokens)) for d in data if any(d.weights)]
        return spread(data, self.server.gather("logprobs of the base", calls))

    def close(self) -> None:
        """End the session: the server forgets the adapters when their heartbeat stops."""
        self._policies.clear()
        self._base = None
        self.server.close()

    def prompt(self, tokens: Sequence[int]) -> Any:
        return self.server.api.ModelInput.from_ints(list(tokens))


class TinkerPolicy:
    """One player: a training client, and the sampler that was made from its newest weights."""

    def __init__(self, engine: TinkerEngine, player: Player) -> None:
        self.chat = engine.chat
        self._engine = engine
        self._server = engine.server
        self._player = player
        self.version = 0
        self._client: Any = None
        self._sampler: Any = None
        self._sampler_version = -1
        self._pending = False  # a gradient that no step has used yet
        self._lost = ""

    def _training(self) -> Any:
        if self._lost:
            raise EngineError(self._lost)
        if self._client is None:
            engine = self._engine
            create = partial(
                self._server.service.create_lora_training_client,
                base_model=engine.model_name,
                rank=engine.rank,
                seed=derive_seed(engine.seed, "adapters", self._player) % MAX_SEED,
                train_unembed=False,
            )
            try:
                self._client = self._server.call(f"the server refused an adapter of rank {engine.rank}", create)
            except EngineError as error:
                raise InputError(f"{error}; set engine.rank to what it admits, or raise its limits") from error
        return self._client

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        sampler, version = self._newest_sampler(), self.version
        calls = [
            partial(
                sampler.sample,
                prompt=self._engine.prompt(request.prompt),
                num_samples=len(request.seeds),
                sampling_params=self._server.api.SamplingParams(
                    max_tokens=request.max_tokens,
                    temperature=request.temperature,
                    seed=request.seeds[0] % MAX_SEED,
                    stop=[self._engine.chat.eos],
                ),
            )
            for request in requests
        ]
        responses = self._server.gather(f"sampling of the {self._player}", calls)
        for request, response in zip(requests, responses, strict=True):
            if len(response.sequences) != len(request.seeds):
                raise EngineError(f"expected {len(request.seeds)} samples, found {len(response.sequences)}")
        return [[self._sample(sequence, version) for sequence in response.sequences] for response in responses]

    def _newest_sampler(self) -> Any:
        if self._sampler_version != self.version:
            fresh = self._training().save_weights_and_get_sampling_client
            self._sampler = self._server.call(f"making a sampler of the {self._player}", fresh)
            self._sampler_version = self.version
        return self._sampler

    @staticmethod
    def _sample(sequence: Any, version: int) -> Sample:
        if sequence.logprobs is None:
            raise EngineError("the server returned a sample without logprobs")
        return Sample(
            tuple(sequence.tokens), tuple(sequence.logprobs), sequence.stop_reason == "stop", policy_version=version
        )

    def logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        kept = [d for d in data if any(d.weights)]
        if not kept:
            return spread(data, [])
        call = loss_call(kept, Loss("cross_entropy"), "sum")
        return spread(data, self._pass(self._training().forward, self._server.gather, kept, call)[0])

    def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainStats:
        if any(any(d.weights[: d.prompt_length]) for d in data):
            raise ValueError("a datum has a weight on its prompt")
        kept = [d for d in data if any(d.weights)]
        if not kept:
            return TrainStats(0.0, 0)
        reduction = self._engine.reduction
        if reduction == "mean" and self._pending:
            raise EngineError("engine.reduction = 'mean' admits one forward_backward per optim_step")
        call = loss_call(kept, loss, reduction)
        rows, found = self._pass(self._training().forward_backward, self._trained, kept, call)
        self._pending = True
        if found != reduction:
            self._lost = f"engine.reduction = '{reduction}': this server seems to have '{found}', see docs/engines.md"
            raise InputError(self._lost)
        return stats(kept, spread(kept, rows), loss)

    def _pass(
        self, run: Any, gather: Gather, data: Sequence[Datum], call: LossCall
    ) -> tuple[list[list[float]], Reduction]:
        """(logprobs per datum, the reduction that the answers speak of), all requests in flight at once."""
        api = self._server.api
        parts = list(chunks(data, self._engine.token_budget))
        encoded = [
            # position t of the input predicts token t + 1
            api.Datum(
                model_input=self._engine.prompt(d.tokens[:-1]),
                loss_fn_inputs={"target_tokens": list(d.tokens[1:]), **inputs},
            )
            for d, inputs in zip(data, call.inputs, strict=True)
        ]
        calls = [partial(run, [encoded[i] for i in part], call.name, call.settings) for part in parts]
        rows: list[list[float]] = [[] for _ in data]
        found: Reduction = "mean"
        for part, output in zip(parts, gather(f"{call.name} of the {self._player}", calls), strict=True):
            if any(key.endswith("loss:sum") for key in output.metrics):
                found = "sum"
            for i, fields in zip(part, output.loss_fn_outputs, strict=True):
                rows[i] = fields["logprobs"].tolist()
        return rows, found

    def optim_step(self, params: AdamParams) -> float | None:
        """Adds what the local engine does not know: None where the server does not tell the norm."""
        adam = self._server.api.AdamParams(
            learning_rate=params.lr,
            beta1=params.beta1,
            beta2=params.beta2,
            eps=ADAM_EPS,
            weight_decay=params.weight_decay,
            grad_clip_norm=params.max_grad_norm,
        )
        step = self._training().optim_step
        (response,) = self._trained(f"optim_step of the {self._player}", [partial(step, adam)])
        self.version += 1
        self._pending = False
        norms = [v for k, v in (response.metrics or {}).items() if k.partition(":")[0].endswith("grad_norm")]
        return float(norms[0]) if norms else None

    def _trained(self, what: str, calls: Sequence[Call]) -> list[Any]:
        """As `gather`. After a failure nobody knows whether the gradient or the step was counted: no second try."""
        try:
            return self._server.gather(what, calls)
        except EngineError as error:
            self._lost = f"{error}; its outcome is unknown: resume the run, which goes on from its last checkpoint"
            raise EngineError(self._lost) from error

    def save_state(self, folder: Path) -> None:
        """The state stays at the server; the folder gets its address and, where the server offers it, the adapter."""
        training = self._training()
        # a name may be used once: run, round, player and version
        name = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join([*folder.absolute().parts[-4:], str(self.version)]))
        name = name.strip("-")[-200:]
        calls = [partial(training.save_state, name), partial(training.save_weights_for_sampler, name)]
        state, weights = self._server.gather(f"saving the {self._player}", calls)
        record = {"version": self.version, "path": state.path, "adapter": "here"}
        try:
            self._server.fetch_adapter(weights.path, folder)
        except EngineError as error:  # the state is safe at the server all the same
            record["adapter"] = str(error)
        (folder / STATE).write_text(json.dumps(record), "utf-8")

    def load_state(self, folder: Path) -> None:
        """Make a training client from the saved state, optimizer included. Raises EngineError if it is gone."""
        record = json.loads((folder / STATE).read_text("utf-8"))
        if "path" not in record:
            raise InputError(f"{folder} was not saved by an engine of kind 'tinker'")
        load = partial(self._server.service.create_training_client_from_state_with_optimizer, record["path"])
        self._client = self._server.call(f"loading {record['path']}", load)
        self.version, self._sampler_version = record["version"], -1
        self._pending, self._lost = False, ""

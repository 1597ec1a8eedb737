"""A model behind a server of the OpenAI chat API, sampled and never trained: a frozen teacher, or an agent under evaluation.

The loop speaks tokens, a chat server speaks messages. `MessageFormat` has tokens that stand for messages exactly, so
rollouts, simulator and evaluation need no second path: `OpenAIPolicy.sample` turns a prompt back into messages, asks the
server once per seed, and returns the reply as tokens. Lengths are therefore counted in bytes, logprobs are 0.

A request that gets no answer becomes a sample with an `error`: unscored and counted, never wrong. What would fail for
every request raises: a refused key, an unknown model, a server that is gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NoReturn

import httpx

from genenv.contracts.engine import AdamParams, Engine, Loss, Player, Policy
from genenv.contracts.errors import EngineError, InputError
from genenv.contracts.types import Chat, Datum, Json, Message, Role, Sample, SampleRequest
from genenv.engines.chat import Abilities
from genenv.reading.parsing import CLOSE, OPEN

END = 256
BEGIN: Mapping[Role, int] = {"system": 257, "user": 258, "assistant": 259}
_ROLE = {token: role for role, token in BEGIN.items()}

DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further try after 429, 5xx and failures of the connection, unless the server asks for more."""
MAX_DELAY = 60.0
REFUSED = (400, 422)
SHOWN = 200
"""Characters of a server's own words that a reason may quote."""
SEEDS = 2**31
"""Seeds are sent modulo this: some servers keep them in 32 bits."""
STOPPED = {"stop": True, "tool_calls": True, "function_call": True, "length": False}
"""Whether the model ended its turn itself, by finish_reason. Any other reason is no answer."""


class MessageFormat:
    """Tokens that stand for messages exactly: a byte of UTF-8 is text, 256 ends a turn, one token per role begins one.

    No text can be taken for structure. Tools are declared in the system message and tool results are user turns, which
    every server accepts. A lone surrogate, which UTF-8 cannot say, becomes "?".
    """

    eos = END
    _abilities = Abilities(system=True, tools=False, tool_role=False)  # what every server takes

    def render(self, chat: Chat) -> str:
        """What is sent, for people: the server has the template."""
        return "\n".join(f"{m.role}: {m.content}" for m in self.messages(self.encode(chat)))

    def encode(self, chat: Chat) -> tuple[int, ...]:
        return (*self._turns(self._abilities.adapted(chat)[0]), BEGIN["assistant"])

    def _turns(self, messages: Iterable[Message]) -> Iterable[int]:
        for message in map(self._abilities.said, messages):
            yield BEGIN[message.role]
            yield from self.encode_text(message.content)
            yield END

    def encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode("utf-8", "replace"))

    def turn(self, messages: Sequence[Message], ended: bool) -> tuple[int, ...]:
        return (*(() if ended else (END,)), *self._turns(messages), BEGIN["assistant"])

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(t for t in tokens if t < END).decode()

    def messages(self, prompt: Sequence[int]) -> list[Message]:
        """The inverse of `encode` and `turn`: what the model is to answer."""
        turns: list[tuple[Role, bytearray]] = []
        for token in prompt:
            if token in _ROLE:
                turns.append((_ROLE[token], bytearray()))
            elif token != END:
                turns[-1][1].append(token)
        return [Message(role, text.decode()) for role, text in turns[:-1]]


class _NoAnswer(Exception):
    """One request failed for good; `outage` if the server could not serve it, rather than refuse it."""

    def __init__(self, reason: str, outage: bool) -> None:
        super().__init__(reason)
        self.outage = outage


class OpenAIPolicy:
    """A frozen model behind a server. Raises InputError for a base URL or a key that cannot be one.

    The key is read from the environment variable `key_variable`; without one, none is sent. A request that takes more
    than `timeout` seconds is given up. `warn` gets a line when the server turns out not to know JSON schemas.
    """

    version = 0

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        key_variable: str,
        concurrency: int,
        timeout: float,
        warn: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.chat = MessageFormat()
        self.model_name = model
        self._url = base_url.rstrip("/")
        self._variable = key_variable
        self._key = os.environ.get(key_variable, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise InputError(f"{key_variable} holds characters that no key has")
        if not _plain(base_url):  # not quoted: it may hold a secret
            raise InputError("base URL: expected http(s)://HOST[:PORT]/PATH without password and query")
        self._timeout = timeout
        self._transport = transport
        self._concurrency = concurrency
        self._warn = warn
        self._sleep = sleep
        self._answered = False
        self._schemas = True
        self._limit = "max_tokens"

    def _connected(self) -> httpx.Client:
        """To be used in a `with`: connections are shared within a call, and none outlives it."""
        return httpx.Client(
            base_url=self._url + "/",
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=self._timeout,
            limits=httpx.Limits(max_connections=self._concurrency),
            transport=self._transport,
        )

    def check(self) -> None:
        """Knock at the server, before any work starts. Raises InputError if nobody is there or the key is refused."""
        try:
            with self._connected() as client:
                reply = client.get("models")
        except httpx.RequestError as error:
            raise InputError(f"no server at {self._url}: {_name(error)}") from None
        if reply.status_code == 401:
            raise InputError(self._no_key())

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        """At most `concurrency` requests in flight. A server may ignore seeds: the same seed may give another sample.

        Raises EngineError if the key is refused, the model unknown, or no request at all is answered.
        """
        schemas = self._schemas
        with self._connected() as client, ThreadPoolExecutor(self._concurrency) as pool:
            futures = [pool.submit(self._sample, client, r, seed) for r in requests for seed in r.seeds]
            try:
                replies = [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if schemas and not self._schemas:
            self._warn(f"{self._url} refuses JSON schemas: specifications are asked for without")
        failed = [reply for reply in replies if isinstance(reply, _NoAnswer)]
        if failed and len(failed) == len(replies):
            # one refusal may lie with its prompt; a server that never answered, or answers nobody, is another matter
            if not self._answered or (len(failed) > 1 and all(f.outage for f in failed)):
                raise EngineError(f"no answer from {self.model_name} at {self._url}: {failed[0]}")
        elif replies:
            self._answered = True
        samples = iter([_failed(reply) if isinstance(reply, _NoAnswer) else reply for reply in replies])
        return [[next(samples) for _ in request.seeds] for request in requests]

    def _sample(self, client: httpx.Client, request: SampleRequest, seed: int) -> Sample | _NoAnswer:
        try:
            text, stopped = _read(self._complete(client, request, seed))
        except _NoAnswer as failure:
            return failure
        tokens = (*self.chat.encode_text(text), *((END,) if stopped else ()))
        return Sample(tokens, (0.0,) * len(tokens), stopped, self.version)

    def _complete(self, client: httpx.Client, request: SampleRequest, seed: int) -> httpx.Response:
        """A successful reply. What the server turns out not to know is left out, and remembered."""
        limit, schema = self._limit, request.schema if self._schemas else None
        reply = self._post(client, self._body(request, seed, limit, schema))
        if reply.status_code in REFUSED and limit == "max_tokens" and "max_completion_tokens" in reply.text:
            self._limit = limit = "max_completion_tokens"  # the name that OpenAI's reasoning models insist on
            reply = self._post(client, self._body(request, seed, limit, schema))
        if reply.status_code in REFUSED and schema is not None:
            reply = self._post(client, self._body(request, seed, limit, None))
            self._schemas = self._schemas and not reply.is_success
        if reply.status_code == 401:
            raise EngineError(self._no_key())
        if reply.status_code == 404:
            raise EngineError(self._unknown(client, reply))
        if not reply.is_success:
            raise _NoAnswer(self._told(reply), outage=False)
        return reply

    def _body(self, request: SampleRequest, seed: int, limit: str, schema: Json | None) -> dict[str, Json]:
        # templates that insist on alternating roles refuse two user turns in a row, as two tool results would be
        turns = groupby(self.chat.messages(request.prompt), key=lambda message: message.role)
        constraint = {"type": "json_schema", "json_schema": {"name": "specification", "schema": schema}}
        return {
            "model": self.model_name,
            "messages": [{"role": role, "content": "\n".join(m.content for m in turn)} for role, turn in turns],
            limit: request.max_tokens,
            "temperature": request.temperature,
            "seed": seed % SEEDS,
        } | ({} if schema is None else {"response_format": constraint})

    def _post(self, client: httpx.Client, body: Json) -> httpx.Response:
        """A reply that is worth reading, after as many tries as it takes. Raises _NoAnswer if there is none."""
        content = json.dumps(body)  # ASCII: lone surrogates in a schema stay JSON
        for delay in (*DELAYS, None):
            try:
                reply = client.post("chat/completions", content=content, headers={"Content-Type": "application/json"})
            except httpx.ReadTimeout:  # the server is still at it: to ask again would double its work
                raise _NoAnswer(f"nothing within {self._timeout:g} s", outage=True) from None
            except httpx.RequestError as error:
                reason, asked = _name(error), 0.0
            else:
                if reply.status_code != 429 and not reply.is_server_error:
                    return reply
                reason, asked = self._told(reply), _retry_after(reply)
            if delay is not None:
                self._sleep(max(delay, min(asked, MAX_DELAY)))
        raise _NoAnswer(f"{reason} ({len(DELAYS) + 1} tries)", outage=True)

    def _told(self, reply: httpx.Response) -> str:
        """Status and the server's own words, without the key that some servers repeat."""
        try:
            body = reply.json()
            error = body.get("error") or body
            words = error if isinstance(error, str) else error.get("message") or error["detail"]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            words = reply.text
        words = str(words).replace(self._key, "***") if self._key else str(words)
        line = " ".join("".join(c if c.isprintable() else " " for c in words).split())
        return f"{reply.status_code} {line[:SHOWN]}".rstrip()

    def _no_key(self) -> str:
        how = "is refused" if self._key else "is not set"
        return f"{self._url} wants an API key (401): the environment variable {self._variable} {how}"

    def _unknown(self, client: httpx.Client, reply: httpx.Response) -> str:
        try:
            names = [str(model["id"]) for model in client.get("models").json()["data"]]
        except (httpx.RequestError, ValueError, LookupError, TypeError):
            names = []
        if self.model_name in names or not names:
            return f"{self._url}/chat/completions: {self._told(reply)}; a base URL usually ends in /v1"
        return f"{self._url} has no model {self.model_name}: it offers {', '.join(names)[:SHOWN]}"

    # -- a frozen policy: nothing to train, nothing to save ----------------------------------------------------------

    def _frozen(self) -> NoReturn:
        raise EngineError(f"{self.model_name} at {self._url} is frozen: it can be sampled, not trained")

    def logprobs(self, data: Sequence[Datum]) -> NoReturn:
        self._frozen()

    def forward_backward(self, data: Sequence[Datum], loss: Loss) -> NoReturn:
        self._frozen()

    def optim_step(self, params: AdamParams) -> NoReturn:
        self._frozen()

    def save_state(self, folder: Path) -> None:
        state = {"version": self.version, "model": self.model_name, "base_url": self._url}
        (folder / "policy.json").write_text(json.dumps(state), "utf-8")

    def load_state(self, folder: Path) -> None:
        """There is nothing to load."""


class Taught:
    """An engine with a frozen teacher in the simulator's place; the agent is the engine's own."""

    def __init__(self, engine: Engine, teacher: OpenAIPolicy) -> None:
        self.chat = engine.chat
        self.model_name = engine.model_name
        self.context = engine.context
        self.concurrent = engine.concurrent
        self.base_logprobs = engine.base_logprobs
        self._engine = engine
        self._teacher = teacher

    def policy(self, player: Player) -> Policy:
        return self._teacher if player == "simulator" else self._engine.policy(player)

    def close(self) -> None:
        self._engine.close()


def _failed(failure: _NoAnswer) -> Sample:
    return Sample((), (), stopped=False, policy_version=OpenAIPolicy.version, error=f"no answer: {failure}")


def _plain(base_url: str) -> bool:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not (url.userinfo or url.query or url.fragment)


def _name(error: httpx.RequestError) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _retry_after(reply: httpx.Response) -> float:
    """Seconds that the server asks for; 0 if it does not say, or names a date."""
    try:
        return float(reply.headers.get("Retry-After", 0.0))
    except ValueError:
        return 0.0


def _read(reply: httpx.Response) -> tuple[str, bool]:
    """What the model wrote, and whether it ended its turn itself. `reasoning_content` is not part of it."""
    try:
        choice = reply.json()["choices"][0]
        message = choice["message"]
        text = (message.get("content") or "") + "".join(map(_call, message.get("tool_calls") or ()))
        if (reason := choice["finish_reason"]) in STOPPED:
            return text, STOPPED[reason]
        raise _NoAnswer(f"ended by {reason}"[:SHOWN], outage=False)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _NoAnswer(f"unreadable reply, {type(error).__name__}: {error}"[:SHOWN], outage=False) from None


def _call(call: Json) -> str:
    """A native tool call as the text that agents write. Arguments stay as they came: what is malformed is judged later."""
    name, arguments = call["function"]["name"], call["function"]["arguments"] or "{}"
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'{OPEN}{{"name":{json.dumps(name)},"arguments":{written}}}{CLOSE}'

"""A real server of the chat API, `transformers serve` with the built-in model: as agent and as teacher."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from test_cli import call, refused

from genenv.engines.openai import MessageFormat, OpenAIPolicy
from genenv.models import TINY, resolve
from genenv.types import Chat, Message, SampleRequest

MISSING = [p for p in ("fastapi", "uvicorn", "openai") if importlib.util.find_spec(p) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"transformers serve needs {', '.join(MISSING)}")

MODEL = resolve(TINY)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", MODEL]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"], stdout=output, stderr=output
        )
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                httpx.get(f"{address}/health", timeout=5)
                break
            except httpx.TransportError:
                assert server.poll() is None, log.read_text()
                time.sleep(0.2)
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait()


def test_a_greedy_answer_is_the_models_own(url: str) -> None:
    """The server's text is that of the same model in this process, on the prompt that its template gives."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy = OpenAIPolicy(
        MODEL, base_url=url, key_variable="OPENAI_API_KEY", concurrency=2, timeout=120.0, warn=pytest.fail
    )
    messages = (Message("system", "Call the functions that the request needs."), Message("user", "Play Echoes."))
    prompt = MessageFormat().encode(Chat(messages))
    ((first, second),) = policy.sample([SampleRequest(prompt, (1, 2), max_tokens=12, temperature=0.0)])
    policy.close()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    chat = [{"role": m.role, "content": m.content} for m in messages]
    tokens = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**tokens, max_new_tokens=12, do_sample=False)[0, tokens["input_ids"].shape[1] :]
    print(repr(tokenizer.decode(output)), first, repr(policy.chat.decode(first.tokens)))
    assert first == second


def test_eval(url: str) -> None:
    result = call("eval", f"openai:{MODEL}", "--base-url", url, "--tasks", 3, "--rollouts", 2, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    print(document)

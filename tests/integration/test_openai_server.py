"""A real server of the chat API, `transformers serve` with the built-in model: as agent and as teacher."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from commands import call

from genenv.contracts.types import Chat, Message, SampleRequest
from genenv.domains.tool_use.domain import ToolUse
from genenv.engines.openai import MessageFormat, OpenAIPolicy
from genenv.models import TINY, resolve
from genenv.reading.parsing import parse_tool_calls

MISSING = [p for p in ("fastapi", "uvicorn", "openai") if importlib.util.find_spec(p) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"transformers serve needs {', '.join(MISSING)}")

SERVE = """
import sys
from transformers.cli.serve import Serve
Serve(None, host="127.0.0.1", port=int(sys.argv[1]), device="cpu", dtype="float32")
"""
AS_TEXT = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {"content": {"close_pattern": r"<\|im_end\|>", "content": "text"}},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as output:
        server = subprocess.Popen([sys.executable, "-c", SERVE, str(port)], stdout=output, stderr=output)
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except httpx.TransportError:
                assert server.poll() is None, log.read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The built-in model, told to give its tool calls as text: parsed natively, a malformed call is a 500 here."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(resolve(TINY), folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"response_template": AS_TEXT}))
    return str(folder)


def policy(model: str, url: str) -> OpenAIPolicy:
    settings = {"key_variable": "OPENAI_API_KEY", "concurrency": 2, "timeout": 300.0}
    return OpenAIPolicy(model, base_url=url, warn=pytest.fail, **settings)


def test_the_answer_is_the_models_own(url: str, model: str) -> None:
    """Greedy, the server writes what the same model writes in this process; native tool calls become the same calls."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, local = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    task = ToolUse().seeds(1, 0)[0]
    task = ToolUse().build(task.spec)
    chat = [{"role": m.role, "content": m.content} for m in task.messages]
    options = {"tools": list(task.tools), "add_generation_prompt": True}
    tokens = tokenizer.apply_chat_template(chat, **options, return_tensors="pt", return_dict=True)
    written = local.float().generate(**tokens, max_new_tokens=60, do_sample=False)[0, tokens["input_ids"].shape[1] :]
    text = tokenizer.decode(written).removesuffix("<|im_end|>")
    assert parse_tool_calls(text).calls

    rendered = tokenizer.apply_chat_template(chat, **options, tokenize=False)
    system = rendered.removeprefix("<|im_start|>system\n").partition("<|im_end|>")[0]
    prompt = MessageFormat().encode(Chat((Message("system", system), *task.messages[1:])))
    request = SampleRequest(prompt, (1, 2), max_tokens=60, temperature=0.0)
    (plain,) = policy(model, url).sample([request])
    (native,) = policy(resolve(TINY), url).sample([request])
    assert [MessageFormat().decode(s.tokens) for s in plain] == [text] * 2
    assert [parse_tool_calls(MessageFormat().decode(s.tokens)) for s in native] == [parse_tool_calls(text)] * 2
    assert all(s.stopped for s in (*plain, *native))


def test_an_agent_behind_a_server_is_evaluated(url: str, model: str) -> None:
    result = call("eval", f"openai:{model}", "--base-url", url, "--tasks", 2, "--rollouts", 1, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["subject"], document["tasks"], document["unscored"]) == (f"openai:{model}", 2, 0)


def test_a_teacher_behind_a_server_writes_the_tasks(scripted: None, url: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        "rounds = 1\n[simulator]\ntasks = 2\ntrain = false\nmax_tokens = 40\n[eval]\ntasks = 0\n"
        f"[teacher]\nmodel = {json.dumps(model)}\nbase_url = {json.dumps(url)}\n"
    )
    result = call("train", tmp_path / "run.toml", "--run-dir", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["candidates"] == 2
    rows = json.loads(call("tasks", tmp_path / "run", "--json").stdout)
    assert all(row["text"] for row in rows)
    saved = tmp_path / "run" / "checkpoints" / "round_000001" / "simulator"
    assert [f.name for f in saved.iterdir()] == ["policy.json"]


def test_nobody_is_there(tmp_path: Path) -> None:
    result = call("eval", "openai:x", "--base-url", "http://127.0.0.1:1/v1")
    assert result.exit_code == 2
    assert result.stderr.startswith("genenv: no server at http://127.0.0.1:1/v1: ConnectError")

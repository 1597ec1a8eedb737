"""The built wheel in an empty environment and an empty folder, as a stranger installs it: `make test-package`.

GENENV_WHEEL is the wheel, GENENV_PYTHONS are interpreters. Each gets an environment without torch; the first one also gets
an environment with the extra `local`, in which the demonstration learns.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from planted import Levels, guess, write

from genenv.config.load import build_config
from genenv.config.sections import Config
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.coevolve import CoEvolution
from genenv.runs.store import Store
from genenv.runs.summary import summary
from genenv.studies.suite import load_suite, runs_of

WHEEL = os.environ.get("GENENV_WHEEL")
PYTHONS = os.environ.get("GENENV_PYTHONS", "").split()
SMALL = "[set.simulator]\ntasks = 6\n[set.eval]\ntasks = 2\n"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"

if WHEEL is None:
    pytest.skip("no wheel here: make test-package", allow_module_level=True)


def installed(python: str, folder: Path, extras: str = "") -> Path:
    """The folder of programs of a new environment with the wheel and what it asks for."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    constraints = ["-c", CONSTRAINTS] if extras else []
    subprocess.run([*pip, *constraints, f"{WHEEL}{extras}"], check=True)
    return folder / "bin"


class Program:
    """`genenv` of one environment, in one folder, with nothing of this process's environment but the PATH."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder

    def __call__(self, *arguments: object, status: int = 0, **environment: str) -> str:
        """What it prints on standard output, or in its only line on standard error where it is to fail."""
        line = [self.programs / "genenv", *map(str, arguments)]
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment}
        done = subprocess.run(line, cwd=self.folder, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        if status:
            assert len(done.stderr.splitlines()) == 1
        return done.stderr.strip() if status else done.stdout


@pytest.fixture(scope="session", params=PYTHONS, ids=lambda path: path.split("/")[-3])
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(request.param, tmp_path_factory.mktemp("bare") / "env")


@pytest.fixture
def genenv(bare: Path, tmp_path: Path) -> Program:
    folder = tmp_path / "empty"
    folder.mkdir()
    return Program(bare, folder)


def play(folder: Path, config: Config) -> None:
    """A run of scripted players, made in this process."""
    store = Store.create(folder, config)
    CoEvolution(config, ScriptedEngine(guess, write), Levels(), Levels().seeds(20, 0), store, lambda s, f: None).run()
    store.close()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    settings = {"rounds": 3, "simulator": {"tasks": 6}, "agent": {"group_size": 4}, "eval": {"tasks": 2, "rollouts": 2}}
    play(folder, build_config(settings, "test"))
    return folder


@pytest.fixture
def server() -> Iterator[str]:
    """A server of the OpenAI chat API that answers every request alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"data": [{"id": "parrot", "object": "model"}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": "no idea"}
            self._reply({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

        def _reply(self, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/v1"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_no_torch_comes_along(bare: Path) -> None:
    listed = subprocess.check_output([bare / "python", "-m", "pip", "list", "--format", "json"], text=True)
    names = {package["name"] for package in json.loads(listed)}
    assert not names & {"torch", "transformers", "peft", "safetensors", "llguidance", "tokenizers"}
    assert "genenv-rl" in names


def test_every_module_but_those_of_extras_is_there(bare: Path) -> None:
    program = """
import importlib, pkgutil, genenv
lacking = []
for module in pkgutil.walk_packages(genenv.__path__, "genenv."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        lacking.append((module.name, error.name))
print(sorted({".".join(name.split(".")[1:3]) + " " + package for name, package in lacking}))
"""
    out = subprocess.check_output([bare / "python", "-c", program], text=True, env={"PATH": os.environ["PATH"]})
    assert set(json.loads(out.replace("'", '"'))) == {
        "domains.reasoning_gym reasoning_gym",
        "domains.travel highspy",
        "engines.local llguidance",
        "engines.local torch",
        "engines.losses torch",
        "engines.tinker torch",
        "engines.tinker transformers",
    }


def test_help_and_doctor(genenv: Program) -> None:
    assert "co-evolving it with an environment simulator" in " ".join(genenv("--help").split())
    findings = json.loads(genenv("doctor", "--json"))
    assert findings["torch"] == "not installed"
    assert findings["memory_mb"]["total"] > 0


def test_a_plan_for_a_device(genenv: Program) -> None:
    assert json.loads(genenv("doctor", "gpu80_qwen7b", "--plan", "--gpu", "a100-80gb", "--json"))
    assert "pip install 'genenv-rl[local]'" in genenv("doctor", "demo", "--plan", status=2)


def test_tasks_pass_the_gate_and_outputs_are_scored(genenv: Program) -> None:
    spec = {"calls": [{"name": "play_song", "arguments": {"title": "Echoes"}}], "distractors": []}
    (genenv.folder / "tasks.jsonl").write_text(json.dumps(spec) + "\n{}\n")
    assert [v["reason"] for v in json.loads(genenv("gate", "tool_use", "tasks.jsonl", "--json"))] == [
        "admitted",
        "schema",
    ]
    (genenv.folder / "one.jsonl").write_text(json.dumps({**spec, "id": "a"}) + "\n")
    call = '<tool_call>{"name": "play_song", "arguments": {"title": "Echoes"}}</tool_call>'
    (genenv.folder / "outputs.jsonl").write_text(json.dumps({"id": "a", "output": call}) + "\n")
    assert json.loads(genenv("score", "one.jsonl", "outputs.jsonl", "--json"))["score"] == 1.0


def test_a_run_is_read(genenv: Program, run: Path) -> None:
    store = Store.read(run)
    expected = json.loads(json.dumps(summary(store)))
    store.close()
    assert json.loads(genenv("report", run, "--json")) == expected
    assert genenv("report", run).strip() == str(run / "report.html")
    assert "</html>" in (run / "report.html").read_text("utf-8")
    assert len(json.loads(genenv("tasks", run, "--reason", "admitted", "--json"))) > 0


def test_runs_are_compared(genenv: Program) -> None:
    (genenv.folder / "suite.toml").write_text('base = "demo"\narms = ["genenv"]\nrounds = 2\nseeds = [0]\n' + SMALL)
    (planned,) = runs_of(load_suite(genenv.folder / "suite.toml"), genenv.folder / "suite")
    play(planned.folder, planned.config)
    found = json.loads(genenv("compare", "suite.toml", "--only-report", "--out", "suite", "--json"))
    assert (list(found["arms"]), found["rounds"]) == (["genenv"], 2)


def test_a_served_model_is_evaluated(genenv: Program, server: str) -> None:
    found = json.loads(genenv("eval", "openai:parrot", "--base-url", server, "--tasks", 2, "--rollouts", 1, "--json"))
    assert (found["tasks"], found["score"], found["unscored"]) == (2, 0.0, 0)


@pytest.mark.parametrize("world", ["tool_use", "household", "multihop_qa"])
def test_a_folder_to_start_from(genenv: Program, world: str) -> None:
    genenv("init", "mine", "--domain", world)
    verdicts = json.loads(genenv("gate", "mine/config.toml", "mine/seeds.jsonl", "--json"))
    assert {v["reason"] for v in verdicts} <= {"admitted", "duplicate"}
    assert sum(v["reason"] == "admitted" for v in verdicts) >= 20


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "demo"], "local"),
        (["eval", "builtin:tiny"], "local"),
        (["theory"], "local"),
        (["train", "demo", "--set", "engine.kind=tinker"], "tinker"),
        (["init", "trips", "--domain", "travel"], "travel"),
    ],
)
def test_what_is_missing_is_named_with_its_command(genenv: Program, arguments: list[str], extra: str) -> None:
    assert f"pip install 'genenv-rl[{extra}]'" in genenv(*arguments, status=2)
    assert list(genenv.folder.iterdir()) == []


def test_the_demonstration_learns_in_an_empty_folder(tmp_path: Path) -> None:
    programs = installed(PYTHONS[0], tmp_path / "env", "[local]")
    folder = tmp_path / "empty"
    folder.mkdir()
    genenv = Program(programs, folder)
    short = ["--set", "rounds=2", "--set", "eval.tasks=8", "--set", "engine.threads=1"]
    figures = json.loads(genenv("train", "demo", *short, "--json"))
    assert figures["rounds"] == 2
    assert (folder / figures["report"]).is_file()
    scored = json.loads(genenv("eval", "runs/demo-0", "--tasks", 4, "--rollouts", 1, "--json"))
    assert scored["round"] == 2

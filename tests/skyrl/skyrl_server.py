"""A SkyRL server on this machine's CPU, with the built-in tiny model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from genenv.models import TINY, resolve

START_LIMIT = 300


class SkyRL:
    """The server as a process group of its own; state and logs are in `folder` and outlive it."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.environment, self.folder = environment, folder
        self.model = str(folder / "model")
        shutil.copytree(resolve(TINY), self.model)
        config = folder / "model" / "config.json"
        # float32, as the local engine computes on a CPU
        config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "float32"}))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        backend = {
            "max_lora_adapters": 12,
            "max_lora_rank": 8,
            "train_micro_batch_size": 1,  # one shape less to compile for
            "sample_max_num_sequences": 8,
        }
        command = [
            *("uv", "run", "--no-project", "--active", "-m", "skyrl.tinker.api", "--base-model", self.model),
            *("--backend", "jax", "--backend-config", json.dumps(backend)),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--database-url", f"sqlite:///{self.folder}/skyrl.sqlite"),
            *("--checkpoints-base", str(self.folder / "checkpoints")),
            # adapters of sessions that ended make room for others
            *("--session-timeout-sec", "60", "--session-cleanup-interval-sec", "10"),
        ]
        environment = os.environ | {
            "VIRTUAL_ENV": str(self.environment),
            "PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            # a test runs each program a few times: compiling is what costs
            "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
            "HF_HUB_OFFLINE": "1",
            "UV_OFFLINE": "1",
        }
        environment.pop("PYTHONPATH", None)
        # the shell ends the whole group as soon as the tests let go of its input, in whatever way they end
        script = '"$@" >>server.log 2>&1 & read -r _; kill -KILL 0'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "skyrl", *command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_LIMIT
        while not self._healthy():
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("\n".join((self.folder / "server.log").read_text().splitlines()[-20:]))
            self.process.poll()
            time.sleep(0.5)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        assert self.process.stdin is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stdin.close()
        self.process.wait()

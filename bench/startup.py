"""How long commands take that need no model: `python bench/startup.py RUN [GENENV]`.

GENENV is the program to be timed, that of this environment by default. Best and worst of five whole processes each.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = {"calls": [{"name": "play_song", "arguments": {"title": "Echoes"}}], "distractors": []}
REPEATS = 5


def main(run: str, program: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "tasks.jsonl"
        tasks.write_text(json.dumps(SPEC) + "\n")
        for arguments in (
            ["--help"],
            ["gate", "tool_use", str(tasks)],
            ["report", run],
            ["report", run, "--json"],
            ["doctor"],
        ):
            seconds = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                subprocess.run([program, *arguments], check=True, capture_output=True)
                seconds.append(time.perf_counter() - start)
            shown = " ".join(a for a in arguments if a not in (run, str(tasks)))
            print(f"genenv {shown:<16} {min(seconds):5.2f} to {max(seconds):5.2f} s")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else shutil.which("genenv") or "genenv")

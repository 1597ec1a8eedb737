"""`genenv` as a program with scripted players on the planted domain: `python scripted_program.py train ...`."""

from __future__ import annotations

import os

from planted import Levels, guess, write

from genenv import session
from genenv.cli.app import app
from genenv.engines.scripted import ScriptedEngine


def breaking(prompt: str, seed: int) -> str:
    raise OSError(28, "No space left on device")


if __name__ == "__main__":
    broken = os.environ.get("BROKEN_SEED")
    session.make_engine = lambda config, seed: ScriptedEngine(breaking if str(seed) == broken else guess, write)
    session.make_domain = lambda config: Levels()
    app()

"""One SkyRL server for all tests here. GENENV_SKYRL is its virtual environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from skyrl_server import SkyRL


@pytest.fixture(scope="session")
def skyrl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    if "GENENV_SKYRL" not in os.environ:
        pytest.skip("no SkyRL server here: make test-skyrl")
    pytest.importorskip("tinker")
    server = SkyRL(Path(os.environ["GENENV_SKYRL"]).absolute(), tmp_path_factory.mktemp("skyrl"))
    server.start()
    yield server
    server.kill()

"""Calls to a server of the Tinker API: many in flight, each failure one line, an end to waiting."""

from __future__ import annotations

import io
import logging
import os
import socket
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from genenv.contracts.errors import EngineError, InputError, MissingExtraError

LOOK_EVERY = 20.0
PATIENCE = 4
"""A call is given up when the server was gone at so many looks in a row, LOOK_EVERY seconds apart."""
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


Call = Callable[[], Any]
"""Submits a request and returns its future."""


def connect(base_url: str | None) -> Server:
    """A session at a server; None: the hosted service. Raises InputError."""
    try:
        import tinker
    except ModuleNotFoundError:
        raise MissingExtraError("tinker", "tinker", "engine.kind = 'tinker'") from None
    key = os.environ.get("TINKER_API_KEY")
    if base_url is None and not key:
        raise InputError(
            "TINKER_API_KEY is not set: the hosted service needs it; engine.base_url names a server of your own"
        )
    if base_url is not None and not answers(base_url):
        raise InputError(f"engine.base_url: no server answers at {base_url}; start one, or correct the address")
    # its notices of every download are no news
    logging.getLogger("tinker.lib.public_interfaces.rest_client").setLevel(logging.ERROR)
    try:
        # servers of one's own ask for no key, but the client wants one of this form
        return Server(tinker, tinker.ServiceClient(base_url=base_url, api_key=key or "tml-none"), base_url)
    except Exception as error:  # the client raises errors of many libraries
        raise InputError(f"no session at {base_url or 'the hosted service'}: {one_line(error)}") from error


def answers(url: str) -> bool:
    """Whether anything listens there."""
    parts = urlsplit(url)
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True


def one_line(error: BaseException) -> str:
    """The message of a foreign error, without line breaks and without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    key = os.environ.get("TINKER_API_KEY")
    return (text.replace(key, "***") if key else text)[:300]


class Server:
    """The client package, a session of it, and how to wait. Without `base_url` nobody looks whether the server lives."""

    def __init__(self, api: Any, service: Any, base_url: str | None = None) -> None:
        self.api = api
        self.service = service
        self._base_url = base_url

    def close(self) -> None:
        """Let go of the session."""
        self.service = None

    def call(self, what: str, blocking: Callable[[], Any]) -> Any:
        """The result of one call that blocks. Raises EngineError."""

        def finished() -> Any:
            made = blocking()
            # newer clients return the future of what older ones return
            return made.result() if hasattr(made, "result") else made

        return self.gather(what, [partial(_in_thread, finished)])[0]

    def gather(self, what: str, calls: Sequence[Call]) -> list[Any]:
        """Submit all calls, then wait for their futures. Raises EngineError."""
        try:
            futures = [call() for call in calls]
            return [self._wait(future) for future in futures]
        except Exception as error:  # the client raises errors of many libraries, and ValueError for a server's refusal
            raise EngineError(f"{what}: {one_line(error)}") from error

    def _wait(self, future: Any) -> Any:
        """The client waits for ever for a server that is gone; this does not."""
        gone = 0
        while True:
            begin = time.monotonic()
            try:
                return future.result(timeout=LOOK_EVERY)
            except TimeoutError:
                if time.monotonic() - begin < LOOK_EVERY:  # the call's own
                    raise
                gone = 0 if self._base_url is None or answers(self._base_url) else gone + 1
                if gone == PATIENCE:
                    raise ConnectionError(f"the server at {self._base_url} is gone") from None

    def fetch_adapter(self, path: str, folder: Path) -> None:
        """The two files of a PEFT adapter, out of the archive of a sampler. Raises EngineError."""
        run, _, checkpoint = path.removeprefix("tinker://").partition("/")

        def download() -> dict[str, bytes]:
            url = self.service.create_rest_client().get_checkpoint_archive_url(run, checkpoint).result().url
            if urlsplit(url).scheme not in ("http", "https"):
                raise ValueError("the address of its archive is not one of the web")
            with urllib.request.urlopen(url, timeout=60) as response:
                packed = io.BytesIO(response.read())
            with tarfile.open(fileobj=packed) as archive:
                files = {Path(m.name).name: archive.extractfile(m) for m in archive.getmembers() if m.isfile()}
                return {name: file.read() for name, file in files.items() if name in ADAPTER_FILES and file}

        found = self.call("fetching the adapter", download)
        if missing := set(ADAPTER_FILES) - set(found):
            raise EngineError(f"its archive holds no {min(missing)}")
        for name, content in found.items():
            (folder / name).write_bytes(content)


def _in_thread(call: Callable[[], Any]) -> Future[Any]:
    """A blocking call as a future. The thread is a daemon: a call that hangs does not keep the program alive."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future

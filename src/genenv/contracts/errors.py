"""The error tree. Expected failures are data (a `Verdict`, a `Score` with a reason); these are for the rest."""

from __future__ import annotations

import importlib.util


class GenEnvError(Exception):
    """Base of all errors that this package raises on purpose. The message is one line for a person."""


class InputError(GenEnvError):
    """Bad input from the user: says what was expected, what was found and what to do. Exit status 2."""


class MissingExtraError(InputError):
    """An optional dependency is absent; the message names its install command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'genenv-rl[{extra}]'")


class StaleSampleError(GenEnvError):
    """Samples came from another policy version than the one about to be trained."""


class EngineError(GenEnvError):
    """A model engine failed: unreachable, out of memory, refused."""


def need(extra: str, purpose: str, *packages: str) -> None:
    """Raises MissingExtraError for the first of `packages` that is not installed; imports none of them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, extra, purpose)

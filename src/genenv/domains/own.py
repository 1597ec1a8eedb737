"""A domain of a user's own, by the path of its class: `my_shop:Shop`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping

from genenv.contracts.domain import Domain
from genenv.contracts.errors import GenEnvError, InputError
from genenv.contracts.types import Json

MEMBERS = sorted({*Domain.__annotations__, *(n for n in dir(Domain) if not n.startswith("_"))})
"""What a domain has: two attributes and the methods of the protocol."""


def load(path: str, options: Mapping[str, Json]) -> Domain:
    """What `MODULE:ATTRIBUTE`, a class or a function, makes of `options`.

    Modules are looked for in the current folder and among the installed ones. Raises InputError.
    """
    module_name, _, attribute = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Json = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's: anything may happen in it
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            where = "run from the folder that holds it, or install it"
            raise InputError(f"domain.name: no module {error.name} in {os.getcwd()} or installed: {where}") from None
        raise InputError(f"domain.name: {module_name} cannot be imported: {_place(error)}") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise InputError(f"domain.name: {module_name} has no {attribute}: expected a class or function")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"domain.name: {path} is a {type(found).__name__}: expected a class or function")
    try:
        inspect.signature(found).bind(**options)
    except (TypeError, ValueError) as error:
        raise InputError(f"domain.options: {path}: {error}") from None
    try:
        domain: Domain = found(**options)
    except GenEnvError:
        raise
    except Exception as error:  # as above
        raise InputError(f"domain.options: {path} refuses {dict(options)}: {_place(error)}") from error
    if missing := [n for n in MEMBERS if not _has(domain, n)]:
        raise InputError(
            f"domain.name: {path} is no domain: it lacks {', '.join(missing)} (genenv.contracts.domain.Domain)"
        )
    return domain


def _has(domain: Domain, name: str) -> bool:
    """A stub that a subclass of the protocol inherits is not there."""
    return hasattr(domain, name) and getattr(type(domain), name, None) is not getattr(Domain, name, domain)


def _place(error: Exception) -> str:
    """One line: the error and the line of code that it comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({os.path.basename(last.filename)}:{last.lineno})"

"""`genenv init`: a folder with a configuration and seeds to start from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from genenv.cli.terminal import JsonFlag, emit, one_line_errors
from genenv.config.load import load_config, read_raw
from genenv.config.shipped import find_config
from genenv.config.starter import starter
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, derive_seed

HEAD = """\
# A run of GenEnv. Settings that are commented out have the value that is shown; docs/configuration.md explains them.
#
#   genenv doctor {config}     what will run, and how much memory it needs
#   genenv train {config}
"""
SEEDS = 24
FIELDS = ("weather", "music", "travel")
"""Fields of the built-in catalogue whose functions stand in the folder, as an example of one's own."""


class World(StrEnum):
    """Fields to start from, each with its demonstration."""

    tool_use = "tool_use"
    household = "household"
    multihop_qa = "multihop_qa"
    travel = "travel"


DEMOS: Mapping[World, str] = {
    World.tool_use: "demo",
    World.household: "demo_household",
    World.multihop_qa: "demo_qa",
    World.travel: "demo_travel",
}


def init(
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet, or is empty.")],
    domain: Annotated[World, typer.Option(help="The field of tasks.")] = World.tool_use,
    as_json: JsonFlag = False,
) -> None:
    """Write a commented configuration and seeds to start from."""
    with one_line_errors():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not an empty folder: choose another")
        made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = _write(folder, domain)
        except BaseException:
            # nothing half-written: what is in the folder is ours
            for path in folder.iterdir() if folder.is_dir() else ():
                path.unlink()
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if as_json:
            emit({"folder": str(folder), "files": [path.name for path in written]})
            return
        for path in written:
            print(path)


def _write(folder: Path, world: World) -> list[Path]:
    from genenv.contracts.domain import released
    from genenv.domains.tool_use.catalogue import builtin_catalogue
    from genenv.session import make_domain

    config, seeds, functions = folder / "config.toml", folder / "seeds.jsonl", folder / "functions.jsonl"
    settings = read_raw(find_config(Path(DEMOS[world])))
    settings["domain"] = {"name": world.value, **settings.get("domain", {}), "seeds": seeds.name}
    written = [config, seeds]
    if world is World.tool_use:
        _write_lines(
            functions,
            [f.model_dump(mode="json", exclude_none=True) for f in builtin_catalogue().values() if f.field in FIELDS],
        )
        settings["domain"]["catalogue"] = functions.name
        written.append(functions)
    config.write_text(HEAD.format(config=config) + starter(settings), "utf-8")
    with released(make_domain(load_config(config).domain)) as field:
        _write_lines(seeds, [seed.spec for seed in field.seeds(SEEDS, derive_seed("seeds"))])
    return written


def _write_lines(path: Path, records: Sequence[Mapping[str, Json]]) -> None:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")

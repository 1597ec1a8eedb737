"""Seed specifications: what the simulator starts from and is anchored to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from genenv.contracts.domain import Domain, SpecError
from genenv.contracts.errors import InputError
from genenv.contracts.types import Seed
from genenv.reading.parsing import parse_json_object
from genenv.reading.records import read_lines


def load_seeds(path: Path, domain: Domain) -> list[Seed]:
    """Read a JSONL file of specifications. Raises InputError naming file and line."""
    seeds = []
    for number, line in read_lines(path):
        try:
            spec = parse_json_object(line)
            seeds.append(Seed(domain.build(spec).family, spec))
        except SpecError as error:
            raise InputError(f"{path}:{number}: not a {domain.name} specification: {error}") from None
        except ValueError as error:
            raise InputError(f"{path}:{number}: {error}") from None
    return seeds


def by_family(seeds: Sequence[Seed]) -> Mapping[str, list[Seed]]:
    families: dict[str, list[Seed]] = {}
    for seed in seeds:
        families.setdefault(seed.family, []).append(seed)
    return families

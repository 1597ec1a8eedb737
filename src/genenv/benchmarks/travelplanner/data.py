"""TravelPlanner's official files: queries and tables. Missing or damaged files raise InputError."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator

from genenv.benchmarks.travelplanner.plan import Query
from genenv.benchmarks.travelplanner.tables import Flight, Place, Restaurant, Road, Room, Tables
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.reading.records import read_lines

Split = Literal["validation", "train"]
"""The authors forbid turning test queries into structured form, so the test split is not offered."""

HOW = (
    "get validation.csv of the dataset osunlp/TravelPlanner and the authors' database folder"
    " (docs/benchmarks/travelplanner.md)"
)
SUBSET = "validation/validation_medium_hard_120.jsonl"

# fmt: off
MISSING = frozenset({
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
})
# fmt: on
"""Cells that the official loader takes for missing (pandas). It drops a row with one of them."""


class _Limits(BaseModel):
    house_rule: str | None = Field(alias="house rule")
    cuisine: tuple[str, ...] | None
    room_type: str | None = Field(alias="room type")
    transportation: str | None


class _Record(BaseModel):
    """One official query. In the CSV file dates, constraints and references are Python literals."""

    idx: int | None = None
    org: str
    dest: str
    days: int = Field(ge=1)
    visiting_city_number: int
    date: tuple[str, ...]
    people_number: int = Field(ge=1)
    local_constraint: _Limits
    budget: float
    query: str
    level: Literal["easy", "medium", "hard"]
    reference_information: list[dict[str, Any]] = []

    @field_validator("date", "local_constraint", "reference_information", mode="before")
    @classmethod
    def _literal(cls, value: Any) -> Any:
        try:
            return ast.literal_eval(value) if isinstance(value, str) else value
        except (SyntaxError, MemoryError, RecursionError):
            raise ValueError("not a literal") from None


def load_queries(folder: Path, split: Split) -> list[tuple[Query, Json]]:
    """The official queries with their reference information. Raises InputError.

    Read from the first of SPLIT.csv (as on the hub), SPLIT.jsonl and the subset with medium and hard queries only, whose
    references lie in a file beside it.
    """
    if split not in ("validation", "train"):
        raise InputError(f"travelplanner: split {split!r}: expected validation or train")
    names = [f"{split}.csv", f"{split}.jsonl", *([SUBSET] if split == "validation" else [])]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise InputError(f"travelplanner: {folder} has none of {', '.join(names)}: {HOW}")
    if path.suffix == ".csv":
        rows: list[Json] = [dict(zip(names, row, strict=True)) for names, row in _csv(path)]
    else:
        rows = [_json(text, f"{path}:{number}") for number, text in read_lines(path)]
    beside = path.with_name(f"{path.stem}_reference_information.jsonl.gz")
    references = _references(beside) if beside.is_file() else {}
    queries = []
    for i, row in enumerate(rows, 1):
        try:
            record = _Record.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: record {i}: {where}: {first['msg']}") from None
        number = i if record.idx is None else record.idx
        reference = record.reference_information or references.get(number, [])
        if not reference:
            raise InputError(f"{path}: record {i}: no reference_information: {HOW}")
        queries.append((_query(record, str(number)), reference))
    return queries


def _query(record: _Record, number: str) -> Query:
    limits = record.local_constraint
    return Query(
        id=number,
        org=record.org,
        dest=record.dest,
        days=record.days,
        dates=record.date,
        cities=record.visiting_city_number,
        people=record.people_number,
        budget=record.budget,
        house_rule=limits.house_rule,
        cuisines=limits.cuisine or (),
        room_type=limits.room_type,
        transportation=limits.transportation,
        level=record.level,
        text=record.query,
    )


def _references(path: Path) -> dict[int, Json]:
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    records = [_json(line, f"{path}:{i}") for i, line in enumerate(lines, 1)]
    return {record["idx"]: record["reference_information"] for record in records}


def _json(text: str, where: str) -> dict[str, Json]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: expected JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object")
    return value


def _csv(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """(header, row) for each row. Raises InputError."""
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            rows = csv.reader(handle)
            header = next(rows, [])
            for row in rows:
                if len(row) != len(header):
                    raise InputError(f"{path}:{rows.line_num}: expected {len(header)} columns, found {len(row)}")
                yield header, row
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}: {HOW}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None


def _columns(path: Path, *columns: str, missing: bool = False) -> Iterator[list[str]]:
    """These columns of all rows, or without `missing` of the rows in which no cell is missing."""
    places: list[int] = []
    for header, row in _csv(path):
        if not places:
            if absent := [name for name in columns if name not in header]:
                raise InputError(f"{path}: no column {absent[0]!r}: {HOW}")
            places = [header.index(name) for name in columns]
        if missing or MISSING.isdisjoint(row):
            yield [row[i] for i in places]


def load_tables(database: Path) -> Tables:
    """The official tables. Flights come from the full file if it is there, else from the subset. Raises InputError."""
    full, subset = (database / "flights" / name for name in ("clean_Flights_2022.csv", "flights_subset.csv"))
    try:
        return Tables(
            flights=(
                Flight(number, float(price), sys.intern(origin), sys.intern(destination))
                for number, price, origin, destination in _columns(
                    full if full.is_file() else subset, "Flight Number", "Price", "OriginCityName", "DestCityName"
                )
            ),
            rooms=(
                Room(name, city, float(price), kind, rules, float(nights), int(float(occupancy)))
                for name, city, price, kind, rules, nights, occupancy in _columns(
                    database / "accommodations" / "clean_accommodations_2022.csv",
                    *("NAME", "city", "price", "room type", "house_rules", "minimum nights", "maximum occupancy"),
                )
            ),
            restaurants=(
                Restaurant(name, city, float(price), cuisines)
                for name, city, price, cuisines in _columns(
                    database / "restaurants" / "clean_restaurant_2022.csv", "Name", "City", "Average Cost", "Cuisines"
                )
            ),
            attractions=(
                Place(name, city)
                for name, city in _columns(database / "attractions" / "attractions.csv", "Name", "City")
            ),
            roads=_roads(database / "googleDistanceMatrix" / "distance.csv"),
            states=_states(database / "background" / "citySet_with_states.txt"),
        )
    except ValueError as error:
        raise InputError(f"{database}: damaged: {error}") from None


def _roads(path: Path) -> Iterator[Road]:
    """Rows of this table are kept where duration or distance is missing: there is no such drive then."""
    for origin, destination, duration, distance in _columns(
        path, "origin", "destination", "duration", "distance", missing=True
    ):
        known = not {distance, duration} & MISSING and "day" not in duration
        yield Road(origin, destination, float(distance.replace("km", "").replace(",", "")) if known else None)


def _states(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}: {HOW}") from None
    return dict(line.split("\t") for line in lines if line)

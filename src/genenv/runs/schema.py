"""The tables of a run's database, and how a task stands in them."""

from __future__ import annotations

import json
from dataclasses import asdict

from genenv.contracts.types import Message, Task

SCHEMA = """
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, metrics TEXT NOT NULL, timing TEXT NOT NULL
);
CREATE TABLE candidates (
    round INTEGER NOT NULL, number INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
    asked_family TEXT NOT NULL, direction TEXT NOT NULL, seed_id TEXT NOT NULL, text TEXT NOT NULL,
    task_id TEXT, p_hat REAL, reward REAL, tokens TEXT NOT NULL, parent TEXT, outcome TEXT,
    PRIMARY KEY (round, number)
);
CREATE INDEX candidates_by_task ON candidates (task_id);
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, round INTEGER NOT NULL, family TEXT NOT NULL, origin TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE rollouts (
    round INTEGER NOT NULL, task_id TEXT NOT NULL, member INTEGER NOT NULL, replayed INTEGER NOT NULL,
    text TEXT NOT NULL, score REAL, reason TEXT NOT NULL, stop TEXT NOT NULL, written INTEGER NOT NULL,
    PRIMARY KEY (round, task_id, member)
);
CREATE TABLE evaluations (
    round INTEGER NOT NULL, task_id TEXT NOT NULL, member INTEGER NOT NULL, family TEXT NOT NULL,
    text TEXT NOT NULL, score REAL, reason TEXT NOT NULL,
    PRIMARY KEY (round, task_id, member)
);
"""
VERSION = 1
"""Of the tables above, kept in the database; a program reads its own only."""
TABLES = ("rounds", "candidates", "tasks", "rollouts", "evaluations")


def task_json(task: Task) -> str:
    return json.dumps(asdict(task), ensure_ascii=False)


def read_task(body: str) -> Task:
    record = json.loads(body)
    messages = tuple(Message(**m) for m in record.pop("messages"))
    return Task(messages=messages, tools=tuple(record.pop("tools")), **record)

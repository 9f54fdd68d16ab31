"""Databases that the stores of versions are tested on."""

import pathlib
from collections.abc import Callable

from acstor.versions.database.tables import METADATA
from testbed.doubles.faulty_database import FaultyDatabase, SetClock
from tests.unit.repository.versions.records import NOON


def _memory(folder: pathlib.Path, clock: SetClock) -> FaultyDatabase:
    del folder
    return _with_tables(FaultyDatabase("sqlite://", clock=clock))


def _file(folder: pathlib.Path, clock: SetClock) -> FaultyDatabase:
    return _with_tables(FaultyDatabase(f"sqlite:///{folder}/acstor.sqlite", clock=clock))


def _lost_answers(folder: pathlib.Path, clock: SetClock) -> FaultyDatabase:
    """Return one on which each transaction is made twice, as after a connection that was lost."""
    database = _file(folder, clock)
    database.loses_answers = True
    return database


def _with_tables(database: FaultyDatabase) -> FaultyDatabase:
    # As the revisions make them, which tests/unit/versions/database/test_schema.py proves; faster.
    database.write(METADATA.create_all)
    return database


DATABASES: dict[str, Callable[[pathlib.Path, SetClock], FaultyDatabase]] = {
    "memory": _memory,
    "file": _file,
    "lost-answers": _lost_answers,
}


def new_clock() -> SetClock:
    """Return a clock that stands at noon."""
    return SetClock(NOON)

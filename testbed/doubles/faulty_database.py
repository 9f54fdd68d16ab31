"""Databases that misbehave, and a clock for them."""

import contextlib
import datetime
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy
from oslo_db import exception as db_exception
from sqlalchemy.engine import Connection

from acstor.versions.database.engine import Database, to_ms

Result = TypeVar("Result")


class SetClock:
    """Clock of a database that goes when it is told to."""

    def __init__(self, now: datetime.datetime) -> None:
        self.now = now

    def __call__(self) -> sqlalchemy.ColumnElement[int]:
        return sqlalchemy.literal(to_ms(self.now), sqlalchemy.BigInteger)

    def advance(self, **parts: float) -> None:
        """Put it forward by a timedelta of these parts."""
        self.now += datetime.timedelta(**parts)


class FaultyDatabase(Database):
    """A database of which transactions fail, before or after they have had their effect.

    One in memory has one connection for all threads, so its transactions wait for one another.

    :ivar errors: raised by the next transactions, each in place of its work.
    :ivar loses_answers: True: each transaction has its effect, and its first answer is lost.
    :ivar writes: transactions so far that may have changed something.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, wait=lambda seconds: None, **options)
        self.errors: list[Exception] = []
        self.loses_answers = False
        self.writes = 0
        self._is_repeated = False
        is_shared = url == "sqlite://"
        self._turn = threading.RLock() if is_shared else contextlib.nullcontext()

    def write(self, work: Callable[[Connection], Result]) -> Result:
        self.writes += 1
        return super().write(work)

    def _repeat(self, once: Callable[[], Result]) -> Result:
        self._is_repeated = False
        return super()._repeat(once)

    def _once(self, mode: Any, work: Callable[[Connection], Result]) -> Result:
        if self.errors:
            raise self.errors.pop(0)
        with self._turn:
            result = super()._once(mode, work)
        if self.loses_answers and not self._is_repeated:
            self._is_repeated = True
            raise db_exception.DBConnectionError("lost in the commit")
        return result

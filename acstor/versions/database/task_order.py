"""Order in which tasks that wait are taken: each project in its turn.

A task's turn is the number of tasks of its kind of asker that run in its project, and of those that
wait there before it: so a project with nothing at work comes first, and of a flood only as much is
in front of others as their own turn has. Whoever has waited longest comes first within a turn. What
users of a project ask for, and what ACStor itself does for it, have turns of their own.

Source: Demers, Keshav, Shenker, *Analysis and Simulation of a Fair Queueing Algorithm*, SIGCOMM
1989, with tasks as packets. Differs: no virtual time is kept, since what runs is counted instead,
and a task counts as one however long it lasts.
"""

from typing import Any

import sqlalchemy
from sqlalchemy import ColumnElement, FromClause, Select, func

from acstor.versions.database.tables import TASKS
from acstor.versions.database.task_states import ACTIVE, UNFINISHED

_COLUMNS = TASKS.c


def is_takeable(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition for a task that is due and that no worker has."""
    return sqlalchemy.and_(
        _COLUMNS.state.in_(sorted(UNFINISHED)),
        _COLUMNS.not_before <= now,
        sqlalchemy.or_(_COLUMNS.owner.is_(None), _COLUMNS.lease_until <= now),
    )


def by_turns(now: ColumnElement[int], limit: int) -> Select[tuple[str, int]]:
    """Return the query for tasks that may be taken, the first one first: id and epoch.

    Advice only: each is then taken by a conditional UPDATE, so of two workers that are given the
    same task one goes on to its next.
    """
    waiting, running = _waiting(now), _running(now)
    turn = waiting.c.place + func.coalesce(running.c.count, 0)
    return (
        sqlalchemy.select(waiting.c.id, waiting.c.epoch)
        .outerjoin(
            running,
            sqlalchemy.and_(
                running.c.project == waiting.c.project, running.c.is_own == waiting.c.is_own
            ),
        )
        .order_by(turn, waiting.c.not_before, waiting.c.created_at, waiting.c.id)
        .limit(limit)
    )


def _waiting(now: ColumnElement[int]) -> FromClause:
    """Return tasks that may be taken, each with its place among those of its asker."""
    other = TASKS.alias("other")
    is_free = ~sqlalchemy.exists().where(
        other.c.holds == _COLUMNS.resource, other.c.id != _COLUMNS.id
    )
    is_own = _COLUMNS.user.is_(None)
    place = func.row_number().over(
        partition_by=(_COLUMNS.project, is_own),
        order_by=(_COLUMNS.not_before, _COLUMNS.created_at, _COLUMNS.id),
    )
    columns: list[ColumnElement[Any]] = [
        _COLUMNS.id,
        _COLUMNS.epoch,
        _COLUMNS.project,
        _COLUMNS.not_before,
        _COLUMNS.created_at,
        is_own.label("is_own"),
        place.label("place"),
    ]
    return sqlalchemy.select(*columns).where(is_takeable(now), is_free).subquery("waiting")


def _running(now: ColumnElement[int]) -> FromClause:
    """Return the numbers of tasks that workers have, by asker."""
    tasks = TASKS.alias("at_work")
    is_own = tasks.c.user.is_(None)
    return (
        sqlalchemy.select(tasks.c.project, is_own.label("is_own"), func.count().label("count"))
        .where(
            tasks.c.state.in_(sorted(ACTIVE)),
            tasks.c.owner.is_not(None),
            tasks.c.lease_until > now,
        )
        .group_by(tasks.c.project, is_own)
        .subquery("running")
    )

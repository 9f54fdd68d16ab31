"""Pages of lists by keyset: each begins behind the last row of the one before.

A row that is deleted meanwhile does not disturb that: its place in the order is all that counts.
"""

from typing import Any, Protocol

import sqlalchemy

from acstor import exception
from acstor.versions.database.tasks import PAGE_MAX, Position


class Page(Protocol):
    """Bounds of a page."""

    @property
    def is_descending(self) -> bool:
        """True if the largest comes first."""

    @property
    def limit(self) -> int:
        """Most rows."""


def behind(column: Any, identity: Any, after: Position, is_descending: bool) -> Any:
    """Return the condition that a row comes behind a position."""
    if is_descending:
        further, next_id = column < after.value, identity < after.id
    else:
        further, next_id = column > after.value, identity > after.id
    return sqlalchemy.or_(further, sqlalchemy.and_(column == after.value, next_id))


def ordered(
    statement: sqlalchemy.Select[Any], column: Any, identity: Any, page: Page
) -> sqlalchemy.Select[Any]:
    """Return a statement with the order and the bound of a page.

    :raises InvalidError: when the bound is out of range.
    """
    if not 1 <= page.limit <= PAGE_MAX:
        raise exception.InvalidError(f"limit {page.limit} is not from 1 to {PAGE_MAX}")
    order = [one.desc() if page.is_descending else one.asc() for one in (column, identity)]
    return statement.order_by(*order).limit(page.limit)

"""Resource of the API as all are: queries, names."""

import uuid
from collections.abc import Iterator
from typing import Any, Self

from keystoneauth1 import adapter
from openstack import exceptions, resource

HITS_SHOWN = 10
"""Ids that an error lists where a name has several; more make it unreadable."""


def listing(*filters: str) -> resource.QueryParameters:
    """Return the query of a list: filters, order, project."""
    return resource.QueryParameters(*filters, "sort_key", "sort_dir", "all_projects", "project_id")


class Resource(resource.Resource):
    """A resource of the API; the proxy negotiates the microversion."""

    commit_method = "PATCH"

    @classmethod
    def match(cls, session: adapter.Adapter, name_or_id: str, **query: Any) -> Self:
        """Return the one of an id or a name.

        Differs from openstacksdk's ``find``: only a UUID is put into a path, and an error lists
        what has the name.

        :raises openstack.exceptions.NotFoundException: there is none.
        :raises openstack.exceptions.DuplicateResource: there are several.
        """
        if is_uuid(name_or_id):
            found: Self = cls.existing(id=name_or_id).fetch(session)
            return found
        named: Iterator[Self] = iter(cls.list(session, name=name_or_id, **query))
        hits = [each for each in named if each.name == name_or_id]
        if len(hits) == 1:
            return hits[0]
        kind = cls.__name__.lower()
        if not hits:
            raise exceptions.NotFoundException(f"There is no {kind} {name_or_id!r}")
        shown = ", ".join(each.id for each in hits[:HITS_SHOWN])
        more = f" and {len(hits) - HITS_SHOWN} more" if len(hits) > HITS_SHOWN else ""
        raise exceptions.DuplicateResource(
            f"{len(hits)} of the kind {kind} are called {name_or_id!r}; "
            f"say which by its id: {shown}{more}"
        )


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID as the API writes them, 36 characters."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False

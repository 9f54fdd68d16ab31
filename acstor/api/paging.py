"""Pages, order and filters of lists, in the words of OpenStack's API guide.

A marker in a link holds the place of the last item, not the item: a list goes on where it was even
if that is deleted meanwhile. The id of an item is taken as a marker, too.
"""

import base64
import binascii
import dataclasses
import json
import urllib.parse
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acstor import untrusted_json
from acstor.api import times
from acstor.api.errors import ApiError
from acstor.api.operations import Call
from acstor.versions.database.tasks import Position
from acstor.versions.database.version_index import Filter, FilterValue, Operator, VersionField

_MANY = frozenset({Operator.IN, Operator.NIN})
_TIMES = frozenset({VersionField.CREATED_AT, VersionField.EXPIRES_AT})
_HINT = "begin the list anew, or take the marker of the link 'next'"


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Page that a call asks for."""

    limit: int
    sort_key: str
    is_descending: bool
    marker: str | None

    @classmethod
    def of(cls, call: Call, limit_max: int, sort_key: str, *, is_descending: bool) -> "Page":
        """Return the page of a call.

        :param limit_max: bound of the deployment.
        :param sort_key: where the call names none; so is the direction.
        """
        query = call.query
        direction = query.get("sort_dir", "desc" if is_descending else "asc")
        return cls(
            limit=min(int(query.get("limit", limit_max)), limit_max),
            sort_key=str(query.get("sort_key", sort_key)),
            is_descending=direction == "desc",
            marker=query.get("marker"),
        )

    def position(self, find: Callable[[str], Position | None]) -> Position | None:
        """Return the place behind which the page begins, None: at the first item.

        :param find: returns the place of the item of an id.
        :raises ApiError: when the marker is none.
        """
        if self.marker is None:
            return None
        found = find(self.marker) if _is_uuid(self.marker) else _decoded(self.marker)
        if found is None:
            raise ApiError("there is no such marker", hint=_HINT, code="acstor.marker.invalid")
        return found


def project_of(call: Call) -> str | None:
    """Return the project whose things a list has; None: those of all.

    :raises ApiError: when somebody else than an administrator names one.
    """
    wanted, is_all = call.query.get("project_id"), call.query.get("all_projects", False)
    if not call.is_admin and (is_all or wanted not in (None, call.caller.project)):
        raise ApiError(
            "all_projects and project_id are for administrators",
            hint="leave them out",
            code="acstor.query.not_admin",
        )
    return None if is_all else wanted or call.caller.project


def body(
    call: Call, key: str, items: Sequence[Mapping[str, Any]], page: Page, last: Position | None
) -> dict[str, Any]:
    """Return the body of a list.

    :param last: place of the last item; None: there is none.
    """
    is_full = last is not None and len(items) == page.limit
    return {key: list(items), "links": links(call, last) if is_full and last else []}


def links(call: Call, last: Position) -> list[dict[str, str]]:
    """Return the links of a page after which there may be another.

    :param last: place of its last item.
    """
    return [{"rel": "next", "href": _link(call, {"marker": _encoded(last)})}]


def links_after(call: Call, marker: str) -> list[dict[str, str]]:
    """Return the links of a page of another service's things.

    :param marker: id of its last item, as that service takes it.
    """
    return [{"rel": "next", "href": _link(call, {"marker": marker})}]


def filters(query: Mapping[str, Any], fields: Sequence[VersionField]) -> tuple[Filter, ...]:
    """Return the conditions of a query.

    :param fields: of the list; each is a name in the query with a list of texts, such as
        ``in:committed,merged``.
    :raises ApiError: when a value is none of its field.
    """
    return tuple(_filter(field, text) for field in fields for text in query.get(field.value, ()))


def _filter(field: VersionField, text: str) -> Filter:
    head, colon, rest = text.partition(":")
    is_operator = bool(colon) and head in set(Operator)
    operator = Operator(head) if is_operator else Operator.EQ
    plain = rest if is_operator else text
    parts = plain.split(",") if operator in _MANY else [plain]
    return Filter(field, operator, tuple(_value(field, part) for part in parts))


def _value(field: VersionField, text: str) -> FilterValue:
    if field in _TIMES:
        return times.parse(text, field.value)
    if field is VersionField.LOCKED:
        if text.lower() not in ("true", "false"):
            raise ApiError(
                f"locked: {text!r:.20} is neither true nor false", code="acstor.query.invalid"
            )
        return text.lower() == "true"
    return text


def _link(call: Call, more: Mapping[str, str]) -> str:
    request = call.request
    query = urllib.parse.urlencode({**request.params, **more}, doseq=True)
    return f"{request.prefix}{request.path}?{query}"


def _encoded(position: Position) -> str:
    text = json.dumps([position.id, position.value])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decoded(marker: str) -> Position | None:
    """Return the place that a marker holds, None where it holds none."""
    try:
        content = base64.urlsafe_b64decode(marker + "=" * (-len(marker) % 4))
        found = untrusted_json.load(content, "the marker")
    except (ValueError, binascii.Error):
        return None
    match found:
        case [str(item), int(value) | str(value)] if not isinstance(value, bool):
            in_range = isinstance(value, str) or abs(value) < 1 << 62
            return Position(value, item) if in_range else None
        case _:
            return None


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False

"""Pages of lists: so many items from a marker on, forwards or back, each by one call of the API."""

import dataclasses
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import requests
from openstack import exceptions

from acstorclient.v1.base import Resource
from acstorclient.v1.proxy import Proxy


class Identified(Protocol):
    """An item of a list."""

    @property
    def id(self) -> str:
        """Return its id, which is a marker, too."""


Item = TypeVar("Item", bound=Identified)
Kind = TypeVar("Kind", bound=Resource)

_OPPOSITE = {"asc": "desc", "desc": "asc"}


@dataclasses.dataclass(frozen=True)
class Place:
    """Page that is asked for.

    :ivar marker: as the API gave it, or the id of an item; None: the first page.
    :ivar is_backwards: whether the page ends before the marker in place of beginning behind it.
    :ivar size: most items.
    """

    marker: str | None
    is_backwards: bool
    size: int


@dataclasses.dataclass(frozen=True)
class Page(Generic[Item]):
    """Items in the order of the list, and the markers of the pages beside them."""

    items: Sequence[Item]
    following: str | None = None
    """Marker of the next page; None: there is none."""
    previous: str | None = None
    """Marker of the page before; None: there is none."""


def fetch(
    api: Proxy,
    kind: type[Kind],
    place: Place,
    query: Mapping[str, Any],
    sort_dir: str | None = "desc",
    path: str | None = None,
) -> Page[Kind]:
    """Return a page of resources; the parameters are those of :func:`fetch_items`."""

    def make(body: Mapping[str, Any]) -> Kind:
        return kind.existing(**body)

    return fetch_items(api, kind, place, query, make, sort_dir, path)


def fetch_items(
    api: Proxy,
    kind: type[Resource],
    place: Place,
    query: Mapping[str, Any],
    make: Callable[[Mapping[str, Any]], Item],
    sort_dir: str | None = "desc",
    path: str | None = None,
) -> Page[Item]:
    """Return a page.

    Differs from openstacksdk's lists: its link is followed by a later request, not by this one. The
    marker in it holds a place, so that the list goes on where an item was deleted meanwhile.

    :param kind: says where the list is.
    :param make: makes an item of its part of the answer.
    :param sort_dir: direction of the list; None: the list has one order and no page before.
    :raises ApiError: as the API answers.
    """
    asked = {**query, "limit": place.size}
    if place.marker is not None:
        asked["marker"] = place.marker
    if sort_dir is not None:
        asked["sort_dir"] = _OPPOSITE[sort_dir] if place.is_backwards else sort_dir
    response = api.get(path or kind.base_path, params=asked)
    body = body_of(response)
    key = str(kind.resources_key)
    if not isinstance(body.get(key), list):
        raise exceptions.InvalidResponse(f"{response.url} answered no list {key}")
    items = [make(each) for each in body[key]]
    beyond = marker_of(body)
    if place.is_backwards and sort_dir is not None:
        items.reverse()
        before = str(items[0].id) if items and beyond else None
        return Page(items, str(items[-1].id) if items else None, before)
    has_previous = sort_dir is not None and place.marker is not None and bool(items)
    return Page(items, beyond, str(items[0].id) if has_previous else None)


def body_of(response: requests.Response) -> dict[str, Any]:
    """Return a body that is an object.

    :raises openstack.exceptions.InvalidResponse: it is something else.
    """
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise exceptions.InvalidResponse(f"{response.url} answered no JSON object")
    return body


def marker_of(body: Mapping[str, Any]) -> str | None:
    """Return the marker in the link to more; None: there is no more."""
    for link in body.get("links") or ():
        if link.get("rel") == "next":
            query = urllib.parse.urlsplit(str(link.get("href", ""))).query
            return urllib.parse.parse_qs(query).get("marker", [None])[0]
    return None

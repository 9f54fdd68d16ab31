"""Members of an origin: their names and URLs, as ``name=url``.

The first is the home of the refs. All are of kinds that store both objects and refs.
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Sequence

from acstor import exception

MEMBERS_MIN = 2
MEMBERS_MAX = 4
"""Most members: every subset of their twelve pairs is tried in each control period (RFD 38)."""
KINDS = ("posix", "rados")
"""Schemes of members. A web server stores nothing, and memory belongs to one process."""

SCHEME = "members"
"""Scheme of the URL by which one origin of several stores is passed on within the software."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class MemberAddress:
    """A member's name, which is never given to another store, and its place."""

    name: str
    url: str


def check_name(name: object) -> str:
    """Return the name of a member.

    :raises ValueError: unless it is a letter and at most 30 letters, digits and dashes, lower case.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(
            f"{name!r:.60} is no name of a member: a lower-case letter, then at most 30 letters, "
            "digits and dashes"
        )
    return name


def url_of(addresses: Sequence[MemberAddress]) -> str:
    """Return one URL that names all members, the home first."""
    query = urllib.parse.urlencode([(one.name, one.url) for one in addresses])
    return f"{SCHEME}:?{query}"


def addresses_of(parts: urllib.parse.SplitResult) -> tuple[MemberAddress, ...]:
    """Return the members that a URL of :func:`url_of` names.

    :raises ConfigurationError: when it is malformed.
    """
    pairs = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    return parse_members([f"{name}={url}" for name, url in pairs])


def parse_members(values: Sequence[str]) -> tuple[MemberAddress, ...]:
    """Return the members that a configuration names, the home first.

    :param values: each ``name=url``.
    :raises ConfigurationError: when one is malformed or of a kind that no member can be of, when
        there are too few or too many, or a name or a place is there twice.
    """
    if not MEMBERS_MIN <= len(values) <= MEMBERS_MAX:
        raise exception.ConfigurationError(
            f"[origin] members has {len(values)} entries; {MEMBERS_MIN} to {MEMBERS_MAX} may be",
            hint="name one origin with [origin] url instead, or more members",
        )
    found = tuple(_address(value) for value in values)
    for what, parts in (
        ("name", [one.name for one in found]),
        ("place", [one.url.rstrip("/") for one in found]),
    ):
        if len(set(parts)) != len(parts):
            raise exception.ConfigurationError(f"[origin] members has a {what} twice")
    return found


def _address(value: str) -> MemberAddress:
    name, is_there, url = value.strip().partition("=")
    try:
        check_name(name)
        scheme = urllib.parse.urlsplit(url).scheme
    except ValueError as error:
        raise exception.ConfigurationError(
            f"[origin] members, {value!r:.80}: {error}",
            hint="write, for example, nfs=posix:///srv/acstor",
        ) from error
    if not is_there or scheme not in KINDS:
        raise exception.ConfigurationError(
            f"[origin] members: {name} has no URL of a member",
            hint=f"members are of the kinds {' and '.join(KINDS)}: nfs=posix:///srv/acstor",
        )
    return MemberAddress(name, url)

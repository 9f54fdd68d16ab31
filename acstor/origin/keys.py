"""Names in the origin: keys of immutable objects and names of refs."""

import re

from acstor import exception

NAME_LENGTH_MAX = 255
"""Longest key or ref name, characters."""
SEGMENT_COUNT_MAX = 8
"""Most ``/``-separated parts of a key or ref name."""
RESERVED_FOLDERS = frozenset({"refs"})
"""First parts that no key may have: the file system implementation keeps its refs there."""

_SEGMENT = re.compile(r"[a-z0-9][a-z0-9_.-]*\Z")


def validate_key(key: str) -> str:
    """Return ``key``, the name of an immutable object.

    A name is 1 to 8 parts separated by ``/``; a part starts with a lower-case letter or a digit
    and goes on with those, ``_``, ``.`` and ``-``. So no name leaves its folder, none is hidden,
    and names differ on file systems that ignore case too.

    :raises InvalidError: when it is none.
    """
    _validate(key, "key")
    if key.split("/", 1)[0] in RESERVED_FOLDERS:
        raise exception.InvalidError(f"key {key!r} is in a reserved folder")
    return key


def validate_ref_name(name: str) -> str:
    """Return ``name``, the name of a ref; the same rule as for keys, without reserved folders.

    :raises InvalidError: when it is none.
    """
    return _validate(name, "ref name")


def is_name(name: str) -> bool:
    """Return whether a key or ref may be named so: for what a store lists, and others wrote."""
    try:
        _validate(name, "name")
    except exception.InvalidError:
        return False
    return True


def validate_prefix(prefix: str) -> str:
    """Return ``prefix``: empty for everything, or a folder, ending with ``/``.

    :raises InvalidError: when it is neither.
    """
    if prefix:
        if not prefix.endswith("/"):
            raise exception.InvalidError(f"prefix {prefix!r} does not end with '/'")
        _validate(prefix[:-1], "prefix")
    return prefix


def _validate(name: str, what: str) -> str:
    if len(name) > NAME_LENGTH_MAX:
        raise exception.InvalidError(f"{what} is {len(name)} characters long, at most 255 may be")
    parts = name.split("/")
    if len(parts) > SEGMENT_COUNT_MAX or not all(_SEGMENT.match(part) for part in parts):
        raise exception.InvalidError(f"{what} {name!r} is not well formed")
    return name

"""Changing a ref by compare-and-swap, again when somebody else was quicker."""

import logging
import random
import time
from collections.abc import Callable

from acstor import exception
from acstor.origin.base import DamagedRefError, Ref, RefStore

LOG = logging.getLogger(__name__)

ATTEMPTS_MAX = 8
"""Swaps that are tried before a ref counts as one that others write all the time."""
_WAIT_FIRST = 0.02
_WAIT_MAX = 0.5


def read_replaceable(refs: RefStore, name: str) -> Ref | None:
    """Return a ref's present state; of one that the store has damaged, an empty content.

    For refs whose malformed content is replaced by who reads it: an empty one is malformed, too.

    :raises UnavailableError: when the origin cannot be reached.
    :raises CorruptError: when it is damaged and nobody can replace it as it is.
    """
    try:
        return refs.get_ref(name)
    except DamagedRefError as error:
        LOG.error("ref %s is damaged, what it held is lost: %s", name, error)
        return Ref(error.token, b"")


def change(
    refs: RefStore,
    name: str,
    changed: Callable[[bytes | None], bytes | None],
    wait: Callable[[float], object] = time.sleep,
) -> bool:
    """Have a ref hold what ``changed`` makes of what it holds.

    :param changed: takes the content, None where there is no such ref; returns the new one, None
        to remove the ref. It is asked anew each time that somebody else was quicker.
    :returns: whether the ref had to be changed.
    :raises ConflictError: when others write all the time.
    :raises UnavailableError: when the origin cannot be reached.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        ref = refs.get_ref(name)
        before = None if ref is None else ref.content
        content = changed(before)
        if content == before:
            return False
        try:
            refs.swap_ref(name, None if ref is None else ref.token, content)
        except exception.ConflictError:
            if attempt == ATTEMPTS_MAX:
                raise
            # Hosts that boot the same image at once, for instance, report at about the same time.
            wait(random.uniform(0, min(_WAIT_MAX, _WAIT_FIRST * 2 ** (attempt - 1))))
        else:
            return True
    raise exception.InternalError("no attempt was made")


def replace(refs: RefStore, name: str, content: bytes | None) -> bool:
    """Have a ref hold ``content``, or be gone where that is None, whatever it held: see `change`.

    :returns: whether it had to be changed.
    :raises ConflictError: when others write all the time.
    :raises UnavailableError: when the origin cannot be reached.
    """
    return change(refs, name, lambda _: content)

"""Replacing a ref whose last writer wins, whatever it held before."""

from acstor import exception
from acstor.origin.base import Origin

ATTEMPTS_MAX = 5


def replace(origin: Origin, name: str, content: bytes | None) -> bool:
    """Have a ref hold ``content``, or be gone where that is None, by compare-and-swap.

    :returns: whether it had to be changed.
    :raises ConflictError: when somebody else writes all the time.
    :raises UnavailableError: when the origin cannot be reached.
    """
    for attempt in range(ATTEMPTS_MAX):
        ref = origin.get_ref(name)
        if (None if ref is None else ref.content) == content:
            return False
        try:
            origin.swap_ref(name, None if ref is None else ref.token, content)
        except exception.ConflictError:
            if attempt == ATTEMPTS_MAX - 1:
                raise
        else:
            return True
    return False

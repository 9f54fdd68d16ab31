"""Locks among all cinder-volume services of a cluster (tooz, by Cinder's ``[coordination]``).

Records change by compare-and-swap whatever happens; the locks keep two services from deciding
about one volume on what each of them read a moment before.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from cinder import coordination

Method = TypeVar("Method", bound=Callable[..., Any])

PREFIX = "acstor-"


def one_at_a_time(disk: str) -> Callable[[Method], Method]:
    """Have a method run for one volume at a time.

    :param disk: names the volume's record; ``{name.attribute}`` stands for the method's
        parameters.
    """
    return cast(Callable[[Method], Method], coordination.synchronized(PREFIX + disk))


def forget(disk: str) -> None:
    """Remove what the lock of a volume that is gone left."""
    coordination.synchronized_remove(PREFIX + disk)

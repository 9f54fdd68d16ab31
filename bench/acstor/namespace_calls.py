"""Calls in a network namespace: a thread that has entered one stays there."""

import threading
from collections.abc import Callable
from typing import TypeVar

from pyroute2 import netns

_Made = TypeVar("_Made")


def in_namespace(namespace: str, make: Callable[[], _Made]) -> _Made:
    """Call something in a network namespace; this thread stays where it is.

    What it returns belongs to that namespace, a socket for instance.
    """
    found: list[_Made] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            netns.setns(namespace)
            found.append(make())
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="in-namespace")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return found[0]

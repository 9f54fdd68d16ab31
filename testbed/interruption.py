"""^C and SIGTERM as an exception, so that what was begun is undone by ``finally``."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The program was asked to end. No error: nothing but the outermost level handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number

    @property
    def exit_status(self) -> int:
        """Return the status that a shell gives to a program that a signal ended."""
        return 128 + self.number


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Within the block the signals raise :class:`Interrupted` in the main thread.

    Only in this process: a forked child, as pyroute2 makes one for each namespace and ends by
    SIGTERM, must not unwind through ``finally`` blocks that are its parent's.
    """
    owner = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        if os.getpid() != owner:
            os._exit(128 + number)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Within the block the signals do nothing: cleaning up has bounds of its own on its time."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

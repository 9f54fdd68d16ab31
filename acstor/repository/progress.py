"""Telling someone how far a long operation is."""

import sys
import time
from types import TracebackType
from typing import TextIO

import rich.console
import rich.progress

PLAIN_SECONDS = 10.0
"""Time between two lines where no terminal is attached."""


class Progress:
    """Tells nobody; base of those that do. Used as a context manager; safe from any thread."""

    def __enter__(self) -> "Progress":
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End, also after an error."""

    def begin(self, what: str, total: int) -> None:
        """Start a step of ``total`` bytes, or things; the step before is over."""

    def advance(self, count: int) -> None:
        """Note that so many more of them are done."""


class RichProgress(Progress):
    """A bar on a terminal.

    :param is_bytes: whether bytes are counted, not things.
    """

    def __init__(self, stream: TextIO, *, is_bytes: bool = True) -> None:
        """Draw on ``stream``."""
        counted = (
            (
                rich.progress.DownloadColumn(binary_units=True),
                rich.progress.TransferSpeedColumn(),
            )
            if is_bytes
            else (rich.progress.MofNCompleteColumn(),)
        )
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            *counted,
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(file=stream),
            transient=True,
        )
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> "RichProgress":
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        """Start a new bar in place of the last."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=total)

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bar.advance(self._task, count)


class PlainProgress(Progress):
    """A line now and then, for logs of long operations."""

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._what = ""
        self._total = self._done = 0
        self._next = 0.0

    def begin(self, what: str, total: int) -> None:
        """Start a step; its first line comes after :data:`PLAIN_SECONDS`."""
        self._what, self._total, self._done = what, total, 0
        self._next = time.monotonic() + PLAIN_SECONDS

    def advance(self, count: int) -> None:
        """Write a line if it is time."""
        self._done += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PLAIN_SECONDS
            share = 100 * self._done // max(1, self._total)
            self._stream.write(f"{self._what}: {share} %\n")
            self._stream.flush()


def for_stream(stream: TextIO | None = None, *, is_bytes: bool = True) -> Progress:
    """Return the progress that suits a stream: a bar on a terminal, else lines.

    :param is_bytes: whether bytes are counted, not things.
    """
    stream = stream or sys.stderr
    if stream.isatty():
        return RichProgress(stream, is_bytes=is_bytes)
    return PlainProgress(stream)

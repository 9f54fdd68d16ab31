"""Progress on standard error, where that is a terminal.

Differs from the OpenStack client, which prints it on standard output: here ``-f json --wait`` is
JSON.
"""

import sys
from types import TracebackType
from typing import Self, TextIO

from acstorclient.osc.columns import size_text
from acstorclient.v1.task import Task

BAR_CELLS = 30
"""Width of the bar, characters."""
CLEAR = "\r\x1b[K"
"""Begin the line anew, and clear it."""


class Progress:
    """A line that is written over as the work goes on.

    :param stream: standard error, where none is given.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_shown = self._stream.isatty()
        self._last = ""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the line away."""
        if self._last:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._last = ""

    def show_task(self, task: Task) -> None:
        """Show a task."""
        words = " ".join(each for each in (task.kind, task.state, task.step) if each)
        self._show(words, task.progress, task.bytes_done, task.bytes_total)

    def show_bytes(self, done: int, total: int | None) -> None:
        """Show a download."""
        self._show("download", done / total if total else None, done, total)

    def _show(self, words: str, part: float | None, done: int | None, total: int | None) -> None:
        if not self._is_shown:
            return
        text = words
        if part is not None:
            part = min(max(part, 0.0), 1.0)
            filled = int(part * BAR_CELLS)
            text = f"[{'#' * filled}{'.' * (BAR_CELLS - filled)}] {100 * part:3.0f} % {words}"
        if done is not None and total:
            text += f", {size_text(done)} of {size_text(total)}"
        if text != self._last:
            self._stream.write(CLEAR + text)
            self._stream.flush()
            self._last = text

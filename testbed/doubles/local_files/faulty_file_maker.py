"""A maker of local files that dies, or fails, at a given step."""

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.agent.reconcilers.local_files.making import FileMaker, Pace
from acstor.drivers.nova.image_links.local_directory import Space
from testbed.doubles.faulty_file_operations import KilledError

Result = TypeVar("Result")


class FaultyFileMaker:
    """Does ``steps`` steps, then dies (or fails with ``number``) before or after the next.

    A step is a piece that is written or compared, a finished, a removed or a listed file. Once
    dead, nothing is done any more: a process that was killed cleans nothing up.
    """

    def __init__(
        self, inner: FileMaker, steps: int, *, is_after: bool = False, number: int | None = None
    ) -> None:
        self._inner = inner
        self._steps = steps
        self._is_after = is_after
        self._number = number
        self._is_dead = False
        self.done: list[str] = []

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return self._step("names", self._inner.names)

    def space(self) -> Space:
        """Return the room of the file system."""
        return self._inner.space()

    def write(self, image_id: str, content: ImageContent, pace: Pace) -> None:
        """Write a partial file; each piece is a step."""
        self._inner.write(image_id, content, self._stepping("write", pace))

    def is_right(self, name: str, content: ImageContent, pace: Pace) -> bool:
        """Return whether a file is the image; each piece is a step."""
        return self._inner.is_right(name, content, self._stepping("compare", pace))

    def finish(self, image_id: str) -> bool:
        """Give a partial file its final name."""
        return self._step("finish", lambda: self._inner.finish(image_id))

    def refresh(self, image_id: str, size_bytes: int) -> bool:
        """Return whether a finished file is there, of that size."""
        return self._step("refresh", lambda: self._inner.refresh(image_id, size_bytes))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._step("remove", lambda: self._inner.remove(name))

    def _stepping(self, name: str, pace: Pace) -> Pace:
        return lambda size: self._step(name, lambda: pace(size))

    def _step(self, name: str, action: Callable[[], Result]) -> Result:
        if self._is_dead:
            raise KilledError(name)
        is_the_one = len(self.done) == self._steps
        self.done.append(name)
        if is_the_one and not self._is_after:
            self._fail(name)
        result = action()
        if is_the_one and self._is_after:
            self._fail(name)
        return result

    def _fail(self, name: str) -> None:
        if self._number is not None:
            raise OSError(self._number, os.strerror(self._number), name)
        self._is_dead = True
        raise KilledError(name)


NO_SPACE = errno.ENOSPC

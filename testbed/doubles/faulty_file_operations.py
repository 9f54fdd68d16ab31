"""Changes of files that die, or fail, at a given step."""

import errno
import os
from collections.abc import Callable
from typing import Any

from acstor.drivers.nova.image_links.file_operations import FileOperations


class KilledError(BaseException):
    """The process was killed; no handler of ordinary errors sees it."""


class FaultyFileOperations(FileOperations):
    """Does ``steps`` changes, then dies (or fails with ``number``) before or after the next.

    Once dead, nothing is changed any more, whatever clean-up runs while the stack is unwound: a
    process that was killed cleans nothing up.

    :param act: instead of raising; a real process kills itself here.
    """

    def __init__(
        self,
        steps: int,
        *,
        is_after: bool = False,
        number: int | None = None,
        act: Callable[[], None] | None = None,
    ) -> None:
        self._steps = steps
        self._is_after = is_after
        self._number = number
        self._act = act
        self._is_dead = False
        self.done: list[str] = []

    def _step(self, name: str, *arguments: Any) -> None:
        if self._is_dead:
            raise KilledError(name)
        is_the_one = len(self.done) == self._steps
        self.done.append(name)
        if is_the_one and not self._is_after:
            self._fail(name)
        try:
            getattr(super(), name)(*arguments)
        finally:
            if is_the_one and self._is_after:
                self._fail(name)

    def _fail(self, name: str) -> None:
        if self._number is not None:
            raise OSError(self._number, os.strerror(self._number), name)
        if self._act is not None:
            self._act()
        self._is_dead = True
        raise KilledError(name)

    def symlink(self, target: str, path: str) -> None:
        self._step("symlink", target, path)

    def change_owner(self, path: str, user: int, group: int) -> None:
        self._step("change_owner", path, user, group)

    def unlink(self, path: str) -> None:
        self._step("unlink", path)

    def make_directory(self, path: str) -> None:
        self._step("make_directory", path)

    def remove_directory(self, path: str) -> None:
        self._step("remove_directory", path)

    def rename(self, former: str, path: str) -> None:
        self._step("rename", former, path)

    def make_file(self, path: str) -> None:
        self._step("make_file", path)

    def hard_link(self, existing: str, path: str) -> None:
        self._step("hard_link", existing, path)


NO_SPACE = errno.ENOSPC
EVERY_STEP = 1 << 30
"""Step that none reaches: more than anything does, so nothing fails."""

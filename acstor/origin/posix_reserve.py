"""Space that is kept for what frees space.

On a full file system nothing can be removed any more: a removal first writes down that it removes.
So a few small files are kept, and given up one after the other when a write that leads to more
space finds none. Other writers never get them, except by chance in the moment between.
"""

import contextlib
import contextvars
import errno
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from acstor.origin import posix_write

LOG = logging.getLogger(__name__)

FILE_COUNT = 8
"""Files of the reserve: that many writes find space, even if others take what they leave over."""
FILE_BYTES = 64 << 10
"""Size of a file of the reserve, bytes: a small file and the folders around it, on file systems of
any block size that is used."""

FILES_PER_WRITE_MAX = 2
"""Files that one write is worth: each has space for it, even where its folder grows."""
WAIT_SECONDS = 1.0
"""Seconds to wait for the space of a file, on average: CephFS removes some time after unlink."""

_kept = contextvars.ContextVar("kept", default=FILE_COUNT)

Answer = TypeVar("Answer")


@contextlib.contextmanager
def freeing(*, is_beginning: bool = False) -> Iterator[None]:
    """Let what this thread writes within have the reserve: it leads to more space.

    :param is_beginning: more has to be written before there is: half of the reserve is kept.
    """
    before = _kept.set(FILE_COUNT // 2 if is_beginning else 0)
    try:
        yield
    finally:
        _kept.reset(before)


class Reserve:
    """The files of the reserve.

    :param folder: absolute path; made when the reserve is filled.
    :param sleep: waits so many seconds.
    """

    def __init__(self, folder: str, sleep: Callable[[float], None] = time.sleep) -> None:
        """Keep where the reserve is."""
        self._folder = folder
        self._sleep = sleep

    def spend_on(self, write: Callable[[], Answer]) -> Answer:
        """Return the answer of ``write``, which changes nothing where it finds no space.

        :raises OSError: what the last attempt raised.
        """
        given_up = 0
        is_waited_for = True
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or _kept.get() >= FILE_COUNT:
                    raise
                if not is_waited_for:
                    # Else all of the reserve would go before the space of one file is there.
                    self._sleep(WAIT_SECONDS * random.uniform(0.5, 1.5))
                    is_waited_for = True
                    continue
                if given_up == FILES_PER_WRITE_MAX or not self._give_up_one(_kept.get()):
                    raise
                given_up += 1
                is_waited_for = False

    def fill(self, make_folder: Callable[[str], None]) -> None:
        """Make what is missing of the reserve, as far as there is space.

        :param make_folder: makes its folder if that is not there.
        """
        try:
            make_folder(self._folder)
            present = {name for name in os.listdir(self._folder) if name.isdigit()}
            for number in range(FILE_COUNT):
                if str(number) not in present:
                    self._make(str(number))
        except OSError as error:
            LOG.debug("the reserve %s is not filled: %s", self._folder, error)

    def _make(self, name: str) -> None:
        # Random: a file system that compresses, or keeps holes, would keep nothing for zeros.
        content = memoryview(os.urandom(FILE_BYTES))
        temporary = posix_write.write_temporary(self._folder, [content])
        posix_write.give_name(temporary, os.path.join(self._folder, name))

    def _give_up_one(self, kept: int) -> bool:
        """Remove a file of the reserve; return False when no more than ``kept`` are left."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return False
        present = sorted(name for name in names if name.isdigit())
        for name in present[: max(0, len(present) - kept)]:
            if posix_write.remove_if_there(os.path.join(self._folder, name)):
                posix_write.synchronise_folder(self._folder)
                LOG.warning("the origin is full: its reserve shrinks to %d files", len(present) - 1)
                return True
        return False

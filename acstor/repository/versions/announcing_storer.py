"""Storing packs that a record names before they exist."""

import concurrent.futures
import contextlib
import mmap
from collections.abc import Callable, Iterator

from acstor.origin import base
from acstor.repository.pack_filler import InlineExecutor, PackStorer, Stored

Announce = Callable[[bytes], None]
"""Told the name of a pack; what it raises ends the capture."""


class AnnouncingStorer(PackStorer):
    """Stores packs, each of which is named before.

    :param announce: see :data:`Announce`.
    :param workers: packs stored at the same time.
    """

    def __init__(
        self,
        objects: base.ObjectStore,
        executor: concurrent.futures.Executor,
        workers: int,
        on_stored: Stored,
        check_room: Callable[[int], None],
        announce: Announce,
    ) -> None:
        """Allocate nothing yet."""
        super().__init__(objects, executor, workers, on_stored, check_room)
        self._announce = announce

    def store(self, pack: bytes, buffer: mmap.mmap, size: int, table: bytes) -> None:
        """Name a pack, then begin to store it."""
        self._announce(pack)
        super().store(pack, buffer, size, table)


@contextlib.contextmanager
def open_storer(
    objects: base.ObjectStore,
    workers: int,
    on_stored: Stored,
    check_room: Callable[[int], None],
    announce: Announce,
) -> Iterator[AnnouncingStorer]:
    """Have what stores packs; none is being stored any more when the context ends.

    :param workers: packs stored at the same time; 0: each in the caller's thread.
    """
    executor: concurrent.futures.Executor = (
        concurrent.futures.ThreadPoolExecutor(workers, "acstor-capture")
        if workers
        else InlineExecutor()
    )
    with executor:
        storer = AnnouncingStorer(objects, executor, workers, on_stored, check_room, announce)
        try:
            yield storer
        except BaseException:
            storer.abandon()
            raise

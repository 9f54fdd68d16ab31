"""The longest phase of a copy: all objects that the refs name, until the destination has them."""

import dataclasses
import random
from collections.abc import Callable, Iterable

from acstor import exception
from acstor.repository.copying.object_check import UNREADABLE
from acstor.repository.copying.parallel import run_parallel
from acstor.repository.copying.report import CopyReport
from acstor.repository.copying.roots import Root, RootReader
from acstor.repository.copying.transfer import Transfer
from acstor.repository.progress import Progress

ROUNDS_MAX = 5
"""Times that refs are read anew because an object of theirs was not there."""
SAMPLE_SHARE = 32
"""One in so many objects is read back where some are."""
SAMPLE_MIN = 32
"""Objects that are read back at least where some are."""


@dataclasses.dataclass(slots=True)
class Copies:
    """Objects at the destination."""

    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    """Sizes at the source by key, bytes."""
    failed: set[str] = dataclasses.field(default_factory=set)
    """Keys of those that the destination does not have."""


class ObjectsPhase:
    """Copies and verifies the objects of one copy.

    :param size_of: returns the size of an object at the source.
    :param check: called before each object: raises where the copy must not go on.
    """

    def __init__(
        self,
        transfer: Transfer,
        reader: RootReader,
        size_of: Callable[[str], int],
        report: CopyReport,
        *,
        workers: int,
        progress: Progress,
        check: Callable[[], None],
    ) -> None:
        self._transfer = transfer
        self._reader = reader
        self._size_of = size_of
        self._report = report
        self._workers = workers
        self._progress = progress
        self._check = check
        self._missing: set[str] = set()
        self.copies = Copies()

    def copy(self, roots: dict[str, Root]) -> None:
        """Copy what the refs name; refs that were changed meanwhile are replaced in ``roots``.

        :raises ExhaustedError: when the destination is full.
        :raises UnavailableError: when one of the two cannot be reached.
        """
        changed = list(roots.values())
        for _ in range(ROUNDS_MAX):
            self._copy_all(self._fresh(changed))
            changed = self._changed(roots)
            if not changed:
                break
        needed = {key for root in roots.values() for key in root.keys if key in self._missing}
        for key in sorted(needed):
            self._fail(key, "the object is missing")

    def _fresh(self, roots: Iterable[Root]) -> list[str]:
        found = dict.fromkeys(key for root in roots for key in root.keys)
        copies = self.copies
        return [key for key in found if key not in copies.sizes and key not in copies.failed]

    def _changed(self, roots: dict[str, Root]) -> list[Root]:
        """Read the refs anew whose objects are missing; return those that name others now."""
        if not self._missing:
            return []
        affected = [root for root in roots.values() if not self._missing.isdisjoint(root.keys)]
        found = []
        for before in affected:
            after = self._reader.read_again(before.name)
            self._report.count(refs_read_again=1)
            if after is None:
                del roots[before.name]
            elif after.content != before.content:
                roots[before.name] = after
                found.append(after)
        return found

    def _copy_all(self, keys: list[str]) -> None:
        self._progress.begin("looking at objects", len(keys))
        run_parallel(self._measure, keys, self._workers)
        known = [key for key in keys if key in self.copies.sizes]
        self._progress.begin("copying", sum(self.copies.sizes[key] for key in known))
        run_parallel(self._copy, known, self._workers)

    def _measure(self, key: str) -> None:
        try:
            size = self._size_of(key)
        except exception.NotFoundError:
            self._missing.add(key)
        except exception.CorruptError as error:
            self._fail(key, error.message)
        else:
            self.copies.sizes[key] = size
            self._missing.discard(key)
        self._progress.advance(1)

    def _copy(self, key: str) -> None:
        self._check()
        size = self.copies.sizes[key]
        try:
            copied = self._transfer.copy(key, size)
        except exception.NotFoundError:
            self._missing.add(key)
            del self.copies.sizes[key]
        except UNREADABLE as error:
            self._fail(key, error.message)
        else:
            number = int(copied.is_copied)
            self._report.count(
                objects_copied=number,
                bytes_copied=number * size,
                objects_present=1 - number,
                objects_replaced=int(copied.is_replaced),
            )
            if copied.damage is not None:
                self._report.add_damage(key, copied.damage)
        self._progress.advance(size)

    def _fail(self, key: str, what: str) -> None:
        self._report.add_damage(key, what)
        self.copies.failed.add(key)

    def verify(self, *, share: int, choice: random.Random) -> None:
        """Read objects back from the destination; what is damaged there is copied once more.

        :param share: one in so many; 1: all.
        """
        known = [
            key
            for key in sorted(self.copies.sizes)
            if key not in self.copies.failed and key not in self._report.damages
        ]
        if share > 1:
            count = min(len(known), max(SAMPLE_MIN, len(known) // share))
            known = choice.sample(known, count)
        self._progress.begin("verifying", sum(self.copies.sizes[key] for key in known))
        run_parallel(self._verify, known, self._workers)

    def _verify(self, key: str) -> None:
        self._check()
        size = self.copies.sizes[key]
        try:
            try:
                self._transfer.verify(key, size)
            except UNREADABLE:
                self._transfer.replace(key, size)
                self._report.count(objects_replaced=1)
                self._transfer.verify(key, size)
            self._report.count(objects_verified=1)
        except UNREADABLE as error:
            self._fail(key, f"at the destination: {error.message}")
        self._progress.advance(size)

"""Working set of an image's boots: the content of the ref ``working-sets/<uuid>``.

Every host reports what its guests read while they booted. An image never changes, so what its
boots read hardly does either, and Capo (section 4.2.1) found that the common part of derived
disks is read by all virtual machines or by none. A chunk that any boot read is therefore wanted,
and nothing ages: a new release of an image is another image. The exception is what one boot alone
did (a virus scan within its first minutes reads everything): as soon as
:data:`REPORTERS_FOR_TWO` data planes have reported, a chunk counts only when two of them read it.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator

from acstor import exception, untrusted_json
from acstor.control import chunk_set
from acstor.control.chunk_set import CHUNK_COUNT_MAX, ChunkSet
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.images import image_refs

VERSION = 2
"""Newest version that this build reads and writes: of disks whose sets are told by span."""
BITMAP_VERSION = 1
"""Version of disks whose sets are bitmaps, which releases before version 2 read too."""
PREFIX = "working-sets/"
CONTENT_SIZE_MAX = 32 << 20
"""Longest content of a ref that is read, bytes."""
REPORTERS_FOR_TWO = 3
"""Reporting data planes from which on a chunk that only one of them read does not count."""
_COUNT_MAX = (1 << 53) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class WorkingSet:
    """Chunks that boots of one image have read, as reported so far."""

    chunk_count: int
    once: ChunkSet
    """Chunks that some data plane has reported."""
    twice: ChunkSet
    """Chunks that two data planes, or two processes of one, have; a part of ``once``."""
    boots: int = 0
    reporters: int = 0
    """Processes of data planes that have reported."""

    @classmethod
    def empty(cls, chunk_count: int) -> "WorkingSet":
        """Return the set before any report."""
        return cls(chunk_count, ChunkSet(chunk_count), ChunkSet(chunk_count))

    @property
    def wanted(self) -> ChunkSet:
        """Chunks that the next boot is expected to read."""
        return self.once if self.reporters < REPORTERS_FOR_TWO else self.twice

    @property
    def wanted_count(self) -> int:
        """Number of those chunks."""
        return len(self.wanted)

    def merged(self, fresh: ChunkSet, boots: int, *, is_new_reporter: bool) -> "WorkingSet":
        """Return the set after one more report.

        :param fresh: chunks that this data-plane process has not reported before.
        :param boots: boots since its last report.
        :param is_new_reporter: whether this is its first report.
        """
        return dataclasses.replace(
            self,
            once=self.once | fresh,
            twice=self.twice | (self.once & fresh),
            boots=min(_COUNT_MAX, self.boots + boots),
            reporters=min(_COUNT_MAX, self.reporters + is_new_reporter),
        )

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {
            "version": version_of(self.chunk_count),
            "boots": self.boots,
            "reporters": self.reporters,
            "chunk_count": self.chunk_count,
            "once": self.once.encode(),
            "twice": self.twice.encode(),
        }
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, image_id: str) -> "WorkingSet":
        """Read a ref's content; unknown fields are ignored.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed or too long.
        """
        what = f"the working set of image {image_id}"
        try:
            if len(content) > CONTENT_SIZE_MAX:
                raise ValueError("it is too long")
            fields = untrusted_json.load(content, what)
            version = fields["version"]
            counts = [fields.get(name) for name in ("chunk_count", "boots", "reporters")]
            texts = [fields.get(name) for name in ("once", "twice")]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(f"{what} is malformed") from error
        if version not in (BITMAP_VERSION, VERSION):
            raise exception.UnsupportedError(
                f"{what} has version {version!r:.20}, this release reads up to {VERSION}"
            )
        chunk_count, boots, reporters = (_checked_count(value, what) for value in counts)
        if chunk_count > CHUNK_COUNT_MAX or version != version_of(chunk_count):
            raise exception.CorruptError(f"{what} is malformed")
        if not all(isinstance(text, str) for text in texts):
            raise exception.CorruptError(f"{what} is malformed")
        once, twice = (ChunkSet.decode(text, chunk_count) for text in texts)
        if twice - once:
            raise exception.CorruptError(f"{what} is malformed")
        return cls(chunk_count, once, twice, boots, reporters)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Contribution of one data plane; see :meth:`WorkingSet.merged`."""

    chunk_count: int
    fresh: ChunkSet
    boots: int
    is_new_reporter: bool


def version_of(chunk_count: int) -> int:
    """Return the version in which what is known of a disk of that many chunks is written."""
    return BITMAP_VERSION if chunk_set.is_bitmap(chunk_count) else VERSION


def working_set_ref(image_id: str) -> str:
    """Return the name of the ref that holds an image's working set."""
    return PREFIX + layout.canonical_image_id(image_id)


def read(refs: RefStore, image_id: str) -> WorkingSet | None:
    """Return what is known of an image, None when no boot of it was reported.

    :raises CorruptError: and the like when the ref is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(working_set_ref(image_id))
    return None if ref is None else WorkingSet.parse(ref.content, image_id)


def add(
    refs: RefStore,
    image_id: str,
    report: Report,
    wait: Callable[[float], object] = time.sleep,
) -> WorkingSet:
    """Merge a report into the ref, by compare-and-swap, and return the merged set.

    What is there but cannot be read, or is of a disk of another length, is replaced: it is learnt
    again.

    :raises ConflictError: when others write all the time.
    :raises UnsupportedError: when a newer release wrote the ref; it stays.
    :raises UnavailableError: when the origin cannot be reached.
    """
    merged = WorkingSet.empty(report.chunk_count)

    def merge(content: bytes | None) -> bytes:
        nonlocal merged
        known = WorkingSet.empty(report.chunk_count)
        if content is not None:
            with contextlib.suppress(exception.CorruptError):
                found = WorkingSet.parse(content, image_id)
                known = found if found.chunk_count == report.chunk_count else known
        merged = known.merged(report.fresh, report.boots, is_new_reporter=report.is_new_reporter)
        return merged.encode()

    ref_replacement.change(refs, working_set_ref(image_id), merge, wait)
    return merged


def list_image_ids(refs: RefStore) -> Iterator[str]:
    """Yield the ids of the images of which something is known, in no particular order."""
    return image_refs.list_image_ids(refs, PREFIX)


def forget(refs: RefStore, image_id: str) -> bool:
    """Remove what is known of an image; return whether there was something.

    :raises UnavailableError: when the origin cannot be reached.
    """
    return ref_replacement.replace(refs, working_set_ref(image_id), None)


def _checked_count(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _COUNT_MAX:
        raise exception.CorruptError(f"{what} is malformed")
    return value

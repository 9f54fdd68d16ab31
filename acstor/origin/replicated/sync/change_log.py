"""Change logs: what was stored in a member and is owed to others, by disk.

A writer process keeps the open segment of each member in memory, and stores it as an object of that
member once the objects in it come to S_log bytes, or the control period is over. A log says sooner
and cheaper what to copy than a comparison of listings does, which is the truth: a segment that is
lost with its process costs such a comparison, and no object.

Source: flexStore, §III-C and §IV-C: a log of new chunks in each storage node, by VM. Differs: the
writers keep it, as members are plain stores; it counts bytes of objects, and is read in segments.
"""

import dataclasses
import hashlib
import json
import logging
import re
import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin import keys
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.members import check_name

CHANGES_PREFIX = "changes/"
"""Folder of the segments in a member; a folder in it for each writer process."""
CHANGE_LOG_VERSION = 1
"""Version of segments that this build writes; it reads this one only."""
S_LOG = 100_000_000
"""Bytes of objects after which a segment is stored: flexStore, Figure 6, flat from there."""
PERIOD_SECONDS = 60.0
"""Control period T_s: longest time that a segment is open, and that a choice of pairs holds."""
ENTRIES_MAX = 65_536
"""Most objects of a segment, so that it fits in memory where objects are small."""
SEGMENT_SIZE_MAX = 32 << 20
"""Longest segment, bytes: as many entries as there may be have some 9 MiB."""
WAITING_MAX = 16
"""Closed segments of a member that wait for it to be reachable; of more the oldest are lost."""
HEADER_LENGTH_MAX = 1024
"""Longest first line, bytes."""
DISK_LENGTH_MAX = 64
"""Longest name of a disk, characters."""

LOG = logging.getLogger(__name__)

_SESSION = re.compile(r"[0-9a-f]{32}\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One object that was stored."""

    key: str
    size: int
    """Bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """Objects that one process has stored in one member for a while."""

    member: str
    session: str
    """32 hexadecimal digits, of the process."""
    number: int
    """Place among the segments of the session, from 0; those between may be missing."""
    disks: Mapping[str, tuple[Change, ...]]
    """Objects by disk, in the order in which they were stored."""

    @property
    def key(self) -> str:
        """Key of the object that the segment is."""
        return f"{CHANGES_PREFIX}{self.session}/{self.number:08x}"

    def encode(self) -> bytes:
        """Return the segment: a line of JSON with the digest of the rest, and JSON."""
        disks = {
            disk: [[change.key, change.size] for change in changes]
            for disk, changes in self.disks.items()
        }
        body = json.dumps(disks, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        header = {
            "version": CHANGE_LOG_VERSION,
            "member": self.member,
            "session": self.session,
            "number": self.number,
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        return json.dumps(header, sort_keys=True).encode() + b"\n" + body

    @classmethod
    def parse(cls, content: bytes) -> "Segment":
        """Read a segment.

        :raises CorruptError: when it is damaged.
        :raises UnsupportedError: when a newer release wrote it.
        """
        line, is_there, body = content.partition(b"\n")
        try:
            if not is_there or len(line) > HEADER_LENGTH_MAX or len(content) > SEGMENT_SIZE_MAX:
                raise ValueError("it has no header, or is too long")
            fields = untrusted_json.load(line, "the header of a change log")
            version = fields["version"]
            if version == CHANGE_LOG_VERSION:
                return cls._parsed(fields, body)
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise exception.CorruptError(
                f"a segment of a change log is damaged: {error}",
                hint="the listings of the members are compared in its place",
            ) from error
        raise exception.UnsupportedError(f"a change log has version {version!r:.20}")

    @classmethod
    def _parsed(cls, fields: Mapping[str, Any], body: bytes) -> "Segment":
        if hashlib.sha256(body).hexdigest() != fields["sha256"]:
            raise ValueError("its digest is another one")
        session = fields["session"]
        if not isinstance(session, str) or not _SESSION.match(session):
            raise ValueError("session is not 32 hexadecimal digits")
        disks = untrusted_json.load(body, "the body of a change log")
        found = {_disk(disk): tuple(map(_change, changes)) for disk, changes in disks.items()}
        if sum(map(len, found.values())) > ENTRIES_MAX:
            raise ValueError(f"more than {ENTRIES_MAX} objects")
        number = untrusted_json.whole(fields["number"], "number", 0, (1 << 32) - 1)
        return cls(check_name(fields["member"]), session, number, found)


class _OpenSegment:
    """Segment that objects are still added to."""

    def __init__(self, begun_at: float) -> None:
        self.begun_at = begun_at
        self.size_bytes = 0
        self.count = 0
        self.disks: dict[str, list[Change]] = {}

    def add(self, disk: str, change: Change) -> None:
        self.disks.setdefault(disk, []).append(change)
        self.size_bytes += change.size
        self.count += 1

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= S_LOG or self.count >= ENTRIES_MAX


class ChangeLogWriter:
    """The change logs that one process keeps, of all members.

    :meth:`note` is called where objects are stored and only remembers; :meth:`store_due` is called
    by a thread that may wait.

    :param members: by name; segments are stored in them. May change at any time.
    :param disk_of: returns the name of the disk that a key belongs to.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        disk_of: Callable[[str], str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = members
        self._disk_of = disk_of
        self._clock = clock
        self._lock = threading.Lock()
        self._session = secrets.token_hex(16)
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._open: dict[str, _OpenSegment] = {}
        self._waiting: defaultdict[str, deque[Segment]] = defaultdict(deque)
        self.lost = 0
        """Segments that were given up; the members' listings have to be compared."""

    def note(self, member: str, key: str, size: int) -> None:
        """Remember that an object was stored in a member, and that others shall have it."""
        disk = self._disk_of(key)
        with self._lock:
            segment = self._open.setdefault(member, _OpenSegment(self._clock()))
            segment.add(disk, Change(key, size))
            if segment.is_full:
                self._close(member)

    def size_bytes(self, member: str) -> int:
        """Return the bytes of objects that no stored segment names: flexStore's ``getLogSize``."""
        with self._lock:
            waiting = sum(
                change.size
                for segment in self._waiting[member]
                for changes in segment.disks.values()
                for change in changes
            )
            segment = self._open.get(member)
            return waiting + (segment.size_bytes if segment else 0)

    def store_due(self, *, is_ending: bool = False) -> None:
        """Store the segments that are full or old; a member that is away gets its own later.

        :param is_ending: True to store those that are neither, too: the process ends.
        :raises AcstorError: the first error; the segments are kept, and stored by a later call.
        """
        now = self._clock()
        with self._lock:
            for member, segment in list(self._open.items()):
                if is_ending or now - segment.begun_at >= PERIOD_SECONDS:
                    self._close(member)
        errors = []
        for member in tuple(self._members):
            try:
                self._store_waiting(member)
            except exception.AcstorError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _close(self, member: str) -> None:
        """Have a segment wait for its storing; the lock is held."""
        segment = self._open.pop(member)
        waiting = self._waiting[member]
        if len(waiting) == WAITING_MAX:
            waiting.popleft()
            self.lost += 1
        disks = {disk: tuple(changes) for disk, changes in segment.disks.items()}
        waiting.append(Segment(member, self._session, self._numbers[member], disks))
        self._numbers[member] += 1

    def _store_waiting(self, member: str) -> None:
        while True:
            with self._lock:
                segment = next(iter(self._waiting[member]), None)
            if segment is None:
                return
            try:
                _store(self._members[member], segment)
            except exception.AcstorError as error:
                if error.is_transient:
                    raise
                # Hosts may not write it where rights are tight: listings tell of it instead.
                LOG.debug("no change log in member %s: %s", member, exception.one_line(error))
                self.lost += 1
            with self._lock:
                waiting = self._waiting[member]
                if waiting and waiting[0] is segment:
                    waiting.popleft()


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadableSegment:
    """Segment that tells nothing."""

    key: str
    error: exception.AcstorError


def read_segments(member: Member) -> Iterator[Segment | UnreadableSegment]:
    """Yield the segments that a member has.

    :raises UnavailableError: when the member cannot be asked.
    """
    for key in sorted(member.list(CHANGES_PREFIX)):
        try:
            segment = Segment.parse(_read(member, key))
            if (segment.member, segment.key) != (member.name, key):
                raise exception.CorruptError(f"{key} is {segment.key} of {segment.member}")
        except exception.NotFoundError:
            continue  # somebody else has settled it meanwhile
        except exception.AcstorError as error:
            if error.is_transient:
                raise
            yield UnreadableSegment(key, error)
        else:
            yield segment


def _store(member: Member, segment: Segment) -> None:
    content = segment.encode()
    member.call(lambda origin: origin.put_if_absent(segment.key, [content]))


def _read(member: Member, key: str) -> bytes:
    return member.call(lambda origin: origin.get(key, SEGMENT_SIZE_MAX))


def _disk(name: object) -> str:
    if not isinstance(name, str) or len(name) > DISK_LENGTH_MAX or not name.isprintable():
        raise ValueError(f"{name!r:.80} is no name of a disk")
    return name


def _change(fields: object) -> Change:
    if not isinstance(fields, list) or len(fields) != 2 or not isinstance(fields[0], str):
        raise ValueError("a change is no pair of a key and a size")
    return Change(keys.validate_key(fields[0]), untrusted_json.whole(fields[1], "size"))

"""Learning what boots read: from this host's data plane, to the origin, back to the data plane."""

import contextlib
import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from acstor import exception, native, untrusted_json
from acstor.agent.handing_over import hand_over
from acstor.agent.pass_thread import PassThread
from acstor.agent.reconciler import HostSnapshot
from acstor.control import chunk_set
from acstor.control.chunk_set import CHUNK_COUNT_MAX, ChunkSet
from acstor.control.client import AdminClient
from acstor.files import write_atomically
from acstor.repository.images import working_set
from acstor.repository.images.working_set import Report, WorkingSet

LOG = logging.getLogger(__name__)

Value = TypeVar("Value")

REPORTED_VERSION = 2
"""Newest of the files that say what was reported already: of disks whose sets are told by span."""
REPORTED_BITMAP_VERSION = 1
"""Of such files of disks whose sets are bitmaps."""
_REPORTED_BYTES_MAX = 32 << 20
_JITTER = 0.1
_SOONER = 10
PROCESS_MAX = 1e12
"""Latest start of a process, seconds since the epoch."""
_COUNT_MAX = (1 << 53) - 1


@dataclass(frozen=True)
class Reported:
    """Last reported boots and chunks of an image, of one process of the data plane."""

    process: float
    """Start of the process; a new one has forgotten what was read before."""
    boots: int
    chunk_count: int
    read: ChunkSet
    """Chunks that boots read."""

    def encode(self) -> bytes:
        """Return the file's content, JSON."""
        fields = {
            "version": _reported_version(self.chunk_count),
            "process": self.process,
            "boots": self.boots,
            "chunk_count": self.chunk_count,
            "read": self.read.encode(),
        }
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "Reported":
        """Read a file's content.

        :raises CorruptError: when it is malformed, or of another version.
        """
        try:
            fields = untrusted_json.load(content, "what was reported")
            if fields["version"] not in (REPORTED_BITMAP_VERSION, REPORTED_VERSION):
                raise ValueError("another version")
            process = untrusted_json.number(fields["process"], "process", 0, PROCESS_MAX)
            found = cls._checked(process, fields, fields["read"])
            if fields["version"] != _reported_version(found.chunk_count):
                raise ValueError("a version of disks of another size")
            return found
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(f"not what was reported: {error}") from error

    @classmethod
    def of_data_plane(cls, process: float, found: Mapping[str, Any]) -> "Reported":
        """Return what a data plane tells (``workingset.read``).

        :raises CorruptError: when it is not what a data plane tells.
        """
        try:
            return cls._checked(process, found, found["bitmap"])
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(f"the data plane tells nonsense: {error}") from error

    @classmethod
    def _checked(cls, process: float, fields: Mapping[str, Any], text: str) -> "Reported":
        boots, chunk_count = fields["boots"], fields["chunk_count"]
        for value, most in ((boots, _COUNT_MAX), (chunk_count, CHUNK_COUNT_MAX)):
            if not isinstance(value, int) or not 0 <= value <= most:
                raise ValueError(f"{value!r:.20} is no count")
        return cls(process, boots, chunk_count, ChunkSet.decode(text, chunk_count))


class WorkingSets:
    """Reconciler: reports what boots on this host read, and takes over what all hosts learnt.

    The work is done on a thread of its own: how much of each set the host holds (coverage) at each
    pass; each image when it is first offered, when the data plane is a new process, and every
    ``interval`` seconds.

    :param directory: of the agent's state.
    :param on_coverage: called with what :attr:`coverage` has become.
    :param clock: monotonic seconds.
    """

    name = "working sets"

    def __init__(
        self,
        directory: str,
        interval: float,
        *,
        on_coverage: Callable[[Mapping[str, float]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = os.path.join(directory, "working-sets")
        self._interval = interval
        self._on_coverage = on_coverage
        self._clock = clock
        self._thread = PassThread("working-sets", self.act)
        self._process = 0.0
        self._due: dict[str, float] = {}  # image -> when it is looked at next
        self._reported: dict[str, Reported] = {}
        self._given: dict[str, tuple[object, bytes]] = {}  # image -> (process, digest of the set)
        self._known: dict[str, tuple[str, WorkingSet]] = {}  # image -> (token, set)
        self._giving = threading.Lock()  # of _given, _wanted and _expected
        self._wanted: dict[str, ChunkSet] = {}  # image -> what all hosts have learnt
        self._expected: dict[str, ChunkSet] = {}  # image -> what servers to come use besides
        self._coverage: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    @property
    def coverage(self) -> Mapping[str, float]:
        """By image, the share of its working set that this host holds, 0 to 1."""
        return self._coverage

    def expect(self, data_plane: AdminClient, image_id: str, chunks: ChunkSet) -> None:
        """Have the data plane take chunks for a part of an image's working set, until told else.

        For servers that are about to come, which use them; from any thread.

        :raises NotFoundError: when the image is not attached.
        :raises InvalidError: when the chunks are of an image of another length.
        :raises UnavailableError: when the data plane does not answer.
        """
        with self._giving:
            former = self._expected.get(image_id)
            self._expected[image_id] = chunks
            try:
                self._give_known(data_plane, image_id, chunks.chunk_count)
            except (exception.AcstorError, OSError):
                self._expected.pop(image_id)
                if former is not None:
                    self._expected[image_id] = former
                raise

    def expect_no_more(self, image_id: str) -> None:
        """Take back what is expected of an image; the next report of it tells the data plane."""
        with self._giving:
            self._expected.pop(image_id, None)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Have the thread act on a pass; return what was wrong when it acted last."""
        self._thread.show(snapshot)
        return self._problems

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds."""
        self._thread.stop(timeout)

    def act(self, snapshot: HostSnapshot) -> None:
        """Act on one pass; what fails is listed at the next and tried again in the next round."""
        if snapshot.status is None:
            self._set_coverage({})
            return
        process = float(snapshot.status.get("started_at") or 0.0)
        if process != self._process:
            self._process = process
            self._due.clear()
        try:
            # In this order: what has just been given counts.
            self._learn_due(snapshot)
            self._read_coverage(snapshot)
        except (exception.AcstorError, OSError) as error:
            # Whoever is away, the next images would only wait for it as well.
            self._problems = {**self._problems, self.name: exception.one_line(error)}
        else:
            self._problems.pop(self.name, None)

    # Coverage

    def _read_coverage(self, snapshot: HostSnapshot) -> None:
        found: dict[str, float] = {}
        for entry in snapshot.data_plane.call("workingset.coverage"):
            wanted, present = int(entry["wanted_chunks"]), int(entry["present_chunks"])
            found[str(entry["image"])] = min(1.0, present / wanted) if wanted > 0 else 1.0
        self._set_coverage(found)

    def _set_coverage(self, found: dict[str, float]) -> None:
        self._coverage = found
        self._on_coverage(found)

    # Learning

    def _learn_due(self, snapshot: HostSnapshot) -> None:
        if snapshot.origin is None:
            return  # the pass itself says so
        for image_id in sorted(snapshot.offered):
            if self._clock() < self._due.get(image_id, 0.0):
                continue
            what = f"working set of image {image_id}"
            problems = {key: text for key, text in self._problems.items() if key != what}
            interval = self._interval
            try:
                self._learn(snapshot, image_id)
            except exception.UnavailableError:
                raise
            except exception.ConflictError as error:
                # Many hosts report at once; the next round is soon enough.
                LOG.debug("image %s: %s", image_id, error)
                interval /= _SOONER
            except (exception.AcstorError, OSError) as error:
                problems[what] = exception.one_line(error)
            self._problems = problems
            jitter = random.uniform(1 - _JITTER, 1 + _JITTER)
            self._due[image_id] = self._clock() + interval * jitter
        if snapshot.registered is not None:
            self._forget_all_but(snapshot.registered)

    def _learn(self, snapshot: HostSnapshot, image_id: str) -> None:
        found = Reported.of_data_plane(
            self._process, snapshot.data_plane.call("workingset.read", image=image_id)
        )
        learnt = self._report(snapshot, image_id, found)
        if learnt is not None and learnt.chunk_count == found.chunk_count:
            with self._giving:
                self._wanted[image_id] = learnt.wanted
                self._give_known(snapshot.data_plane, image_id, found.chunk_count)

    def _report(self, snapshot: HostSnapshot, image_id: str, found: Reported) -> WorkingSet | None:
        """Report what is new; return what all hosts have learnt, None for nothing yet."""
        assert snapshot.origin is not None
        before = self._reported_before(image_id, found)
        fresh = found.read - before.read if before else found.read
        boots = found.boots - (before.boots if before else 0)
        if found.read and (fresh or boots > 0):
            report = Report(
                chunk_count=found.chunk_count,
                fresh=fresh,
                boots=max(0, boots),
                is_new_reporter=before is None,
            )
            learnt = working_set.add(snapshot.origin, image_id, report)
            self._known.pop(image_id, None)
            self._reported[image_id] = found
            write_atomically(self._path(image_id), found.encode())
            LOG.debug("image %s: %d chunks are new", image_id, len(fresh))
            return learnt
        ref = snapshot.origin.get_ref(working_set.working_set_ref(image_id))
        if ref is None:
            return None
        token, parsed = self._known.get(image_id, ("", None))
        if parsed is None or token != ref.token:
            parsed = WorkingSet.parse(ref.content, image_id)
            self._known[image_id] = (ref.token, parsed)
        return parsed

    def _reported_before(self, image_id: str, found: Reported) -> Reported | None:
        """Return what this process had reported of this disk, None for nothing."""
        before = self._reported.get(image_id)
        if before is None:
            before = self._load(image_id)
        if before is None or (before.process, before.chunk_count) != (
            found.process,
            found.chunk_count,
        ):
            return None
        return before

    def _load(self, image_id: str) -> Reported | None:
        try:
            with open(self._path(image_id), "rb") as source:
                return Reported.parse(source.read(_REPORTED_BYTES_MAX))
        except FileNotFoundError:
            return None
        except exception.CorruptError as error:
            # Then a chunk may count twice: a hint that is a little off.
            LOG.warning("%s: %s", self._path(image_id), error)
            return None

    def _give_known(self, data_plane: AdminClient, image_id: str, chunk_count: int) -> None:
        """Have the data plane use what was learnt and what is expected, of that many chunks."""
        known = (self._wanted.get(image_id), self._expected.get(image_id))
        wanted = ChunkSet(chunk_count)
        for chunks in known:
            if chunks is not None and chunks.chunk_count == chunk_count:
                wanted |= chunks
        self._give(data_plane, image_id, wanted)

    def _give(self, data_plane: AdminClient, image_id: str, wanted: ChunkSet) -> None:
        """Have the data plane use a working set, if it does not already."""
        process = self._process
        content = wanted.to_bytes()
        digest = native.digest(content)
        if not wanted or self._given.get(image_id) == (process, digest):
            return
        path = os.path.join(self._directory, f"{image_id}.bitmap")
        hand_over(data_plane, path, content)
        try:
            data_plane.call("workingset.set", image=image_id, path=path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._given[image_id] = (process, digest)
        LOG.info("boots of image %s are expected to read %d chunks", image_id, len(wanted))

    def _forget_all_but(self, registered: frozenset[str]) -> None:
        self._reported = _only(self._reported, registered)
        with self._giving:
            self._given = _only(self._given, registered)
            self._wanted = _only(self._wanted, registered)
            self._expected = _only(self._expected, registered)
        self._known = _only(self._known, registered)
        self._due = _only(self._due, registered)
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                if name.endswith(".json") and name.removesuffix(".json") not in registered:
                    os.unlink(os.path.join(self._directory, name))

    def _path(self, image_id: str) -> str:
        return os.path.join(self._directory, f"{image_id}.json")


def _reported_version(chunk_count: int) -> int:
    return REPORTED_BITMAP_VERSION if chunk_set.is_bitmap(chunk_count) else REPORTED_VERSION


def _only(known: dict[str, Value], images: frozenset[str]) -> dict[str, Value]:
    return {image_id: value for image_id, value in known.items() if image_id in images}

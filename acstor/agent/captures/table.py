"""Captures of a host: the state of each, who asks for it, and its record on the host's disk.

Each capture has a folder; ``capture.json`` in it is written at every change, before anything is
done. ``doc/source/reference/formats/capture-spool.rst`` describes it.
"""

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from acstor import exception, files, untrusted_json
from acstor.agent.captures.orders import HeldMoment
from acstor.versions.host_capture.progress import CaptureProgress, Failure
from acstor.versions.host_capture.request import CaptureRequest, epoch_of
from acstor.versions.host_capture.states import TRANSITIONS, CaptureEvent, CaptureState

LOG = logging.getLogger(__name__)

RECORD_VERSION = 1
"""Version of the records that this build writes; it reads this one only."""
RECORD_NAME = "capture.json"
CAPTURES_MAX = 1024
"""Most captures that a host knows of, those that have ended included."""


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureRecord:
    """Record of a capture."""

    request: CaptureRequest
    epoch: int
    state: CaptureState
    entered_at: float
    """Time at which the state was entered, POSIX seconds."""
    moment: HeldMoment | None = None
    """Known from HELD on."""
    failure: Failure | None = None
    devices: tuple[str, ...] = ()
    """Disks of the server when it was read: versions of these may be in the origin."""
    pin: str | None = None
    """Folder of the pin that it reads; None: it reads the disks themselves."""
    is_begun: bool = False
    """True if versions of it may be in the origin as captured."""
    frozen: str = ""
    """Guest that may be frozen by it; empty: none."""
    attempts: int = 0
    """Commits that were put off."""

    @property
    def held_bytes(self) -> int:
        """Bytes that the host holds of it."""
        is_there = self.state in (CaptureState.HELD, CaptureState.COMMITTING)
        return sum(disk.held_bytes for disk in self.moment.disks) if self.moment and is_there else 0

    @property
    def slot(self) -> str:
        """Whatever captures have in common that are compared with one another."""
        version = self.request.version
        if version.schedule is None or version.slot is None:
            return self.request.task
        return f"{version.schedule} {version.slot}"

    def encode(self) -> bytes:
        """Return the record as JSON."""
        fields: dict[str, Any] = {
            "version": RECORD_VERSION,
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "request": self.request.to_arguments(),
            "state": self.state.value,
            "moment": self.moment and self.moment.to_fields(),
            "failure": self.failure and dataclasses.asdict(self.failure),
        }
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def parse(cls, content: bytes, what: str) -> "CaptureRecord":
        """Read a record.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = untrusted_json.load(content, what)
            if fields.pop("version") != RECORD_VERSION:
                raise exception.UnsupportedError(f"{what} is of another version")
            moment, failure = fields["moment"], fields["failure"]
            fields["request"] = CaptureRequest.from_arguments(fields["request"])
            fields["state"] = CaptureState(fields["state"])
            fields["moment"] = moment and HeldMoment.from_fields(moment)
            fields["failure"] = failure and Failure.from_fields(failure)
            fields["devices"] = tuple(map(str, fields["devices"]))
            epoch_of(fields["epoch"])
            return cls(**fields)
        except (exception.InvalidError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise exception.CorruptError(
                f"{what} is malformed: {error}", hint="remove its folder: nothing else is in it"
            ) from error


@dataclasses.dataclass(slots=True)
class _Moving:
    """Progress that is not written down."""

    done_bytes: int = 0
    total_bytes: int = 0


class CaptureTable:
    """Captures of a host; not safe for threads by itself.

    :param path: folder of all captures.
    :param host: name of this host.
    :param on_change: told all records after each change.
    :param now: POSIX seconds.
    """

    def __init__(
        self,
        path: str,
        host: str,
        on_change: Callable[[Iterable[CaptureRecord]], None] = lambda records: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._host = host
        self._on_change = on_change
        self._now = now
        self._records: dict[str, CaptureRecord] = {}
        self._moving: dict[str, _Moving] = {}
        self.problems: dict[str, str] = {}
        """By folder, why what is in it is no capture."""

    @property
    def records(self) -> Mapping[str, CaptureRecord]:
        """All captures by task, those that were asked for first first."""
        return self._records

    @property
    def held_bytes(self) -> int:
        """Bytes that the host holds of all captures."""
        return sum(record.held_bytes for record in self._records.values())

    def load(self) -> None:
        """Read what the process before has left.

        :raises OSError: when the folder cannot be read.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        found = []
        for name in sorted(os.listdir(self.path)):
            if not is_task(name):
                continue
            try:
                with open(os.path.join(self.path, name, RECORD_NAME), "rb") as file:
                    found.append(CaptureRecord.parse(file.read(), f"the record of capture {name}"))
            except FileNotFoundError:
                self.remove_folder(name)  # it was being made, or removed
            except exception.AcstorError as error:
                self.problems[f"capture {name}"] = exception.one_line(error, with_hint=True)
        for record in sorted(found, key=lambda one: one.entered_at):
            self._records[record.request.task] = record
        self._on_change(self._records.values())

    def folder(self, task: str) -> str:
        """Return the folder of a capture."""
        return os.path.join(self.path, task)

    def get(self, task: str, epoch: int) -> CaptureRecord:
        """Return a capture, and take on a newer epoch of its task.

        :raises NotFoundError: when the host knows no such task.
        :raises FencedError: when the epoch is older than one that was heard of.
        """
        record = self._records.get(task)
        if record is None:
            raise exception.NotFoundError(
                f"host {self._host} has no capture of task {task}",
                hint="start it; what a lost host had captured is lost",
            )
        if epoch < record.epoch:
            raise exception.FencedError(
                f"task {task} is of epoch {record.epoch} on host {self._host}, not {epoch}"
            )
        if epoch > record.epoch:
            record = self.note(task, epoch=epoch)
        return record

    def add(self, request: CaptureRequest, epoch: int) -> CaptureRecord:
        """Note a new capture.

        :raises OverloadedError: when there are too many.
        :raises UnavailableError: when it cannot be written down.
        """
        if len(self._records) >= CAPTURES_MAX:
            raise exception.OverloadedError(
                f"host {self._host} knows {CAPTURES_MAX} captures",
                hint="discard those that have ended",
            )
        state = TRANSITIONS.after(None, CaptureEvent.START) or CaptureState.QUEUED
        record = CaptureRecord(request, epoch, state, self._now())
        self._save(record)
        return record

    def move(self, task: str, event: CaptureEvent, **changes: Any) -> CaptureRecord | None:
        """Let something happen to a capture; write it down.

        :param changes: of the record's fields.
        :returns: None where it is forgotten.
        """
        record = self._records[task]
        state = TRANSITIONS.after(record.state, event)
        LOG.info("capture %s of %s: %s", task, record.request.owner, state or event)
        self._moving.pop(task, None)
        if state is None:
            self.remove_folder(task)
            del self._records[task]
            self._on_change(self._records.values())
            return None
        fields = {**changes, "state": state, "entered_at": self._now()}
        record = dataclasses.replace(record, **fields)
        self._save(record)
        return record

    def note(self, task: str, **changes: Any) -> CaptureRecord:
        """Change a record without changing the state."""
        record = dataclasses.replace(self._records[task], **changes)
        if record != self._records[task]:
            self._save(record)
        return record

    def advance(self, task: str, done: int, total: int) -> None:
        """Note how far a capture is; that is not written down."""
        self._moving[task] = _Moving(done, total)

    def clear_folder(self, task: str) -> None:
        """Remove all of a capture but its record."""
        folder = self.folder(task)
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != RECORD_NAME:
                    os.unlink(entry.path)

    def remove_folder(self, task: str) -> None:
        """Remove all of a capture, its record first: without it the rest is removed at a start."""
        folder = self.folder(task)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, RECORD_NAME))
        shutil.rmtree(folder, ignore_errors=True)

    def progress(self, record: CaptureRecord) -> CaptureProgress:
        """Return a capture as it is told of."""
        moving = self._moving.get(record.request.task, _Moving())
        moment = record.moment
        return CaptureProgress(
            task=record.request.task,
            epoch=record.epoch,
            host=self._host,
            state=record.state,
            disks=tuple(disk.to_progress() for disk in moment.disks) if moment else (),
            left_out=dict(moment.left_out) if moment else {},
            consistency=moment.consistency if moment else None,
            consistency_note=moment.note if moment else "",
            done_bytes=moving.done_bytes,
            total_bytes=moving.total_bytes,
            age_s=max(0.0, self._now() - record.entered_at),
            failure=record.failure,
        )

    def _save(self, record: CaptureRecord) -> None:
        task = record.request.task
        try:
            files.write_atomically(
                os.path.join(self.folder(task), RECORD_NAME), record.encode(), is_synced=True
            )
        except OSError as error:
            raise exception.UnavailableError(
                f"{self.folder(task)}: {error.strerror}",
                hint="make room in [captures] path, and see that it can be written to",
            ) from error
        self._records[task] = record
        self._on_change(self._records.values())


def is_task(name: str) -> bool:
    """Say whether a file or folder has the id of a task for a name."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False

"""Restores of a host: the state of each, and its record on the host's disk.

The record of a restore is the marker of its disk: it is written, durably, before a process may
write to that, and it says so until the disk is a version as a whole.
``doc/source/reference/formats/restore-record.rst`` describes it.
"""

import contextlib
import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from acstor import exception, files, untrusted_json
from acstor.agent.captures.table import is_task
from acstor.agent.restores.writing import Written
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_capture.request import epoch_of
from acstor.versions.host_restore.progress import RestoreProgress
from acstor.versions.host_restore.request import RestoreRequest
from acstor.versions.host_restore.states import TRANSITIONS, RestoreEvent, RestoreState

LOG = logging.getLogger(__name__)

RECORD_VERSION = 2
"""Version of the records that this build writes. 2: further disks, and UEFI variables."""
RECORD_VERSIONS = frozenset({1, RECORD_VERSION})
"""Versions that it reads: of the release before, which knew one disk, too."""
RESTORES_MAX = 1024
"""Most restores that a host knows of, those that have ended included."""
_SUFFIX = ".json"


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreRecord:
    """Record of a restore."""

    request: RestoreRequest
    epoch: int
    state: RestoreState
    is_torn: bool = False
    """True if a process may have written, and none has come to its end since."""
    written: Written = dataclasses.field(default_factory=Written)
    """Account of the last process."""
    failure: Failure | None = None

    def encode(self) -> bytes:
        """Return the record as JSON."""
        fields = {"version": RECORD_VERSION, **dataclasses.asdict(self), "state": self.state.value}
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def parse(cls, content: bytes, what: str) -> "RestoreRecord":
        """Read a record.

        :raises UnsupportedError: when another release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = untrusted_json.load(content, what)
            if fields.pop("version") not in RECORD_VERSIONS:
                raise exception.UnsupportedError(f"{what} is of another version")
            failure = fields["failure"]
            counts = {
                name: untrusted_json.whole(count, name) for name, count in fields["written"].items()
            }
            return cls(
                request=RestoreRequest.from_arguments(fields["request"]),
                epoch=epoch_of(fields["epoch"]),
                state=RestoreState(fields["state"]),
                is_torn=fields["is_torn"] is not False,
                written=Written(**counts),
                failure=failure and Failure.from_fields(failure),
            )
        except (exception.InvalidError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise exception.CorruptError(
                f"{what} is malformed: {error}",
                hint="the disk of its server may be half written: restore a version, then remove "
                "the record",
            ) from error


class RestoreTable:
    """Restores of a host; not safe for threads by itself.

    :param path: folder of the records.
    :param host: name of this host.
    """

    def __init__(self, path: str, host: str) -> None:
        self.path = path
        self._host = host
        self._records: dict[str, RestoreRecord] = {}
        self._moving: dict[str, tuple[int, int]] = {}
        self.problems: dict[str, str] = {}
        """By record, why it cannot be read."""

    @property
    def records(self) -> Mapping[str, RestoreRecord]:
        """All restores by task."""
        return self._records

    def load(self) -> None:
        """Read what the process before has left.

        :raises OSError: when the folder cannot be read.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        for name in sorted(os.listdir(self.path)):
            task = name.removesuffix(_SUFFIX)
            if not name.endswith(_SUFFIX) or not is_task(task):
                continue
            try:
                with open(os.path.join(self.path, name), "rb") as file:
                    record = RestoreRecord.parse(file.read(), f"the record of restore {task}")
            except exception.AcstorError as error:
                self.problems[f"restore {task}"] = exception.one_line(error, with_hint=True)
                continue
            self._records[task] = record

    def get(self, task: str, epoch: int) -> RestoreRecord:
        """Return a restore, and take on a newer epoch of its task.

        :raises NotFoundError: when the host knows no such task.
        :raises FencedError: when the epoch is older than one that was heard of.
        """
        record = self._records.get(task)
        if record is None:
            raise exception.NotFoundError(
                f"host {self._host} has no restore of task {task}", hint="start it"
            )
        if epoch < record.epoch:
            raise exception.FencedError(
                f"task {task} is of epoch {record.epoch} on host {self._host}, not {epoch}"
            )
        if epoch > record.epoch:
            record = dataclasses.replace(record, epoch=epoch)
            self._save(record)
        return record

    def add(self, request: RestoreRequest, epoch: int, *, is_torn: bool = False) -> RestoreRecord:
        """Note a new restore.

        :param is_torn: set where another one has left the disk half written.
        :raises OverloadedError: when there are too many.
        :raises UnavailableError: when it cannot be written down.
        """
        if len(self._records) >= RESTORES_MAX:
            raise exception.OverloadedError(
                f"host {self._host} knows {RESTORES_MAX} restores",
                hint="discard those that have ended",
            )
        state = TRANSITIONS.after(None, RestoreEvent.START) or RestoreState.QUEUED
        record = RestoreRecord(request, epoch, state, is_torn)
        self._save(record)
        return record

    def move(self, task: str, event: RestoreEvent, **changes: Any) -> RestoreRecord | None:
        """Let something happen to a restore; write it down.

        :param changes: of the record's fields.
        :returns: None where it is forgotten.
        :raises UnavailableError: when it cannot be written down: then nothing has happened.
        """
        record = self._records[task]
        state = TRANSITIONS.after(record.state, event)
        LOG.info("restore %s of %s: %s", task, record.request.server, state or event)
        if state is None:
            # One that comes back after a power failure has ended all the same.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file(task))
            del self._records[task]
        else:
            record = dataclasses.replace(record, **{**changes, "state": state})
            self._save(record)
        self._moving.pop(task, None)
        return None if state is None else record

    def advance(self, task: str, done: int, total: int) -> None:
        """Note how far a restore is; that is not written down."""
        self._moving[task] = (done, total)

    def progress(self, record: RestoreRecord) -> RestoreProgress:
        """Return a restore as it is told of."""
        done, total = self._moving.get(record.request.task, (0, 0))
        written = record.written
        return RestoreProgress(
            task=record.request.task,
            epoch=record.epoch,
            host=self._host,
            version=record.request.version,
            state=record.state,
            done_bytes=done,
            total_bytes=total,
            fetched_bytes=written.fetched_bytes,
            local_bytes=written.local_bytes,
            written_bytes=written.written_bytes,
            failure=record.failure,
        )

    def _file(self, task: str) -> str:
        return os.path.join(self.path, task + _SUFFIX)

    def _save(self, record: RestoreRecord) -> None:
        task = record.request.task
        try:
            files.write_atomically(self._file(task), record.encode(), is_synced=True)
        except OSError as error:
            raise exception.UnavailableError(
                f"{self._file(task)}: {error.strerror}",
                hint="make room in [captures] path, and see that it can be written to",
            ) from error
        self._records[task] = record

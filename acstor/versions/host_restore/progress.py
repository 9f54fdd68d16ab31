"""Progress of a restore in place, as its host tells it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_capture.request import epoch_of, uuid_of
from acstor.versions.host_restore.request import checked
from acstor.versions.host_restore.states import RestoreState

_HOST_LENGTH_MAX = 255
_COUNTS = (
    "done_bytes",
    "total_bytes",
    "fetched_bytes",
    "local_bytes",
    "written_bytes",
)


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreProgress:
    """Progress of a restore."""

    task: str
    epoch: int
    """Newest epoch that the host has heard of."""
    host: str
    version: str
    """Version that is written, of the newest request."""
    state: RestoreState
    done_bytes: int = 0
    """Bytes of the disk that were compared."""
    total_bytes: int = 0
    """Bytes to compare; 0: not known yet."""
    fetched_bytes: int = 0
    """Bytes that were fetched, as they are stored; known at the end."""
    local_bytes: int = 0
    """Bytes that the base file had, as they are stored; known at the end."""
    written_bytes: int = 0
    """Bytes of the disk that were written; known at the end."""
    failure: Failure | None = None

    def to_answer(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**dataclasses.asdict(self), "state": self.state.value}

    @classmethod
    def from_answer(cls, answer: object) -> "RestoreProgress":
        """Return the progress that a host answers with.

        :raises InvalidError: when it is none.
        """
        return checked(lambda: cls._from_answer(answer))

    @classmethod
    def _from_answer(cls, answer: object) -> "RestoreProgress":
        if not isinstance(answer, Mapping):
            raise ValueError("a progress is no object")
        host, failure = answer.get("host"), answer.get("failure")
        if not isinstance(host, str) or len(host) > _HOST_LENGTH_MAX:
            raise ValueError("host is no name")
        counts = {name: untrusted_json.whole(answer.get(name, 0), name) for name in _COUNTS}
        return cls(
            task=uuid_of(answer.get("task"), "task"),
            epoch=epoch_of(answer.get("epoch")),
            host=host,
            version=uuid_of(answer.get("version"), "version"),
            state=RestoreState(str(answer.get("state"))),
            failure=None if failure is None else Failure.from_fields(failure),
            **counts,
        )


def error_of(progress: RestoreProgress) -> exception.AcstorError:
    """Return the reason for which a restore came to nothing."""
    if progress.failure is not None:
        return progress.failure.to_error()
    return exception.UnavailableError(f"a restore on host {progress.host} was given up")

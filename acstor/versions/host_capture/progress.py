"""Progress of a capture, as its host tells it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.repository.versions.record import Consistency
from acstor.versions.host_capture.request import DISKS_MAX, checked, epoch_of, uuid_of
from acstor.versions.host_capture.states import CaptureState

_TEXT_LENGTH_MAX = 4000


@dataclasses.dataclass(frozen=True, slots=True)
class CapturedDisk:
    """One disk of a capture."""

    version: str
    """Id of its version."""
    device: str
    size_bytes: int = 0
    """Of the disk; 0: not known yet."""
    held_bytes: int = 0
    """Bytes of its changes that the host holds."""
    has_nvram: bool = False
    """Set where UEFI variables come with it."""

    @classmethod
    def from_fields(cls, fields: object) -> "CapturedDisk":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("a disk is no object")
        return cls(
            version=uuid_of(fields.get("version"), "version"),
            device=_text(fields.get("device"), "device"),
            size_bytes=untrusted_json.whole(fields.get("size_bytes", 0), "size_bytes"),
            held_bytes=untrusted_json.whole(fields.get("held_bytes", 0), "held_bytes"),
            has_nvram=fields.get("has_nvram") is True,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Reason for which a capture came to nothing."""

    kind: exception.ErrorKind
    message: str
    hint: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Return the reason that an error is."""
        if isinstance(error, exception.AcstorError):
            return cls(error.kind, error.message, error.hint)
        wrapped = exception.InternalError(f"{type(error).__name__}: {error}")
        return cls(wrapped.kind, wrapped.message, wrapped.hint)

    def to_error(self) -> exception.AcstorError:
        """Return the error that it was."""
        return exception.CLASS_OF_KIND[self.kind](self.message, hint=self.hint)

    @classmethod
    def from_fields(cls, fields: object) -> "Failure":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("failure is no object")
        return cls(
            exception.ErrorKind(str(fields.get("kind"))),
            _text(fields.get("message"), "message"),
            _text(fields.get("hint"), "hint"),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureProgress:
    """Progress of a capture."""

    task: str
    epoch: int
    """Newest epoch that the host has heard of."""
    host: str
    state: CaptureState
    disks: tuple[CapturedDisk, ...] = ()
    """Disks whose versions it makes; empty: not known yet."""
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By device, the reason for which a disk of the server is not among them."""
    consistency: Consistency | None = None
    """None: not known yet."""
    consistency_note: str = ""
    """Reason for which file systems were not frozen."""
    done_bytes: int = 0
    """Bytes read, then bytes stored."""
    total_bytes: int = 0
    """Bytes to read, then bytes to store; 0: not known yet."""
    age_s: float = 0.0
    """Seconds since the state was entered."""
    failure: Failure | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Ids of the versions by device."""
        return {disk.device: disk.version for disk in self.disks}

    def to_answer(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **dataclasses.asdict(self),
            "state": self.state.value,
            "disks": [dataclasses.asdict(disk) for disk in self.disks],
            "left_out": dict(self.left_out),
            "consistency": self.consistency and self.consistency.value,
        }

    @classmethod
    def from_answer(cls, answer: object) -> "CaptureProgress":
        """Return the progress that a host answers with.

        :raises InvalidError: when it is none.
        """
        return checked(lambda: cls._from_answer(answer))

    @classmethod
    def _from_answer(cls, answer: object) -> "CaptureProgress":
        if not isinstance(answer, Mapping):
            raise ValueError("a progress is no object")
        disks, left_out = answer.get("disks", []), answer.get("left_out", {})
        if not isinstance(disks, list | tuple) or len(disks) > DISKS_MAX:
            raise ValueError("disks is no list of a few disks")
        if not isinstance(left_out, Mapping) or len(left_out) > DISKS_MAX:
            raise ValueError("left_out is no object of a few disks")
        consistency, failure = answer.get("consistency"), answer.get("failure")
        return cls(
            task=uuid_of(answer.get("task"), "task"),
            epoch=epoch_of(answer.get("epoch")),
            host=_text(answer.get("host"), "host"),
            state=CaptureState(str(answer.get("state"))),
            disks=tuple(CapturedDisk.from_fields(disk) for disk in disks),
            left_out={
                _text(device, "a device"): _text(why, "a reason")
                for device, why in left_out.items()
            },
            consistency=None if consistency is None else Consistency(consistency),
            consistency_note=_text(answer.get("consistency_note", ""), "consistency_note"),
            done_bytes=untrusted_json.whole(answer.get("done_bytes", 0), "done_bytes"),
            total_bytes=untrusted_json.whole(answer.get("total_bytes", 0), "total_bytes"),
            age_s=untrusted_json.number(answer.get("age_s", 0.0), "age_s", 0.0, 1e12),
            failure=None if failure is None else Failure.from_fields(failure),
        )


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_LENGTH_MAX:
        raise ValueError(f"{what} is no text of at most {_TEXT_LENGTH_MAX} characters")
    return value

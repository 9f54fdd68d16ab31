"""Request for a capture, as the service of versions sends it to the host of the disks.

A request is about all disks of one moment: of one server, or one volume. The ids of the versions
follow from those of the task and the disk, so that a request that is sent twice makes them once.
"""

import dataclasses
import datetime
import enum
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acstor import exception, untrusted_json
from acstor.repository.dedup_scope import check_scope
from acstor.repository.versions.locks import parse_time, time_text
from acstor.repository.versions.record import DiskKind, DiskName, Trigger
from acstor.repository.volumes.record import check_metadata, check_text

EPOCH_MAX = (1 << 53) - 1
"""Largest epoch of a task: JSON's readers agree on whole numbers up to it."""
DISKS_MAX = 64
"""Most disks of one capture."""
DEADLINE_MIN = 1.0
DEADLINE_MAX = 86400.0
"""Shortest and longest time for reading the disks, seconds."""

_DEVICE = re.compile(r"[a-z][a-z0-9]{0,15}\Z")
_T = TypeVar("_T")


class WantedConsistency(enum.StrEnum):
    """Consistency that is asked for."""

    BEST = "best"
    """Frozen file systems where the guest's agent can, else as after a power failure."""
    CRASH = "crash"
    """The guest's agent is not asked."""
    FS = "fs"
    """Frozen file systems, or no version at all."""


@dataclasses.dataclass(frozen=True, slots=True)
class VersionFields:
    """Fields that the records of the versions get, the same for each disk."""

    project: str
    trigger: Trigger = Trigger.MANUAL
    name: str = ""
    schedule: str | None = None
    slot: str | None = None
    expires_at: datetime.datetime | None = None
    """In whole seconds of UTC."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dedup_scope: str | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        expires_at = self.expires_at and time_text(self.expires_at)
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "trigger": self.trigger.value,
            "expires_at": expires_at,
            "labels": dict(self.labels),
        }

    @classmethod
    def from_fields(cls, fields: object) -> "VersionFields":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("version is no object")
        _refuse_unknown(cls, fields)
        for name in ("project", "name", "schedule", "slot"):
            value = fields.get(name)
            check_text("" if value is None and name != "project" else value, name)
        labels = fields.get("labels") or {}
        check_metadata(labels)
        check_scope(fields.get("dedup_scope"))
        expires_at = fields.get("expires_at")
        return cls(
            project=str(fields["project"]),
            trigger=Trigger(fields.get("trigger", Trigger.MANUAL)),
            name=fields.get("name") or "",
            schedule=fields.get("schedule"),
            slot=fields.get("slot"),
            expires_at=(
                None
                if expires_at is None
                else parse_time(expires_at, "expires_at").replace(microsecond=0)
            ),
            labels=dict(labels),
            dedup_scope=fields.get("dedup_scope"),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Request for versions of all disks of one moment."""

    task: str
    """UUID of the task; the group of the versions."""
    kind: DiskKind
    owner: str
    """UUID of the server or the volume."""
    version: VersionFields
    devices: tuple[str, ...] | None = None
    """Names of the disks of a server, for example ``vda``; None: all that can be had."""
    parents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By device, the newest version of the disk; the device of a volume is empty."""
    base_image: str | None = None
    """Image that the server's root disk was made of."""
    consistency: WantedConsistency = WantedConsistency.BEST
    deadline_s: float = 3600.0
    """Seconds that reading the disks may take, once it has begun."""

    def version_id(self, device: str) -> str:
        """Return the id of the version of one disk."""
        return version_id_of(self.task, device)

    def disk(self, device: str) -> DiskName:
        """Return the name of one disk."""
        return DiskName(self.kind, self.owner, device)

    def to_arguments(self) -> dict[str, Any]:
        """Return the request as a call carries it, without the epoch."""
        return {
            "task": self.task,
            "kind": self.kind.value,
            "owner": self.owner,
            "version": self.version.to_fields(),
            "devices": None if self.devices is None else list(self.devices),
            "parents": dict(self.parents),
            "base_image": self.base_image,
            "consistency": self.consistency.value,
            "deadline_s": self.deadline_s,
        }

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "CaptureRequest":
        """Return the request that a call carries.

        :raises InvalidError: when a field is missing, unknown or out of range.
        """
        return checked(lambda: cls._from_arguments(arguments))

    @classmethod
    def _from_arguments(cls, arguments: Mapping[str, Any]) -> "CaptureRequest":
        _refuse_unknown(cls, arguments)
        kind = DiskKind(str(arguments.get("kind")))
        devices, parents = arguments.get("devices"), arguments.get("parents") or {}
        if devices is not None and not isinstance(devices, list | tuple):
            raise ValueError("devices is no list")
        if not isinstance(parents, Mapping) or len(parents) > DISKS_MAX:
            raise ValueError("parents is no object of a few disks")
        for device in (*(devices or ()), *parents):
            _check_device(kind, device)
        if devices is not None and not 0 < len(set(devices)) == len(devices) <= DISKS_MAX:
            raise ValueError(f"devices are 1 to {DISKS_MAX}, each once")
        base_image = arguments.get("base_image")
        return cls(
            task=uuid_of(arguments.get("task"), "task"),
            kind=kind,
            owner=uuid_of(arguments.get("owner"), "owner"),
            version=VersionFields.from_fields(arguments.get("version")),
            devices=None if devices is None else tuple(devices),
            parents={device: uuid_of(one, "a parent") for device, one in parents.items()},
            base_image=None if base_image is None else uuid_of(base_image, "base_image"),
            consistency=WantedConsistency(arguments.get("consistency", WantedConsistency.BEST)),
            deadline_s=untrusted_json.number(
                arguments.get("deadline_s", 3600.0), "deadline_s", DEADLINE_MIN, DEADLINE_MAX
            ),
        )


def version_id_of(task: str, device: str) -> str:
    """Return the id of the version that a task makes of a disk."""
    return str(uuid.uuid5(uuid.UUID(task), f"disk {device}"))


def checked(read: Callable[[], _T], what: str = "a capture") -> _T:
    """Return what ``read`` returns.

    :param what: what it reads, for the error.
    :raises InvalidError: where it finds something malformed.
    """
    try:
        return read()
    except (KeyError, TypeError, ValueError) as error:
        raise exception.InvalidError(f"{what}: {error}") from error


def task_and_epoch(arguments: Mapping[str, object], what: str = "a capture") -> tuple[str, int]:
    """Return the arguments of a message about one task, which has no others.

    :param what: what the task does, for the error.
    :raises InvalidError: where they are something else.
    """
    for name in sorted(arguments.keys() - {"task", "epoch"}):
        raise exception.InvalidError(f"there is no argument {name[:100]!r}")
    task = checked(lambda: uuid_of(arguments.get("task"), "task"), what)
    return task, checked(lambda: epoch_of(arguments.get("epoch")), what)


def uuid_of(value: object, what: str) -> str:
    """Return a UUID in its one form.

    :raises ValueError: when the value is none.
    """
    if not isinstance(value, str) or str(uuid.UUID(value)) != value:
        raise ValueError(f"{what} is no UUID in lower case")
    return value


def epoch_of(value: object) -> int:
    """Return an epoch.

    :raises ValueError: when the value is none.
    """
    return untrusted_json.whole(value, "epoch", 1, EPOCH_MAX)


def _check_device(kind: DiskKind, device: object) -> None:
    is_named = isinstance(device, str) and _DEVICE.match(device) is not None
    if kind is DiskKind.VOLUME and device != "":
        raise ValueError("the disk of a volume has no device")
    if kind is DiskKind.INSTANCE and not is_named:
        raise ValueError(f"{device!r:.40} is no device of a server, such as vda")


def _refuse_unknown(cls: type[Any], fields: Mapping[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(cls)}
    for name in sorted(map(str, fields.keys() - known)):
        raise ValueError(f"there is no field {name[:100]!r}")

"""Orders to the processes of captures, and what these say: lines of JSON over a socket.

The agent says first what to do. The process says how far it is (``{"progress": [done, total]}``),
which guest may be frozen (``{"frozen": server}``, empty: none), which version is committed
(``{"committed": id}``) and at its end ``{"report": ...}`` or ``{"failure": ...}``. It answers to no
question and asks none: it is ended by SIGTERM, after which it leaves nothing, or by SIGKILL, after
which the agent clears up.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any

from acstor import untrusted_json
from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk
from acstor.repository.dedup_scope import check_scope
from acstor.repository.record_json import check_digest
from acstor.repository.versions.locks import parse_time, time_text
from acstor.repository.versions.record import Consistency
from acstor.versions.host_capture.progress import CapturedDisk
from acstor.versions.host_capture.request import CaptureRequest

LINE_SIZE_MAX = 4 << 20
"""Longest line, bytes: a batch of commits names all of its disks."""


@dataclasses.dataclass(frozen=True, slots=True)
class OriginOrder:
    """Repository that a process works in."""

    url: str
    timeout_s: float
    host: str
    """Name of this host."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of one reading."""

    read_rate: int
    """Bytes per second; 0: no limit."""
    write_rate: int
    room_bytes: int
    """Most bytes that its spools may take."""
    reserve_percent: float
    """Share of the file system of the folder that is left free."""
    scratch_max: int
    """Most bytes of the scratch files of a backup, after which it is given up."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadOrder:
    """Order to read the disks of one moment."""

    origin: OriginOrder
    request: CaptureRequest
    folder: str
    """Folder of the capture; that of each disk is made in it."""
    limits: ReadLimits
    libvirt_uri: str
    uses_monitor: bool
    scratch_path: str
    nice: int
    pinned: Guest | None = None
    """Guest whose disks are pinned, their paths those of the pins; None: it is the hypervisor's."""
    pinned_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HeldDisk:
    """A disk that was read."""

    device: str
    version: str
    size_bytes: int
    held_bytes: int
    is_whole: bool
    """True if it was compared with nothing."""
    parent: str | None = None
    """Manifest that it was compared with."""
    parent_version: str | None = None
    has_nvram: bool = False

    def to_progress(self) -> CapturedDisk:
        """Return the disk as it is told of."""
        return CapturedDisk(
            self.version, self.device, self.size_bytes, self.held_bytes, self.has_nvram
        )


@dataclasses.dataclass(frozen=True, slots=True)
class HeldMoment:
    """Report of a reading: all disks of one moment."""

    created_at: datetime.datetime
    """Moment, in whole seconds of UTC."""
    consistency: Consistency
    note: str
    disks: tuple[HeldDisk, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dedup_scope: str | None = None
    """Scope of the chunks' names: that of the request, or of the base image where it says none."""

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **dataclasses.asdict(self),
            "created_at": time_text(self.created_at),
            "consistency": self.consistency.value,
            "left_out": dict(self.left_out),
        }

    @classmethod
    def from_fields(cls, fields: Any) -> "HeldMoment":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping) or not isinstance(fields.get("disks"), list):
            raise ValueError("a moment has no disks")
        return cls(
            created_at=parse_time(fields.get("created_at"), "created_at"),
            consistency=Consistency(str(fields.get("consistency"))),
            note=str(fields.get("note", "")),
            disks=tuple(_held_disk(disk) for disk in fields["disks"]),
            left_out={str(key): str(value) for key, value in fields.get("left_out", {}).items()},
            dedup_scope=_scope_of(fields.get("dedup_scope")),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class HeldCapture:
    """A capture that is on this host, as a commit is ordered of it."""

    request: CaptureRequest
    moment: HeldMoment
    folder: str


@dataclasses.dataclass(frozen=True, slots=True)
class CommitOrder:
    """Order to store captures, compared with one another."""

    origin: OriginOrder
    captures: tuple[HeldCapture, ...]
    pack_size: int
    workers: int
    known_chunks_max: int
    reserve_percent: int
    """Share of the origin's room that is left to others."""
    nice: int


Order = ReadOrder | CommitOrder


def encode_order(order: Order) -> bytes:
    """Return the line of an order."""
    fields = dataclasses.asdict(order)
    if isinstance(order, ReadOrder):
        fields["kind"] = "read"
        fields["request"] = order.request.to_arguments()
        fields["pinned_at"] = order.pinned_at and time_text(order.pinned_at)
    else:
        fields["kind"] = "commit"
        fields["captures"] = [
            {
                "request": one.request.to_arguments(),
                "moment": one.moment.to_fields(),
                "folder": one.folder,
            }
            for one in order.captures
        ]
    return encode(fields)


def parse_order(line: bytes) -> Order:
    """Read what the agent, this process's parent, has written."""
    fields = untrusted_json.load(line, "the order")
    kind = fields.pop("kind")
    fields["origin"] = OriginOrder(**fields["origin"])
    if kind == "commit":
        fields["captures"] = tuple(_held_capture(one) for one in fields["captures"])
        return CommitOrder(**fields)
    fields["request"] = CaptureRequest.from_arguments(fields["request"])
    fields["limits"] = ReadLimits(**fields["limits"])
    fields["pinned"] = fields["pinned"] and guest_of(fields["pinned"])
    fields["pinned_at"] = fields["pinned_at"] and parse_time(fields["pinned_at"], "pinned_at")
    return ReadOrder(**fields)


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a line."""
    return json.dumps(message).encode() + b"\n"


def guest_of(fields: Mapping[str, Any]) -> Guest:
    """Return a guest from its JSON form, that of :func:`dataclasses.asdict`.

    :raises ValueError: when it is malformed.
    """
    known = {field.name for field in dataclasses.fields(Guest)}
    try:
        disks = tuple(
            GuestDisk(**{**disk, "place": DiskPlace(disk["place"])}) for disk in fields["disks"]
        )
        return Guest(**{**{name: fields[name] for name in known}, "disks": disks})
    except (KeyError, TypeError) as error:
        raise ValueError(f"a guest is malformed: {error}") from error


def _held_capture(fields: Mapping[str, Any]) -> HeldCapture:
    return HeldCapture(
        CaptureRequest.from_arguments(fields["request"]),
        HeldMoment.from_fields(fields["moment"]),
        str(fields["folder"]),
    )


def _scope_of(value: Any) -> str | None:
    check_scope(value)
    return None if value is None else str(value)


def _held_disk(fields: Any) -> HeldDisk:
    if not isinstance(fields, Mapping):
        raise ValueError("a disk is no object")
    check_digest(fields.get("parent"), "parent")
    captured = CapturedDisk.from_fields(fields)
    return HeldDisk(
        device=captured.device,
        version=captured.version,
        size_bytes=captured.size_bytes,
        held_bytes=captured.held_bytes,
        is_whole=fields.get("is_whole") is True,
        parent=fields.get("parent"),
        parent_version=fields.get("parent_version"),
        has_nvram=captured.has_nvram,
    )

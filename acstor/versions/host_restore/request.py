"""Request for a restore in place, as the service of versions sends it to the host of the disks.

It is about one disk, or about a set of disks of one server that is restored as a whole, with the
server's UEFI variables where a version has them. A set is asked for by a message of its own, which
older hosts do not know: they would write one disk of it.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acstor import untrusted_json
from acstor.versions.host_capture import request
from acstor.versions.host_capture.request import DEADLINE_MAX, DEADLINE_MIN, uuid_of

WHAT = "a restore"
"""Subject of the messages, for errors."""
DEADLINE_SECONDS = 86400.0
"""Seconds that a restore may take, where the request says nothing else."""
DISKS_MAX = 32
"""Most disks of one restore: a process has each open by a process of QEMU's, and the reason of the
server's lock, of at most 255 characters, names them."""
_DEVICE = re.compile(r"\A[a-z]{1,16}[0-9]{0,3}\Z")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class RestoredDisk:
    """A disk of a server, and the version that is written into it."""

    device: str
    version: str

    def to_fields(self) -> dict[str, str]:
        """Return the JSON form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_fields(cls, fields: object) -> "RestoredDisk":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping) or fields.keys() != {"device", "version"}:
            raise ValueError("a further disk is no object with device and version")
        return cls(_device_of(fields["device"]), uuid_of(fields["version"], "version"))


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Request to write versions into disks of a server that does not run."""

    task: str
    server: str
    device: str
    """First disk of the server, for example ``vda``."""
    version: str
    """Version that is written into it."""
    project: str
    """Project that the versions must be of."""
    base_image: str | None = None
    """Image that the first disk was made of."""
    deadline_s: float = DEADLINE_SECONDS
    """Seconds that one process may write."""
    further: tuple[RestoredDisk, ...] = ()
    """Disks that are restored with it, all or none."""
    nvram: str | None = None
    """Version whose UEFI variables are written; None: the server's own stay."""

    @property
    def disks(self) -> tuple[RestoredDisk, ...]:
        """All disks, in the order in which they are written."""
        return RestoredDisk(self.device, self.version), *self.further

    @property
    def devices(self) -> frozenset[str]:
        """Names of all disks."""
        return frozenset(disk.device for disk in self.disks)

    @property
    def is_set(self) -> bool:
        """True if it is about more than one disk: hosts of version 1.7 do not know that."""
        return bool(self.further) or self.nvram is not None

    def to_arguments(self) -> dict[str, Any]:
        """Return the request as a call carries it, without the epoch.

        One of a single disk has the fields that hosts of version 1.7 know.
        """
        fields = dataclasses.asdict(self)
        del fields["further"], fields["nvram"]
        if self.is_set:
            fields["further"] = [disk.to_fields() for disk in self.further]
            fields["nvram"] = self.nvram
        return fields

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "RestoreRequest":
        """Return the request that a call carries.

        :raises InvalidError: when a field is missing, unknown or out of range.
        """
        return checked(lambda: cls._from_arguments(arguments))

    @classmethod
    def _from_arguments(cls, arguments: Mapping[str, Any]) -> "RestoreRequest":
        known = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(map(str, arguments.keys() - known)):
            raise ValueError(f"there is no field {name[:100]!r}")
        project = arguments.get("project")
        if not isinstance(project, str) or not 0 < len(project) <= 255:
            raise ValueError("project is no text of 1 to 255 characters")
        base_image, nvram = arguments.get("base_image"), arguments.get("nvram")
        found = cls(
            task=uuid_of(arguments.get("task"), "task"),
            server=uuid_of(arguments.get("server"), "server"),
            device=_device_of(arguments.get("device")),
            version=uuid_of(arguments.get("version"), "version"),
            project=project,
            base_image=None if base_image is None else uuid_of(base_image, "base_image"),
            deadline_s=untrusted_json.number(
                arguments.get("deadline_s", DEADLINE_SECONDS),
                "deadline_s",
                DEADLINE_MIN,
                DEADLINE_MAX,
            ),
            further=_further_of(arguments.get("further", ())),
            nvram=None if nvram is None else uuid_of(nvram, "nvram"),
        )
        if len(found.devices) != len(found.disks):
            raise ValueError("a disk is there twice")
        return found


def named(request: RestoreRequest) -> str:
    """Return the disks of a request and their server, for messages."""
    devices = [disk.device for disk in request.disks]
    kind = "disk" if len(devices) == 1 else "disks"
    return f"{kind} {', '.join(devices)} of server {request.server}"


def checked(read: Callable[[], _T]) -> _T:
    """Return what ``read`` returns.

    :raises InvalidError: where it finds something malformed.
    """
    return request.checked(read, WHAT)


def _device_of(value: object) -> str:
    if not isinstance(value, str) or not _DEVICE.match(value):
        raise ValueError(f"{value!r:.40} is no device of a server, such as vda")
    return value


def _further_of(value: object) -> tuple[RestoredDisk, ...]:
    if not isinstance(value, list | tuple) or len(value) >= DISKS_MAX:
        raise ValueError(f"further is no list of at most {DISKS_MAX - 1} disks")
    return tuple(RestoredDisk.from_fields(disk) for disk in value)

"""Request for a restore in place, as the service of versions sends it to the host of the disk."""

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
_DEVICE = re.compile(r"\A[a-z]{1,16}[0-9]{0,3}\Z")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Request to write a version into a disk of a server that does not run."""

    task: str
    server: str
    device: str
    """Disk of the server, for example ``vda``."""
    version: str
    project: str
    """Project that the version must be of."""
    base_image: str | None = None
    """Image that the server's root disk was made of."""
    deadline_s: float = DEADLINE_SECONDS
    """Seconds that one process may write."""

    def to_arguments(self) -> dict[str, Any]:
        """Return the request as a call carries it, without the epoch."""
        return dataclasses.asdict(self)

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
        device, project = arguments.get("device"), arguments.get("project")
        if not isinstance(device, str) or not _DEVICE.match(device):
            raise ValueError(f"{device!r:.40} is no device of a server, such as vda")
        if not isinstance(project, str) or not 0 < len(project) <= 255:
            raise ValueError("project is no text of 1 to 255 characters")
        base_image = arguments.get("base_image")
        return cls(
            task=uuid_of(arguments.get("task"), "task"),
            server=uuid_of(arguments.get("server"), "server"),
            device=device,
            version=uuid_of(arguments.get("version"), "version"),
            project=project,
            base_image=None if base_image is None else uuid_of(base_image, "base_image"),
            deadline_s=untrusted_json.number(
                arguments.get("deadline_s", DEADLINE_SECONDS),
                "deadline_s",
                DEADLINE_MIN,
                DEADLINE_MAX,
            ),
        )


def checked(read: Callable[[], _T]) -> _T:
    """Return what ``read`` returns.

    :raises InvalidError: where it finds something malformed.
    """
    return request.checked(read, WHAT)

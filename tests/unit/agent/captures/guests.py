"""Guests and requests, for tests of captures."""

import dataclasses
import uuid
from typing import Any

from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk
from acstor.repository.versions.record import DiskKind
from acstor.versions.host_capture.request import CaptureRequest, VersionFields
from tests.unit.repository.images import image_id

SERVER, TASK, TASK_2 = (str(uuid.UUID(int=number)) for number in (70, 80, 81))


def disk_at(path: object, device: str = "vda", **fields: Any) -> GuestDisk:
    """Return a disk in a file."""
    known = {"place": DiskPlace.FILE, "path": str(path), "format": "qcow2"}
    return GuestDisk(**{"device": device, **known, **fields})


def guest_of_disks(*disks: GuestDisk, **fields: Any) -> Guest:
    """Return a guest that runs."""
    return Guest(**{"server": SERVER, "is_active": True, "disks": disks, **fields})


def request_of(**fields: Any) -> CaptureRequest:
    """Return a request for a version of all disks."""
    request = CaptureRequest(
        TASK, DiskKind.INSTANCE, SERVER, VersionFields("a project"), base_image=image_id(0)
    )
    return dataclasses.replace(request, **fields)

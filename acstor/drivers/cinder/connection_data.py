"""Connection data of an attachment: Cinder returns it, ``acstor.drivers.brick`` consumes it."""

from typing import Any

from acstor.drivers.cinder import limits
from acstor.drivers.cinder.attachment_rules import Access
from acstor.repository.volumes.record import VolumeRecord

PROTOCOL = "acstor"
"""``driver_volume_type``."""
CONNECTOR_HOST = "acstor_host"
"""Property of a connector: the name of the host's data plane."""


def of_disk(
    record: VolumeRecord,
    disk: str,
    volume_id: str | None = None,
    access: Access = Access.OWNER,
    is_encrypted: bool = False,
) -> dict[str, Any]:
    """Return the connection's data: JSON only, and no secrets.

    :param disk: name of the volume's record.
    :param volume_id: under which Cinder knows it, the serial number that guests see; None: it
        does not.
    """
    of_record = limits.from_metadata(record.metadata)
    return {
        "volume_id": volume_id or disk,
        "name_id": disk,
        "size": record.size_bytes,
        "role": access.value,
        "discard": True,
        "access_mode": "rw",
        "qos_specs": None,
        "encrypted": is_encrypted,
        "admin_socket": None,
        "limits": {"iops": of_record.iops, "bytes_per_s": of_record.bytes_per_s},
    }

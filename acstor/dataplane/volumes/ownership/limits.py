"""Limits of a volume's requests, as the control plane keeps them in its record."""

from typing import TYPE_CHECKING

from acstor.control.protocol import VOLUME_RATE_MAX

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

_DIGITS_MAX = 15
"""Most digits of a limit in a record's metadata."""


def limits_of(record: "VolumeRecord") -> tuple[int, int]:
    """Return a volume's limits: requests and bytes per second; 0: none."""
    return _limit(record.metadata.get("iops")), _limit(record.metadata.get("bytes_per_s"))


def _limit(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        return 0
    # What no limit can be limits nothing, as for the driver: it is no reason not to be served.
    limit = int(text[:_DIGITS_MAX])
    return limit if len(text) <= _DIGITS_MAX and limit <= VOLUME_RATE_MAX else 0

"""I/O limits of volumes: from the volume type or its QoS specs, enforced by the data plane.

Front-end QoS specs go to libvirt, which throttles at QEMU. These limits throttle at the data plane
and so also count for what Cinder itself does with a volume.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from acstor import exception
from acstor.control.protocol import VOLUME_RATE_MAX

PREFIX = "acstor:"
IOPS = "iops"
BYTES_PER_S = "bytes_per_s"
BACK_END_CONSUMERS = frozenset({"back-end", "both"})


@dataclass(frozen=True)
class Limits:
    """Limits of one volume; 0: none."""

    iops: int = 0
    bytes_per_s: int = 0

    def to_metadata(self) -> dict[str, str | None]:
        """Return them as the metadata of a volume's record has them, as the data plane reads them.

        Decimal numbers; None: no limit, the key is to go.
        """
        return {name: str(value) if value else None for name, value in asdict(self).items()}


def from_type(extra_specs: Mapping[str, Any], qos_specs: Mapping[str, Any] | None) -> Limits:
    """Return the limits of a volume type.

    :param extra_specs: ``acstor:iops`` and ``acstor:bytes_per_s``.
    :param qos_specs: as Cinder has them, ``consumer`` and ``specs``; with the consumer
        ``back-end`` or ``both`` their ``iops`` and ``bytes_per_s`` win.
    :raises InvalidError: when a value is no whole number in range.
    """
    values = {name: extra_specs.get(PREFIX + name) for name in (IOPS, BYTES_PER_S)}
    if qos_specs and qos_specs.get("consumer") in BACK_END_CONSUMERS:
        specs = qos_specs.get("specs") or {}
        values |= {name: specs[name] for name in (IOPS, BYTES_PER_S) if name in specs}
    return Limits(**{name: _rate(name, value) for name, value in values.items()})


def from_metadata(metadata: Mapping[str, str]) -> Limits:
    """Return the limits that the record of a volume keeps; what is malformed limits nothing."""
    try:
        return Limits(**{name: _rate(name, metadata.get(name)) for name in (IOPS, BYTES_PER_S)})
    except exception.InvalidError:
        return Limits()


def _rate(name: str, value: Any) -> int:
    if value is None:
        return 0
    text = str(value).strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) > VOLUME_RATE_MAX:
        raise exception.InvalidError(
            f"{PREFIX}{name} = {text[:50]!r} is no whole number from 0 to {VOLUME_RATE_MAX}",
            hint="correct the extra spec of the volume type or its QoS spec",
        )
    return int(text)

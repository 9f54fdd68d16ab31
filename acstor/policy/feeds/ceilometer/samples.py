"""Ceilometer's samples, as its ``http`` publisher posts them and as they are on its bus.

The page is ``doc/source/reference/protocols/ceilometer-samples.rst``. Only what is used of a sample
is read, and that is checked; whatever else is in it does not matter.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception, untrusted_json

HOST_IN = "acstor.host.network.incoming.bytes"
HOST_OUT = "acstor.host.network.outgoing.bytes"
INSTANCE_IN = "network.incoming.bytes"
INSTANCE_OUT = "network.outgoing.bytes"
METERS = frozenset({HOST_IN, HOST_OUT, INSTANCE_IN, INSTANCE_OUT})
"""Meters that are used; samples of others are passed over."""
NAME_LENGTH_MAX = 255
VOLUME_MAX = 2.0**64
_CUMULATIVE = "cumulative"


@dataclass(frozen=True)
class MeterSample:
    """One sample of a cumulative meter."""

    meter: str
    volume: float
    """Bytes since some beginning."""
    resource: str
    at: float
    """POSIX time by the clock of the host, seconds: when its polling cycle began."""
    steady: float | None = None
    """Monotonic seconds of the host when it was read; Ceilometer's pipeline leaves it out."""
    project: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_incoming(self) -> bool:
        """True if it counts received bytes."""
        return self.meter in {HOST_IN, INSTANCE_IN}

    @property
    def is_of_host(self) -> bool:
        """True if it is of a host's network interface, and not of an instance's."""
        return self.meter in {HOST_IN, HOST_OUT}


def from_publisher(message: object) -> MeterSample | None:
    """Return a sample that the ``http`` publisher posts; None: of another meter.

    :raises InvalidError: when it is none.
    """
    return _parsed(message, "name", "type", "volume")


def from_bus(message: object) -> MeterSample | None:
    """Return a sample of a ``telemetry.polling`` notification; None: of another meter.

    :raises InvalidError: when it is none.
    """
    return _parsed(message, "counter_name", "counter_type", "counter_volume")


def text_of(metadata: Mapping[str, Any], name: str) -> str:
    """Return a text of the metadata, at most 255 characters; empty where there is none."""
    value = metadata.get(name)
    return value[:NAME_LENGTH_MAX] if isinstance(value, str) else ""


def number_of(metadata: Mapping[str, Any], name: str) -> float | None:
    """Return a number of the metadata that is neither negative nor absurd; None: there is none."""
    value = metadata.get(name)
    return float(value) if is_amount(value) else None  # type: ignore[arg-type]


def is_amount(value: object) -> bool:
    """Return whether a value is a finite number from 0 to 2^64."""
    return untrusted_json.is_number(value, 0, VOLUME_MAX)


def _parsed(message: object, name: str, kind: str, volume: str) -> MeterSample | None:
    if not isinstance(message, Mapping):
        raise exception.InvalidError("a sample is no object")
    meter = message.get(name)
    if not isinstance(meter, str):
        raise exception.InvalidError(f"{name} of a sample is no text")
    if meter not in METERS:
        return None
    if message.get(kind) != _CUMULATIVE:
        raise exception.InvalidError(f"{meter} is {message.get(kind)!r:.30}, not cumulative")
    resource, metadata = message.get("resource_id"), message.get("resource_metadata")
    if not isinstance(resource, str) or not 0 < len(resource) <= NAME_LENGTH_MAX:
        raise exception.InvalidError(f"resource_id of {meter} = {resource!r:.50}")
    if not isinstance(metadata, Mapping):
        raise exception.InvalidError(f"resource_metadata of {meter} is no object")
    if not is_amount(message.get(volume)):
        raise exception.InvalidError(f"volume of {meter} = {message.get(volume)!r:.50}")
    return MeterSample(
        meter,
        float(message[volume]),
        resource,
        _posix(message.get("timestamp"), meter),
        number_of(message, "monotonic_time"),
        text_of(message, "project_id"),
        metadata,
    )


def _posix(value: object, meter: str) -> float:
    """Return the POSIX time of an ISO 8601 text; without a zone it is UTC."""
    try:
        if not isinstance(value, str):
            raise ValueError("no text")
        at = datetime.datetime.fromisoformat(value)
        if at.tzinfo is None:
            at = at.replace(tzinfo=datetime.UTC)
        return at.timestamp()
    except (ValueError, OverflowError) as error:
        raise exception.InvalidError(f"timestamp of {meter} = {value!r:.50}") from error

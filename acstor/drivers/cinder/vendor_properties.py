"""Extra specs that volume types may have, as vendor properties in Cinder's API."""

from collections.abc import Callable
from typing import Any

from acstor.control.protocol import VOLUME_RATE_MAX
from acstor.drivers.cinder import limits
from acstor.repository.volumes import durability
from acstor.repository.volumes.durability import DurabilityClass, FlushTarget

VENDOR = "acstor"

SetProperty = Callable[..., None]


def describe(set_property: SetProperty) -> dict[str, Any]:
    """Return the properties.

    :param set_property: ``_set_property`` of Cinder's base driver.
    """
    properties: dict[str, Any] = {}
    set_property(
        properties,
        durability.SPEC_DURABILITY,
        "Durability",
        "When a write counts as done: in the origin too, on the host's disk and in the origin "
        "within a period, or on the host's disk only.",
        "string",
        enum=[str(one) for one in DurabilityClass],
        default=str(DurabilityClass.WRITE_THROUGH),
    )
    set_property(
        properties,
        durability.SPEC_PERIOD,
        "Period of write-back",
        "Seconds between two pushes of a write-back volume to the origin.",
        "number",
        minimum=durability.PERIOD_S_MIN,
        maximum=durability.PERIOD_S_MAX,
        default=durability.PERIOD_S_DEFAULT,
    )
    set_property(
        properties,
        durability.SPEC_FLUSH,
        "Flush",
        "What a guest's flush of write-back regions waits for.",
        "string",
        enum=[str(one) for one in FlushTarget],
        default=str(FlushTarget.LOCAL),
    )
    set_property(
        properties,
        durability.SPEC_REGIONS,
        "Regions",
        "Regions with a durability of their own: <partition or first-last>=<durability>[@period],"
        "...",
        "string",
        default="",
    )
    set_property(
        properties,
        durability.SPEC_IO_TIMEOUT,
        "I/O timeout",
        "Seconds that a request waits for an origin that is away before the guest gets EIO; 0: it "
        "waits until the origin is back.",
        "number",
        minimum=0,
        maximum=durability.IO_TIMEOUT_S_MAX,
        default=0,
    )
    for name, title, what in (
        (limits.IOPS, "Requests per second", "Most requests per second; 0: no limit."),
        (limits.BYTES_PER_S, "Bytes per second", "Most bytes per second; 0: no limit."),
    ):
        set_property(
            properties,
            limits.PREFIX + name,
            title,
            what,
            "integer",
            minimum=0,
            maximum=VOLUME_RATE_MAX,
            default=0,
        )
    return properties

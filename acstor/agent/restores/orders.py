"""Order to the process of a restore, and its report: lines of JSON over a socket.

The process says how far it is as those of captures do (:mod:`acstor.agent.captures.orders`). Once
it has its order it ends with a report, of a failure too, because that says whether anything was
written. One that ends without a report has been killed, and may have written.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from acstor import untrusted_json
from acstor.agent.captures import orders
from acstor.agent.captures.orders import OriginOrder
from acstor.agent.restores.writing import Written
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore.request import RestoreRequest


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreOrder:
    """Order to write a version into a disk."""

    origin: OriginOrder
    request: RestoreRequest
    read_rate: int
    """Bytes per second; 0: no limit."""
    write_rate: int
    libvirt_uri: str
    uses_monitor: bool
    nice: int

    def encode(self) -> bytes:
        """Return the line of the order."""
        return orders.encode(dataclasses.asdict(self))

    @classmethod
    def parse(cls, line: bytes) -> "RestoreOrder":
        """Read what the agent, this process's parent, has written."""
        fields = untrusted_json.load(line, "the order")
        fields["origin"] = OriginOrder(**fields["origin"])
        fields["request"] = RestoreRequest.from_arguments(fields["request"])
        return cls(**fields)


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreReport:
    """Report of a process."""

    written: Written
    is_touched: bool
    """True if it has written to the disk, or may have."""
    failure: Failure | None = None
    """None: the disk is the version."""

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "RestoreReport":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        written, failure = fields.get("written"), fields.get("failure")
        if not isinstance(written, Mapping):
            raise ValueError("a report does not say what was written")
        names = [field.name for field in dataclasses.fields(Written)]
        counts = {name: untrusted_json.whole(written.get(name), name) for name in names}
        return cls(
            Written(**counts),
            # Whoever does not say so may have written.
            fields.get("is_touched") is not False,
            None if failure is None else Failure.from_fields(failure),
        )

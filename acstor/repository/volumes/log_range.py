"""Runs of log objects of a volume, as records name them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from acstor.origin.replicated.members import check_name
from acstor.repository import layout

EPOCH_MAX = (1 << 32) - 1
SEQUENCE_MAX = (1 << 63) - 1
"""Epochs and sequence numbers fit into the keys of log objects and into JSON readers."""
RANGES_MAX = 4096
"""Most ranges of one record."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class LogRange:
    """Consecutive log objects that one owner of a volume wrote; replayed in their order."""

    volume: str
    """The volume whose owner wrote them: not always the one whose record names them."""
    epoch: int
    first: int
    """First sequence number."""
    last: int
    """Last sequence number, included."""
    member: str | None = dataclasses.field(default=None, compare=False, kw_only=True)
    """Member of the origin that it was written in; None: the home, or an origin of one store. Where
    to look first, and never changed: the objects are the same wherever they are."""

    def __post_init__(self) -> None:
        """Refuse what is no range.

        :raises ValueError: saying what is wrong.
        """
        if layout.parse_log_key(layout.log_key(self.volume, 0, 0)) is None:
            raise ValueError(f"log range of {self.volume!r:.60}, which is no volume id")
        check_epoch(self.epoch)
        check_sequence(self.first)
        check_sequence(self.last)
        if self.first > self.last:
            raise ValueError(f"log range {self.first}-{self.last} is empty")
        check_member(self.member)

    def __len__(self) -> int:
        """Return the number of log objects."""
        return self.last - self.first + 1

    @property
    def folder(self) -> str:
        """Folder of the objects in the origin."""
        return layout.log_folder(self.volume, self.epoch)

    def key(self, sequence: int) -> str:
        """Return the key of one of the objects."""
        return layout.log_key(self.volume, self.epoch, sequence)

    def intersects(self, other: "LogRange") -> bool:
        """Return whether some log object is in both."""
        return (
            (self.volume, self.epoch) == (other.volume, other.epoch)
            and self.first <= other.last
            and other.first <= self.last
        )

    @classmethod
    def from_fields(cls, fields: object) -> "LogRange":
        """Read the JSON form.

        :raises ValueError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise ValueError("a log range is no JSON object")
        volume = fields.get("volume")
        if not isinstance(volume, str):
            raise ValueError("a log range has no volume")
        numbers = [integer(fields.get(name), name) for name in ("epoch", "first", "last")]
        return cls(volume, *numbers, member=fields.get("member"))

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        fields = dataclasses.asdict(self)
        if self.member is None:
            del fields["member"]
        return fields


def parse_ranges(fields: object) -> tuple[LogRange, ...]:
    """Read a JSON list of ranges.

    :raises ValueError: when it is malformed or too long.
    """
    if not isinstance(fields, list) or len(fields) > RANGES_MAX:
        raise ValueError(f"logs are no list of at most {RANGES_MAX} ranges")
    return tuple(map(LogRange.from_fields, fields))


def appended(ranges: Iterable[LogRange], addition: LogRange | None) -> tuple[LogRange, ...]:
    """Return the ranges with one more at the end; a range that goes on where the last ends, joins.

    :param addition: None: nothing is added.
    """
    result = list(ranges)
    if addition is None:
        return tuple(result)
    last = result[-1] if result else None
    if last is not None and (last.volume, last.epoch, last.last + 1) == (
        addition.volume,
        addition.epoch,
        addition.first,
    ):
        result[-1] = dataclasses.replace(last, last=addition.last)
    else:
        result.append(addition)
    return tuple(result)


def check_member(member: object) -> None:
    """Refuse what is no member of an origin.

    :raises ValueError: unless it is the name of one, or None for the home.
    """
    if member is not None:
        check_name(member)


def check_epoch(epoch: int) -> None:
    """Refuse what is no epoch.

    :raises ValueError: unless it has 32 bits.
    """
    if not 0 <= epoch <= EPOCH_MAX:
        raise ValueError(f"epoch {epoch} is out of range")


def check_sequence(sequence: int) -> None:
    """Refuse what is no sequence number.

    :raises ValueError: unless it has 63 bits.
    """
    if not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"sequence number {sequence} is out of range")


def integer(value: object, name: str) -> int:
    """Return a JSON number that is an integer.

    :raises ValueError: when it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is no integer")
    return value

"""Durability of a volume's writes when its host is lost: per disk and per region.

Differential durability is Capo's (section 4.3, Table 2): what a system writes to its page file,
its temporary files and its caches need not travel, what users write must. Regions are byte ranges
or GPT partitions; the data plane finds the partitions when it opens the volume and whenever the
partition table is written. Where a byte range and a partition overlap, the later one counts.

A volume type says it with extra specs::

    acstor:durability = write-through | write-back | none      of everything else; write-through
    acstor:period     = 30                                     of write-back, seconds
    acstor:flush      = local | origin                         what a guest's flush waits for
    acstor:io_timeout = 0                                      seconds before EIO; 0: no limit
    acstor:regions    = swap=none,user=write-through,1GiB-2GiB=write-back@3600

In ``acstor:regions`` a partition's name is percent-encoded where it has ``%``, ``,``, ``=``,
``@`` or a blank at an end, or looks like a byte range.
"""

import dataclasses
import enum
import itertools
import math
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.conf.types import ByteSize, format_size

PERIOD_S_DEFAULT = 30.0
PERIOD_S_MIN = 0.1
PERIOD_S_MAX = 86400.0
IO_TIMEOUT_S_MAX = 86400.0
REGIONS_MAX = 64
"""Most regions of a disk; the data plane has the same limit (crates/overlay, limits.rs)."""
PERIODS_MAX = 14
"""Most different periods of a disk: the data plane pushes each on its own."""
PARTITION_NAME_UNITS_MAX = 36
"""Longest name of a GPT partition, UTF-16 code units (UEFI 2.10, section 5.3.3)."""
SECTOR_SIZE = 512
OFFSET_MAX = 1 << 62

SPEC_DURABILITY = "acstor:durability"
SPEC_PERIOD = "acstor:period"
SPEC_FLUSH = "acstor:flush"
SPEC_REGIONS = "acstor:regions"
SPEC_IO_TIMEOUT = "acstor:io_timeout"
SPECS = (SPEC_DURABILITY, SPEC_PERIOD, SPEC_FLUSH, SPEC_REGIONS, SPEC_IO_TIMEOUT)
"""Extra specs that this module understands."""

_BYTE_RANGE = re.compile(r"\s*([0-9][0-9.]*\s*[A-Za-z]*)\s*-\s*([0-9][0-9.]*\s*[A-Za-z]*)\s*")
_QUOTED = "%,=@"


class DurabilityClass(enum.StrEnum):
    """Durability class: the moment at which a write is acknowledged, and whether it travels."""

    WRITE_THROUGH = "write-through"
    """Acknowledged when it is durable on the host's disk and in the origin."""
    WRITE_BACK = "write-back"
    """Acknowledged when it is on the host's disk; pushed to the origin, in order, every period."""
    NONE = "none"
    """Acknowledged when it is on the host's disk; never leaves the host."""


class FlushTarget(enum.StrEnum):
    """Storage that a guest's flush (and a write with FUA) of write-back regions waits for."""

    LOCAL = "local"
    """The host's disk."""
    ORIGIN = "origin"
    """The origin."""


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A part of a disk with a durability of its own: either a byte range or a GPT partition."""

    durability_class: DurabilityClass
    first: int | None = None
    """First byte; a multiple of 512."""
    last: int | None = None
    """First byte after the region; a multiple of 512."""
    partition: str | None = None
    """Name in the GPT; of several partitions with that name, all."""
    period_s: float | None = None
    """Time between two pushes, seconds; None: the disk's. Only of write-back."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        :raises InvalidError: saying what, and of which region.
        """
        if self.partition is not None:
            if self.first is not None or self.last is not None:
                raise exception.InvalidError(
                    f"region {self.partition!r} has both a partition and a byte range"
                )
            check_partition_name(self.partition)
        else:
            self._check_range()
        if self.period_s is not None:
            if self.durability_class is not DurabilityClass.WRITE_BACK:
                raise exception.InvalidError(
                    f"region {self.where} has a period but is {self.durability_class.value}",
                    hint="only write-back has a period",
                )
            check_period(self.period_s)

    def _check_range(self) -> None:
        first, last = self.first, self.last
        if first is None or last is None:
            raise exception.InvalidError(
                "a durability region has neither a partition nor a byte range"
            )
        if not 0 <= first < last <= OFFSET_MAX:
            raise exception.InvalidError(f"region {first}-{last} is no range of bytes")
        if first % SECTOR_SIZE or last % SECTOR_SIZE:
            raise exception.InvalidError(
                f"region {first}-{last} does not begin and end at a multiple of {SECTOR_SIZE} bytes"
            )

    @property
    def where(self) -> str:
        """The region as the extra spec names it."""
        if self.partition is None:
            return f"{_size_text(self.first)}-{_size_text(self.last)}"
        return _quoted(self.partition)

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        fields: dict[str, Any] = {"class": self.durability_class.value}
        if self.partition is not None:
            fields["partition"] = self.partition
        else:
            fields.update(first=self.first, last=self.last)
        if self.period_s is not None:
            fields["period_s"] = self.period_s
        return fields

    @classmethod
    def from_fields(cls, fields: object) -> "Region":
        """Read the JSON form; unknown fields are ignored.

        :raises InvalidError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise exception.InvalidError("a durability region is no JSON object")
        return cls(
            durability_class=_class_of(fields.get("class")),
            first=_integer(fields.get("first"), "first"),
            last=_integer(fields.get("last"), "last"),
            partition=_text(fields.get("partition"), "partition"),
            period_s=_number(fields.get("period_s"), "period_s"),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Durability:
    """The durability of a disk."""

    default: DurabilityClass = DurabilityClass.WRITE_THROUGH
    """Of everything that is in no region."""
    period_s: float = PERIOD_S_DEFAULT
    """Time between two pushes of write-back, seconds."""
    flush: FlushTarget = FlushTarget.LOCAL
    regions: tuple[Region, ...] = ()
    io_timeout_s: float | None = None
    """Seconds that a request waits for an origin that does nothing before it fails; 0: without
    limit; None: as the host says."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        :raises InvalidError: saying what.
        """
        check_period(self.period_s)
        if self.io_timeout_s is not None:
            check_io_timeout(self.io_timeout_s)
        if len(self.regions) > REGIONS_MAX:
            raise exception.InvalidError(
                f"{len(self.regions)} durability regions, at most {REGIONS_MAX} may be"
            )
        periods = {region.period_s for region in self.regions} - {None, self.period_s}
        if len(periods) >= PERIODS_MAX:
            raise exception.InvalidError(
                f"{len(periods) + 1} different write-back periods, at most {PERIODS_MAX} may be"
            )
        ranges = sorted(
            (region.first, region.last)
            for region in self.regions
            if region.first is not None and region.last is not None
        )
        for (first, last), (following, _) in itertools.pairwise(ranges):
            if following < last:
                raise exception.InvalidError(
                    f"durability regions overlap: {first}-{last} and one that begins at {following}"
                )
        names = [region.partition for region in self.regions if region.partition is not None]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise exception.InvalidError(f"partition {min(twice)!r} has two durability regions")

    @property
    def classes(self) -> frozenset[DurabilityClass]:
        """Every class that some part of the disk has."""
        return frozenset({self.default, *(region.durability_class for region in self.regions)})

    def may_lag(self) -> bool:
        """Return whether a guest may be told of writes that the origin does not have yet."""
        return self.classes != {DurabilityClass.WRITE_THROUGH}

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        fields: dict[str, Any] = {
            "default": self.default.value,
            "period_s": self.period_s,
            "flush": self.flush.value,
            "regions": [region.to_fields() for region in self.regions],
        }
        if self.io_timeout_s is not None:
            fields["io_timeout_s"] = self.io_timeout_s
        return fields

    @classmethod
    def from_fields(cls, fields: object) -> "Durability":
        """Read the JSON form; what is left out has its default, unknown fields are ignored.

        :raises InvalidError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise exception.InvalidError("the durability is no JSON object")
        regions = fields.get("regions", [])
        if not isinstance(regions, list) or len(regions) > REGIONS_MAX:
            raise exception.InvalidError(
                f"the durability's regions are no list of at most {REGIONS_MAX}"
            )
        period_s = _number(fields.get("period_s"), "period_s")
        return cls(
            default=_class_of(fields.get("default", DurabilityClass.WRITE_THROUGH)),
            period_s=PERIOD_S_DEFAULT if period_s is None else period_s,
            flush=_flush_of(fields.get("flush", FlushTarget.LOCAL)),
            regions=tuple(Region.from_fields(region) for region in regions),
            io_timeout_s=_number(fields.get("io_timeout_s"), "io_timeout_s"),
        )

    @classmethod
    def from_extra_specs(cls, specs: Mapping[str, str]) -> "Durability":
        """Read the extra specs of a volume type; other extra specs are ignored.

        :raises InvalidError: naming the extra spec that is wrong.
        """
        period_s = PERIOD_S_DEFAULT
        if SPEC_PERIOD in specs:
            period_s = _seconds(specs[SPEC_PERIOD], SPEC_PERIOD)
        io_timeout_s = None
        if specs.get(SPEC_IO_TIMEOUT, "").strip():
            io_timeout_s = _seconds(specs[SPEC_IO_TIMEOUT], SPEC_IO_TIMEOUT)
        return cls(
            default=_class_of(specs.get(SPEC_DURABILITY, DurabilityClass.WRITE_THROUGH).strip()),
            period_s=period_s,
            flush=_flush_of(specs.get(SPEC_FLUSH, FlushTarget.LOCAL).strip()),
            regions=parse_regions(specs.get(SPEC_REGIONS, "")),
            io_timeout_s=io_timeout_s,
        )

    def to_extra_specs(self) -> dict[str, str]:
        """Return the extra specs that mean this."""
        specs = {
            SPEC_DURABILITY: self.default.value,
            SPEC_PERIOD: f"{self.period_s:g}",
            SPEC_FLUSH: self.flush.value,
        }
        if self.regions:
            specs[SPEC_REGIONS] = format_regions(self.regions)
        if self.io_timeout_s is not None:
            specs[SPEC_IO_TIMEOUT] = f"{self.io_timeout_s!r}"
        return specs


def parse_regions(text: str) -> tuple[Region, ...]:
    """Read ``<partition or first-last>=<class>[@period],...``; empty: no regions.

    :raises InvalidError: naming the part that is wrong.
    """
    parts = [part for part in text.split(",") if part.strip()]
    if len(parts) > REGIONS_MAX:
        raise exception.InvalidError(
            f"{SPEC_REGIONS} has {len(parts)} regions, at most {REGIONS_MAX} may be"
        )
    return tuple(map(_parse_region, parts))


def format_regions(regions: tuple[Region, ...]) -> str:
    """Return the text that :func:`parse_regions` reads."""
    return ",".join(
        f"{region.where}={region.durability_class.value}"
        + (f"@{region.period_s:g}" if region.period_s is not None else "")
        for region in regions
    )


def _parse_region(part: str) -> Region:
    where, separator, what = part.strip().partition("=")
    if not separator or not where:
        raise exception.InvalidError(
            f"{part.strip()!r} in {SPEC_REGIONS} is no region",
            hint="write <partition or first-last>=<class>[@period], for example swap=none",
        )
    name, separator, period = what.partition("@")
    durability_class = _class_of(name.strip())
    period_s = _seconds(period, SPEC_REGIONS) if separator else None
    byte_range = _BYTE_RANGE.fullmatch(where)
    if byte_range:
        try:
            first, last = (ByteSize(max=OFFSET_MAX)(bound) for bound in byte_range.groups())
        except ValueError as error:
            raise exception.InvalidError(f"{where!r} in {SPEC_REGIONS}: {error}") from error
        return Region(durability_class, first=first, last=last, period_s=period_s)
    try:
        partition = urllib.parse.unquote(where.strip(), errors="strict")
    except UnicodeDecodeError as error:
        raise exception.InvalidError(f"{where!r} in {SPEC_REGIONS} is no UTF-8") from error
    return Region(durability_class, partition=partition, period_s=period_s)


def check_partition_name(name: str) -> None:
    """Refuse what cannot be the name of a GPT partition.

    :raises InvalidError: unless it has 1 to 36 UTF-16 code units and no control characters.
    """
    try:
        units = len(name.encode("utf-16-le")) // 2
    except UnicodeEncodeError as error:
        raise exception.InvalidError(f"partition name {name!r} is no Unicode text") from error
    if not 1 <= units <= PARTITION_NAME_UNITS_MAX:
        raise exception.InvalidError(
            f"partition name {name!r:.60} has {units} UTF-16 code units, "
            f"1 to {PARTITION_NAME_UNITS_MAX} may be"
        )
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in name):
        raise exception.InvalidError(f"partition name {name!r} has control characters")


def check_period(period_s: float) -> None:
    """Refuse what is no period of write-back.

    :raises InvalidError: unless it is from 0.1 s to a day.
    """
    if not math.isfinite(period_s) or not PERIOD_S_MIN <= period_s <= PERIOD_S_MAX:
        raise exception.InvalidError(
            f"write-back period {period_s:g} s is not from {PERIOD_S_MIN:g} to {PERIOD_S_MAX:g}"
        )


def check_io_timeout(io_timeout_s: float) -> None:
    """Refuse what is no time that a request may wait.

    :raises InvalidError: unless it is from 0 (without limit) to a day.
    """
    if not math.isfinite(io_timeout_s) or not 0 <= io_timeout_s <= IO_TIMEOUT_S_MAX:
        raise exception.InvalidError(
            f"I/O timeout {io_timeout_s:g} s is not from 0 to {IO_TIMEOUT_S_MAX:g}",
            hint="0: requests wait until the origin is back",
        )


def _class_of(value: object) -> DurabilityClass:
    try:
        return DurabilityClass(value)  # type: ignore[arg-type]
    except ValueError as error:
        known = ", ".join(DurabilityClass)
        raise exception.InvalidError(f"{value!r:.60} is no durability ({known})") from error


def _flush_of(value: object) -> FlushTarget:
    try:
        return FlushTarget(value)  # type: ignore[arg-type]
    except ValueError as error:
        known = ", ".join(FlushTarget)
        raise exception.InvalidError(f"{value!r:.60} is no target of a flush ({known})") from error


def _seconds(text: str, spec: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise exception.InvalidError(f"{text!r:.60} in {spec} is no number of seconds") from error


def _integer(value: object, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise exception.InvalidError(f"{name} of a durability region is no number")
    return value


def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise exception.InvalidError(f"{name} of the durability is no number")
    try:
        return float(value)
    except OverflowError as error:
        raise exception.InvalidError(f"{name} of the durability is too large") from error


def _text(value: object, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise exception.InvalidError(f"{name} of a durability region is no text")
    return value


def _size_text(size: int | None) -> str:
    return format_size(size or 0).replace(" ", "")


def _quoted(name: str) -> str:
    """Percent-encode what would not be read back as part of a partition's name."""
    edges = {0, len(name) - 1}
    encoded: list[str] = []
    for position, character in enumerate(name):
        is_blank_edge = position in edges and character.isspace()
        is_range = position == 0 and _BYTE_RANGE.fullmatch(name) is not None
        if character in _QUOTED or is_blank_edge or is_range:
            encoded.extend(f"%{byte:02X}" for byte in character.encode())
        else:
            encoded.append(character)
    return "".join(encoded)

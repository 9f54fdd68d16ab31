"""Tables of paths and their durability: a file, or options of the command.

See :doc:`/reference/formats/split-table`. Source: Capo (FAST 2011), Table 2.
"""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from acstor import exception
from acstor.conf.types import MIB, ByteSize
from acstor.repository.volumes.durability import (
    REGIONS_MAX,
    DurabilityClass,
    Region,
    check_period,
)

TABLE_VERSION = 1
"""Raised when a field changes its meaning."""
FILE_BYTES_MAX = 1 << 20
SIZE_MIN = 16 * MIB
"""Smallest partition, bytes: below it most is what the file system needs itself."""
SIZE_MAX = 1 << 44
PATH_LENGTH_MAX = 1024
_FIELDS = frozenset({"path", "class", "period", "size", "options"})
_OPTIONS = re.compile(r"[A-Za-z0-9_.,=:@%/+-]{1,1000}")
_REFUSED = {
    "/": "the root file system stays where it is",
    "/boot": "the boot loader reads it",
    "/efi": "the boot loader reads it",
    "/etc": "fstab is in it",
    "/usr": "the system starts from it",
    "/bin": "the system starts from it",
    "/sbin": "the system starts from it",
    "/lib": "the system starts from it",
    "/lib32": "the system starts from it",
    "/lib64": "the system starts from it",
    "/libx32": "the system starts from it",
    "/dev": "it is in memory",
    "/proc": "it is in memory",
    "/run": "it is in memory",
    "/sys": "it is in memory",
}
"""Paths that cannot be split, nor can what is below them; why."""
_ALLOWED = ("/usr/local", "/usr/src", "/usr/share")
"""Paths below those that no boot needs before it mounts everything."""


@dataclasses.dataclass(frozen=True, slots=True)
class PathRule:
    """Durability of a directory, and what its partition is to be."""

    path: str
    durability_class: DurabilityClass
    period_s: float | None = None
    """Time between two pushes of write-back, seconds; None: the volume type's."""
    size_bytes: int | None = None
    """Bytes of the partition; None: what is in it, and room."""
    options: str | None = None
    """Options of its line in fstab; None: those of its class."""

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        :raises InvalidError: saying why.
        """
        check_path(self.path)
        if self.period_s is not None:
            if self.durability_class is not DurabilityClass.WRITE_BACK:
                raise exception.InvalidError(
                    f"{self.path} has a period but is {self.durability_class.value}",
                    hint="only write-back has a period",
                )
            check_period(self.period_s)
        if self.size_bytes is not None and not SIZE_MIN <= self.size_bytes <= SIZE_MAX:
            raise exception.InvalidError(
                f"{self.path} is to have {self.size_bytes} bytes",
                hint=f"{SIZE_MIN} to {SIZE_MAX} may be",
            )
        if self.options is not None and not _OPTIONS.fullmatch(self.options):
            raise exception.InvalidError(
                f"{self.options!r:.100} are no mount options of {self.path}",
                hint="write them as in fstab, without blanks: defaults,noatime",
            )

    @property
    def partition_name(self) -> str:
        """Name of the partition: the class, with the period where it has one of its own."""
        if self.period_s is None:
            return self.durability_class.value
        return f"{self.durability_class.value}-{self.period_s:g}s"

    @property
    def region(self) -> Region:
        """Region of a volume's durability that the partition is."""
        return Region(self.durability_class, partition=self.partition_name, period_s=self.period_s)


def check_path(path: str) -> None:
    """Refuse a path that is not written out, or from which the system starts.

    :raises InvalidError: saying why.
    """
    parts = path.split("/")
    is_plain = path == "/" or (path.startswith("/") and all(parts[1:]))
    if not is_plain or ".." in parts or "." in parts or len(path) > PATH_LENGTH_MAX:
        raise exception.InvalidError(
            f"{path!r:.100} is no path that can be split",
            hint="write it absolute, without . or .. and without a slash at its end",
        )
    if any(ord(one) < 0x20 or ord(one) == 0x7F for one in path):
        raise exception.InvalidError(f"path {path!r:.100} has control characters")
    if any(0xD800 <= ord(one) < 0xE000 for one in path):
        raise exception.InvalidError(
            f"path {path!r:.100} is no UTF-8", hint="rename it in the image, or leave it out"
        )
    if any(path == one or path.startswith(one + "/") for one in _ALLOWED):
        return
    top = "/" + parts[1]
    if top in _REFUSED:
        raise exception.InvalidError(
            f"{path} cannot be split: {_REFUSED[top]}",
            hint="split directories of data, such as /var/cache, /tmp or /home",
        )


def combine(rules: Iterable[PathRule]) -> tuple[PathRule, ...]:
    """Return the rules in the order in which they are mounted: what is nested, later.

    :raises InvalidError: when there is none, too many, or a path twice.
    """
    found = sorted(rules, key=lambda rule: rule.path.split("/"))
    if not found:
        raise exception.InvalidError(
            "no path is to be split", hint="give a table, or --path /var/cache=none"
        )
    if len(found) > REGIONS_MAX:
        raise exception.InvalidError(f"{len(found)} paths, at most {REGIONS_MAX} may be")
    paths = [rule.path for rule in found]
    for path in paths:
        if paths.count(path) > 1:
            raise exception.InvalidError(f"{path} has two durabilities")
    return tuple(found)


def load(path: str) -> tuple[PathRule, ...]:
    """Read a table, TOML.

    :raises InvalidError: when it cannot be read or is malformed.
    """
    try:
        with open(path, "rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise exception.InvalidError(f"longer than {FILE_BYTES_MAX} bytes")
        return parse(tomllib.loads(content.decode()))
    except OSError as error:
        raise exception.InvalidError(f"table {path}: {error.strerror}") from error
    except exception.InvalidError as error:
        raise exception.InvalidError(f"table {path}: {error.message}", hint=error.hint) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise exception.InvalidError(f"table {path} is no TOML: {error}") from error


def parse(fields: Mapping[str, Any]) -> tuple[PathRule, ...]:
    """Return the rules that a mapping with the fields of the file describes.

    :raises InvalidError: when something is malformed.
    """
    if fields.get("version") != TABLE_VERSION or isinstance(fields["version"], bool):
        raise exception.InvalidError(
            f"version = {fields.get('version')!r:.20}, not {TABLE_VERSION}"
        )
    unknown = fields.keys() - {"version", "path"}
    if unknown:
        raise exception.InvalidError(f"unknown field {min(unknown)!r:.50}")
    listed = fields.get("path", [])
    if not isinstance(listed, list):
        raise exception.InvalidError("the paths are no list", hint="begin each with [[path]]")
    return tuple(_rule(one) for one in listed)


def parse_option(text: str) -> PathRule:
    """Read ``<path>=<class>[@<period>][,<size>]``.

    :raises InvalidError: when it is malformed.
    """
    path, separator, what = text.rpartition("=")
    if not separator:
        raise exception.InvalidError(
            f"{text!r:.100} is no path and class", hint="write /var/cache=none"
        )
    what, _, size = what.partition(",")
    name, separator, period = what.partition("@")
    try:
        period_s = float(period) if separator else None
    except ValueError as error:
        raise exception.InvalidError(f"{period!r:.50} of {path} is no period, seconds") from error
    return PathRule(path, _class(name, path), period_s, _size(size, path) if size else None)


def _rule(fields: object) -> PathRule:
    if not isinstance(fields, Mapping):
        raise exception.InvalidError("a path is no table", hint="begin each with [[path]]")
    path = fields.get("path")
    if not isinstance(path, str):
        raise exception.InvalidError("a path has no field path")
    unknown = fields.keys() - _FIELDS
    if unknown:
        raise exception.InvalidError(f"{path:.100} has an unknown field {min(unknown)!r:.50}")
    period, options = fields.get("period"), fields.get("options")
    if period is not None and (isinstance(period, bool) or not isinstance(period, int | float)):
        raise exception.InvalidError(f"the period of {path:.100} is no number of seconds")
    if options is not None and not isinstance(options, str):
        raise exception.InvalidError(f"the options of {path:.100} are no text")
    return PathRule(
        path=path,
        durability_class=_class(fields.get("class"), path),
        period_s=None if period is None else float(period),
        size_bytes=_size(fields["size"], path) if "size" in fields else None,
        options=options,
    )


def _class(name: object, path: str) -> DurabilityClass:
    try:
        return DurabilityClass(str(name))
    except ValueError as error:
        names = ", ".join(one.value for one in DurabilityClass)
        raise exception.InvalidError(
            f"{path:.100} has the class {name!r:.50}", hint=f"one of {names}"
        ) from error


def _size(value: object, path: str) -> int:
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("is not a size such as 20GiB")
        return ByteSize()(value)
    except ValueError as error:
        raise exception.InvalidError(f"{value!r:.50}, size of {path:.100}, {error}") from error

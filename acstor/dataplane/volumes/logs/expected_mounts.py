"""Mounts that this host is to have: by fstab(5), or by mount and automount units of systemd.

A directory whose file system is not mounted looks like an empty one. Where nothing else tells the
two apart, this does.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acstor.origin.mounts import unescaped

FSTAB = "/etc/fstab"
SYSTEMD_RUNS = "/run/systemd/system"
"""Directory that is there where systemd is the first process; see sd_booted(3)."""
UNIT_DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
"""Directories of units, the one that counts first; see systemd.unit(5)."""
_PULLED_IN = ("x-systemd.automount", "x-systemd.wanted-by=", "x-systemd.required-by=")
"""Options of fstab(5) by which an entry that is ``noauto`` is mounted all the same."""
_UNIT_TYPES = (".mount", ".automount")
_LINKS = (".wants", ".requires", ".upholds")
_PLAIN = re.compile(rb"[A-Za-z0-9:_.]")


@dataclass(frozen=True)
class Tables:
    """Files that say what is to be mounted; what cannot be read names nothing."""

    fstab: str = FSTAB
    unit_directories: Sequence[str] = ()

    @classmethod
    def of_this_host(cls) -> "Tables":
        """Return those that count here: units only where systemd runs."""
        return cls(FSTAB, UNIT_DIRECTORIES if os.path.isdir(SYSTEMD_RUNS) else ())


@dataclass(frozen=True)
class ExpectedMount:
    """A mount that is to be."""

    point: str
    """Directory on which it is to be mounted."""
    source: str
    """File that says so."""


def find_missing(path: str, tables: Tables) -> ExpectedMount | None:
    """Return the mount that ``path`` is to be on, and that is not there; None: there is no such.

    What is mounted on demand counts as there: whoever uses it gets the file system, or an error.

    :param path: absolute; links in it are followed.
    """
    wanted = os.path.realpath(path)
    for expected in (*_of_fstab(tables.fstab, wanted), *_of_units(tables, wanted)):
        if not os.path.ismount(expected.point):
            return expected
    return None


def _of_fstab(fstab: str, wanted: str) -> Iterator[ExpectedMount]:
    for line in _lines(fstab):
        fields = [unescaped(field) for field in line.split()]
        if len(fields) < 4 or fields[0].startswith("#") or not _is_automatic(fields[3].split(",")):
            continue
        point = os.path.normpath(fields[1])
        is_above = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if is_above and os.path.isabs(point):
            yield ExpectedMount(point, fstab)


def _is_automatic(options: Sequence[str]) -> bool:
    return "noauto" not in options or any(option.startswith(_PULLED_IN) for option in options)


def _lines(path: str) -> list[str]:
    try:
        # A line ends with a newline only: names of mount points may hold other ends of lines.
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read().split("\n")
    except OSError:
        return []


def _of_units(tables: Tables, wanted: str) -> Iterator[ExpectedMount]:
    links = _linked(tables.unit_directories)
    point = wanted
    while point != os.path.dirname(point):
        for unit in (unit_name(point) + kind for kind in _UNIT_TYPES):
            source = _unit_file(tables, unit) if unit in links else None
            if source is not None:
                yield ExpectedMount(point, source)
        point = os.path.dirname(point)


def unit_name(point: str) -> str:
    """Return the name of the units of a mount point, without its suffix, as systemd-escape(1)."""
    name = b""
    for number, byte in enumerate(os.fsencode(point.strip("/"))):
        letter = bytes([byte])
        if letter == b"/":
            name += b"-"
        elif _PLAIN.match(letter) and (letter != b"." or number > 0):
            name += letter
        else:
            name += b"\\x%02x" % byte
    return name.decode("ascii")


def _linked(directories: Sequence[str]) -> set[str]:
    """Return the names of units that another one pulls in: those that are enabled."""
    found: set[str] = set()
    for directory in directories:
        for folder in _names(directory):
            if folder.endswith(_LINKS):
                found.update(_names(os.path.join(directory, folder)))
    return found


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _unit_file(tables: Tables, unit: str) -> str | None:
    """Return the file of a unit; None where there is none, or it says nothing of its own."""
    for directory in tables.unit_directories:
        path = os.path.join(directory, unit)
        if os.path.lexists(path):
            lines = _lines(path)
            # Empty or /dev/null: masked. What a generator made of fstab may be older than that.
            is_silent = not any(lines) or f"SourcePath={tables.fstab}" in lines
            return None if is_silent else path
    return None

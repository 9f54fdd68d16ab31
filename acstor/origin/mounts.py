"""The mount that a path is on, and what of its options an origin needs on a network file system."""

import dataclasses
import os
from collections.abc import Mapping

MOUNTS = "/proc/self/mountinfo"
FSTAB = "/etc/fstab"
FRESH_OPTIONS: Mapping[str, str] = {"lookupcache": "none", "acdirmin": "0", "acdirmax": "0"}
"""NFS options without which a host does not see at once what others wrote."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """One mount."""

    kind: str
    """Type of the file system."""
    point: str
    """Directory on which it is mounted."""
    options: Mapping[str, str]
    """Options of the file system; the value of those without one is empty."""

    @property
    def is_network(self) -> bool:
        """True if it is NFS."""
        return self.kind.startswith("nfs")

    @property
    def has_kerberos(self) -> bool:
        """True if the server of an NFS mount is shown who a user is, and does not believe it."""
        return self.options.get("sec", "").startswith("krb5")

    @property
    def has_local_locks(self) -> bool:
        """True if locks stay on this host."""
        return bool(self.local_lock_option)

    @property
    def local_lock_option(self) -> str:
        """The option by which locks stay on this host; empty: they reach the server."""
        if "nolock" in self.options:
            return "nolock"
        value = self.options.get("local_lock", "none")
        return "" if value in ("none", "flock") else f"local_lock={value}"

    @property
    def missing_fresh_options(self) -> list[str]:
        """The options, as they are to be written, that it lacks to show what others wrote."""
        options = dict(self.options)
        if "noac" in options:
            options |= {"acdirmin": "0", "acdirmax": "0"}
        return [f"{name}={value}" for name, value in FRESH_OPTIONS.items()
                if options.get(name) != value]  # fmt: skip

    def problems(self, *, needs_locks: bool) -> list[str]:
        """Return what is wrong with it for an origin, each with what it leads to.

        :param needs_locks: whether refs are changed under locks (the former layout).
        """
        if not self.is_network:
            return []
        found = []
        missing = self.missing_fresh_options
        if missing:
            found.append(
                f"without {','.join(missing)}: hosts notice new images and rings late, and "
                "[gc] grace must be twice the caching time"
            )
        if "soft" in self.options or "softerr" in self.options:
            found.append(
                "soft: reads and pushes of guests fail while the server is away, where hard waits"
            )
        if "ro" in self.options:
            found.append("ro: nothing can be stored")
        if needs_locks and self.has_local_locks:
            found.append(
                f"{self.local_lock_option}: the locks of the refs do not reach the server, no ref "
                "can be changed"
            )
        return found


def read_table() -> str:
    """Return what is mounted, in the format of :data:`MOUNTS`; nothing when it cannot be told."""
    try:
        # A line ends with a newline only: names of mount points may hold other ends of lines.
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read()
    except OSError:
        return ""


def find_mount(path: str, table: str | None = None) -> Mount | None:
    """Return the mount that holds ``path``; None when it cannot be told.

    :param path: absolute; links in it are followed.
    :param table: what :func:`read_table` returned; None: what is mounted now.
    """
    wanted = os.path.realpath(path)
    best: tuple[int, Mount] | None = None
    for line in (read_table() if table is None else table).rstrip("\n").split("\n"):
        if not line:
            continue
        before, _, after = line.partition(" - ")
        mount_point = _unescaped(before.split(" ")[4])
        if wanted != mount_point and not wanted.startswith(mount_point.rstrip("/") + "/"):
            continue
        # Of several on one mount point the last one is on top.
        if best is None or len(mount_point) >= best[0]:
            best = len(mount_point), _parse(mount_point, before, after)
    return None if best is None else best[1]


def missing_mount(path: str, fstab: str = FSTAB) -> str | None:
    """Return the mount point that ``path`` is on by a table of what is to be, and that is none.

    :param path: absolute; links in it are followed.
    :param fstab: of the table; one that cannot be read names nothing.
    :returns: None where it is mounted, or nothing is to be; entries that are ``noauto`` are not.
    """
    wanted = os.path.realpath(path)
    try:
        with open(fstab, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = file.read().split("\n")
    except OSError:
        return None
    for line in lines:
        fields = [_unescaped(field) for field in line.split()]
        if len(fields) < 4 or fields[0].startswith("#") or "noauto" in fields[3].split(","):
            continue
        mount_point = os.path.normpath(fields[1])
        is_above = wanted == mount_point or wanted.startswith(mount_point.rstrip("/") + "/")
        if is_above and os.path.isabs(mount_point) and not os.path.ismount(mount_point):
            return mount_point
    return None


def _parse(point: str, before: str, after: str) -> Mount:
    kind, _, super_options = after.split(" ", 2)
    texts = [*before.split(" ")[5].split(","), *super_options.strip().split(",")]
    pairs = (text.partition("=") for text in texts)
    return Mount(kind, point, {name: value for name, _, value in pairs})


def _unescaped(text: str) -> str:
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text

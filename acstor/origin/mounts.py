"""The mount that a path is on, and what of its options an origin needs on a network file system."""

import dataclasses
import os
import urllib.parse
from collections.abc import Mapping

MOUNTS = "/proc/self/mountinfo"
FRESH_OPTIONS: Mapping[str, str] = {"lookupcache": "none", "acdirmin": "0", "acdirmax": "0"}
"""NFS options without which a host does not see at once what others wrote."""
_ON_DEMAND = "autofs"
_REMOTE = ("nfs", "ceph", "fuse.ceph", "fuse.glusterfs", "lustre", "gpfs", "cifs")


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
    def is_remote(self) -> bool:
        """True if its reads go over the network."""
        return self.kind.startswith(_REMOTE)

    @property
    def is_pending(self) -> bool:
        """True if the file system itself, which is mounted at its first use, could not be."""
        return self.kind == _ON_DEMAND

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
        if self.is_pending:
            return ["on demand, and that fails: what mounts it has logged why"]
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


def read_table_for(path: str) -> str:
    """Return what is mounted once ``path`` is: at its first use, it may be, by an automount unit.

    :param path: absolute; links in it are followed.
    """
    table = read_table()
    mount = _find(path, table)
    if mount is None or not mount.is_pending:
        return table
    try:
        # Looking at it is no use. Held, lest it goes again before it is read.
        place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return read_table()  # on the way to what is not there it was mounted, too
    try:
        return read_table()
    finally:
        os.close(place)


def find_mount(path: str, table: str | None = None) -> Mount | None:
    """Return the mount that holds ``path``; None when it cannot be told.

    :param path: absolute; links in it are followed.
    :param table: what :func:`read_table_for` returned; None: what is mounted now.
    """
    return _find(path, read_table_for(path) if table is None else table)


def is_remote(origin_url: str) -> bool:
    """Return whether reads of an origin go over the network.

    :param origin_url: ``[origin] url``.
    """
    parts = urllib.parse.urlsplit(origin_url)
    if parts.scheme not in {"posix", "file"}:
        return parts.scheme != "memory"
    mount = find_mount(urllib.parse.unquote(parts.path))
    return mount is not None and mount.is_remote


def _find(path: str, table: str) -> Mount | None:
    wanted = os.path.realpath(path)
    best: tuple[int, Mount] | None = None
    for line in table.rstrip("\n").split("\n"):
        if not line:
            continue
        before, _, after = line.partition(" - ")
        mount_point = unescaped(before.split(" ")[4])
        if wanted != mount_point and not wanted.startswith(mount_point.rstrip("/") + "/"):
            continue
        # Of several on one mount point the last one is on top.
        if best is None or len(mount_point) >= best[0]:
            best = len(mount_point), _parse(mount_point, before, after)
    return None if best is None else best[1]


def _parse(point: str, before: str, after: str) -> Mount:
    kind, _, super_options = after.split(" ", 2)
    texts = [*before.split(" ")[5].split(","), *super_options.strip().split(",")]
    pairs = (text.partition("=") for text in texts)
    return Mount(kind, point, {name: value for name, _, value in pairs})


def unescaped(text: str) -> str:
    """Return a field of a table of mounts as it is meant."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text

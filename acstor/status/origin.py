"""Checks of the origin: it is there, and the installed release reads what it holds."""

import contextlib
import os
import urllib.parse
from collections.abc import Iterator

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.repository import repository
from acstor.ring.published_ring import read_ring
from acstor.status.verdict import failure_of, success, warning

_DEADLINE = 5.0
_NFS_OPTIONS = {"lookupcache": "none", "acdirmin": "0", "acdirmax": "0"}
"""Without them a host does not see at once what others wrote; ``noac`` implies the last two."""
_MOUNTS = "/proc/self/mountinfo"


@contextlib.contextmanager
def _opened(conf: cfg.ConfigOpts) -> Iterator[Origin]:
    origin = open_origin(conf.origin.url, min(_DEADLINE, conf.origin.timeout))
    try:
        yield origin
    finally:
        origin.close()


def check_repository(conf: cfg.ConfigOpts) -> Result:
    """Check that the origin is reachable and that its repository is of this release's version."""
    try:
        with _opened(conf) as origin:
            found = repository.Repository.open(origin)
    except exception.UnsupportedError as error:
        return failure_of(error)
    except exception.AcstorError as error:
        return failure_of(type(error)(f"{conf.origin.url}: {error}", hint=error.hint))
    what = (
        f"{conf.origin.url}: format version {found.format.version}, chunks of "
        f"{found.chunk_size} bytes"
    )
    if found.format.version < repository.FORMAT_VERSION:
        return warning(
            f"{what}; volumes need version {repository.VOLUMES_VERSION}: when every machine runs "
            "this release, 'acstor repository upgrade'"
        )
    return success(what)


def check_ring(conf: cfg.ConfigOpts) -> Result:
    """Check that the published ring is of the format that this release reads."""
    try:
        with _opened(conf) as origin:
            published = read_ring(origin)
    except exception.AcstorError as error:
        return failure_of(error)
    if published is None:
        return success("none is published yet; the first agent publishes one")
    return success(f"generation {published.ring.generation}, {len(published.ring.hosts)} hosts")


def check_mount(conf: cfg.ConfigOpts) -> Result:
    """Check that an origin on NFS is mounted so that hosts see what other hosts wrote."""
    parts = urllib.parse.urlsplit(conf.origin.url)
    if parts.scheme not in {"posix", "file"}:
        return success(f"the origin is no mounted directory ({parts.scheme}:)")
    path = urllib.parse.unquote(parts.path)
    mount = _mount_of(path)
    if mount is None:
        return warning(f"it cannot be told on which file system {path} is; look at {_MOUNTS}")
    kind, options = mount
    if not kind.startswith("nfs"):
        return success(f"{path} is on {kind}")
    if "noac" in options:
        options |= {"acdirmin": "0", "acdirmax": "0"}
    wanted = [f"{name}={value}" for name, value in _NFS_OPTIONS.items()]
    wrong = [pair for pair in wanted if options.get(pair.split("=")[0]) != pair.split("=")[1]]
    if wrong:
        return warning(
            f"{path} is on NFS without {','.join(wrong)}: hosts notice new images and rings late, "
            "and [gc] grace must be twice the caching time; mount it with these options"
        )
    return success(f"{path} is on {kind} with {','.join(wanted)}")


def _mount_of(path: str) -> tuple[str, dict[str, str]] | None:
    """Return type and options of the file system that holds ``path``, without touching it."""
    wanted = os.path.normpath(path)
    best: tuple[int, str, dict[str, str]] | None = None
    with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            mount_point = before.split(" ")[4].replace("\\040", " ")
            if wanted == mount_point or wanted.startswith(mount_point.rstrip("/") + "/"):
                kind, _, super_options = after.split(" ", 2)
                pairs = (option.partition("=") for option in super_options.strip().split(","))
                # Of several on one mount point the last one is on top.
                if best is None or len(mount_point) >= best[0]:
                    options = {name: value for name, _, value in pairs}
                    best = len(mount_point), kind, options
    return None if best is None else (best[1], best[2])

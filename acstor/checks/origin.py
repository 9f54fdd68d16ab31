"""Checks of the origin: it is there, and the installed release reads what it holds."""

import contextlib
import os
import stat
import urllib.parse
from collections.abc import Iterator

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.checks.verdict import failure_of, success, warning
from acstor.cluster.ring.published_ring import read_ring
from acstor.origin import configured, mounts
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.origin.posix import PosixOrigin
from acstor.repository import repository
from acstor.repository.dedup_scope import DedupScope

_DEADLINE = 5.0


@contextlib.contextmanager
def _opened(conf: cfg.ConfigOpts) -> Iterator[Origin]:
    origin = open_origin(configured.origin_url(conf), min(_DEADLINE, conf.origin.timeout))
    try:
        yield origin
    finally:
        origin.close()


def check_repository(conf: cfg.ConfigOpts) -> Result:
    """Check that the origin is reachable and that its repository is of this release's version."""
    try:
        with _opened(conf) as origin:
            found = repository.Repository.open(origin)
            needs_locks = origin.needs_locks
    except exception.UnsupportedError as error:
        return failure_of(error)
    except exception.AcstorError as error:
        return failure_of(type(error)(f"{configured.described(conf)}: {error}", hint=error.hint))
    what = (
        f"{configured.described(conf)}: format version {found.format.version}, chunks of "
        f"{found.chunk_size} bytes"
    )
    try:
        found.check_scopes_of(DedupScope(conf.repository.dedup_scope))
    except exception.UnsupportedError as error:
        return failure_of(error)
    if found.format.version < repository.FORMAT_VERSION:
        return warning(
            f"{what}; volumes need version {repository.VOLUMES_VERSION}, before version 3 a host "
            "that stops while it changes a ref of a directory keeps others from it, [repository] "
            f"dedup_scope needs version {repository.SCOPES_VERSION}, and images are stored "
            f"compressed from version {repository.COMPRESSED_VERSION} on, packs compacted from "
            f"version {repository.COMPACTION_VERSION} on, and disks have versions from version "
            f"{repository.VERSIONS_VERSION} on: when every machine runs this release, "
            "'acstor repository upgrade'"
        )
    if needs_locks:
        return warning(
            f"{what}; its refs are in the layout before, so an upgrade was ended in the midst: "
            "repeat 'acstor repository upgrade'"
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
    """Check that an origin on NFS is mounted as hosts need it that see what others wrote."""
    return _worst([_mount_of(url) for url in configured.store_urls(conf)])


def _mount_of(url: str) -> Result:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"posix", "file"}:
        return success(f"the origin is no mounted directory ({parts.scheme}:)")
    path = urllib.parse.unquote(parts.path)
    mount = mounts.find_mount(path)
    if mount is None:
        return warning(f"it cannot be told on which file system {path} is; look at {mounts.MOUNTS}")
    try:
        needs_locks = PosixOrigin(path).needs_locks
    except exception.AcstorError:
        needs_locks = False  # check_repository says that it is not there
    problems = mount.problems(needs_locks=needs_locks)
    if problems:
        return warning(f"{path} is on {mount.kind}, mounted {'; '.join(problems)}")
    return success(f"{path} is on {mount.kind}")


def check_access(conf: cfg.ConfigOpts) -> Result:
    """Check that no other user of this machine reaches an origin on a network file system.

    Where the server maps all users to one, as the installation guide has it, whoever gets to the
    mount may change every image and volume.
    """
    return _worst([_access_of(url) for url in configured.store_urls(conf)])


def _access_of(url: str) -> Result:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"posix", "file"}:
        return success(f"the origin is no mounted directory ({parts.scheme}:)")
    path = urllib.parse.unquote(parts.path)
    mount = mounts.find_mount(path)
    if mount is not None and mount.is_pending:
        return warning(f"{path} is mounted on demand, and that fails: who may enter is not known")
    if mount is None or not mount.is_network:
        return success(f"{path} is on no network file system: its owner and mode say who may enter")
    if mount.has_kerberos:
        return success(f"the server of {mount.point} tells users apart by Kerberos")
    for folder in _folders_above(mount.point):
        try:
            if not os.stat(folder).st_mode & stat.S_IXOTH:
                return success(f"{folder} lets in its owner and group only")
        except OSError as error:
            return warning(f"{folder}: {error.strerror}; run this as root")
    return warning(
        f"every user of this machine may enter {mount.point}, and where the server maps all users "
        "to one (all_squash), change images and volumes there: mount it below a directory of user "
        "and group acstor with mode 0750, as 'Origin' in the installation guide says"
    )


def _worst(results: list[Result]) -> Result:
    """Return the worst of the results of several stores, with what was seen of all of them."""
    worst = max(results, key=lambda one: one.code.value)
    return Result(worst.code, "; ".join(one.details or "" for one in results))


def _folders_above(path: str) -> Iterator[str]:
    """Yield the directories on the way to ``path``, the nearest first, without the root."""
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        yield folder
        folder = os.path.dirname(folder)

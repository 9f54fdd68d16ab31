"""Checks of what this host keeps and what runs on it: of the installed release, and safe."""

import grp
import os
import stat
import struct
import zlib

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception, version
from acstor.checks import accounts
from acstor.checks.accounts import NOVA_USERS, QEMU_USERS, is_member, present
from acstor.checks.verdict import failure, failure_of, success, warning
from acstor.control.client import AdminClient
from acstor.dataplane.groups import IMAGE_GROUP, image_group

STORE_VERSION = 1
"""Version of the chunk store (``crates/store``, format.rs) that this release reads."""
SESSION_VERSION = 1
"""Version of the state of a FUSE session (``crates/fuse``) that this release takes over."""
_SESSION = struct.Struct("<8sI")
_SESSION_MAGIC = b"ACFUSESN"
_SUPERBLOCK = struct.Struct("<8sII44xI")
_SUPERBLOCK_MAGIC = b"ACSTSLOT"
_CRC_RANGE = 60
_CALL_TIMEOUT = 5.0
NOT_COMPUTE = "not a compute host: no chunk store, no data plane, image links are off"


def is_compute_host(conf: cfg.ConfigOpts) -> bool:
    """Return whether a data plane runs here, has run here, or is configured to serve Nova."""
    return (
        os.path.exists(conf.store.path)
        or os.path.exists(conf.dataplane.admin_socket)
        or bool(conf.image_links.enabled)
    )


def check_extension(_: cfg.ConfigOpts) -> Result:
    """Check that the extension module is there, and made for this Python."""
    try:
        from acstor import native
    except ImportError as error:
        return failure(
            f"acstor._dataplane cannot be loaded: {error}; install a wheel that was built for "
            "this Python and this processor"
        )
    return success(f"release {version.release()}, digest of nothing {native.digest(b'').hex()}")


def check_chunk_store(conf: cfg.ConfigOpts) -> Result:
    """Check that the chunk store of this host is of a version that this release reads."""
    path = os.path.join(conf.store.path, "superblock")
    try:
        with open(path, "rb") as file:
            head = file.read(_SUPERBLOCK.size)
    except FileNotFoundError:
        return success(f"{conf.store.path} holds none; the data plane makes it at its first start")
    except OSError as error:
        return failure(f"{path}: {error.strerror}; run this as root")
    if len(head) < _SUPERBLOCK.size or head[: len(_SUPERBLOCK_MAGIC)] != _SUPERBLOCK_MAGIC:
        return warning(f"{path} is damaged; the data plane writes it anew, no chunk is lost")
    _, found, chunk_size, crc = _SUPERBLOCK.unpack(head)
    if crc != zlib.crc32(head[:_CRC_RANGE]):
        return warning(f"{path} is damaged; the data plane writes it anew, no chunk is lost")
    if found != STORE_VERSION:
        return failure(
            f"{path} has version {found}, this release reads {STORE_VERSION}: install the release "
            "that made it, or remove the directory (it is a cache: nothing is lost but time)"
        )
    return success(f"version {found}, chunks of {chunk_size} bytes")


def check_take_over(conf: cfg.ConfigOpts) -> Result:
    """Check that a new data plane can take the mount over from the one that runs."""
    path = os.path.join(conf.state_path, "dataplane", "fuse-session")
    try:
        with open(path, "rb") as file:
            head = file.read(_SESSION.size)
    except FileNotFoundError:
        return success("there is no session of a data plane before")
    except OSError as error:
        return failure(f"{path}: {error.strerror}; run this as root")
    magic, found = _SESSION.unpack(head) if len(head) == _SESSION.size else (b"", 0)
    if magic != _SESSION_MAGIC:
        return failure(
            f"{path} is damaged: the next data plane would not take the mount over; migrate the "
            "guests away, then stop the data plane, remove the file and start it"
        )
    if found != SESSION_VERSION:
        return failure(
            f"{path} has version {found}, this release takes over {SESSION_VERSION}: migrate the "
            "guests away before the data plane is restarted, or install a release between the two"
        )
    return success(f"session version {found}")


def check_directories(conf: cfg.ConfigOpts) -> Result:
    """Check that nobody else may write what this host keeps, and that Nova reaches the images."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    mount_parent = os.path.dirname(os.path.abspath(conf.dataplane.mount_point))
    private = [conf.state_path, os.path.join(conf.state_path, "dataplane"), conf.store.path]
    sockets = os.path.dirname(conf.dataplane.admin_socket)
    for path in [*private, sockets, mount_parent]:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue  # made at the first start
        except OSError as error:
            return failure(f"{path}: {error.strerror}; run this as root")
        owners = {0, os.geteuid()}
        if path not in {conf.state_path, mount_parent}:
            owners |= accounts.numbers(conf.dataplane.user)
        if found.st_uid not in owners or found.st_mode & stat.S_IWOTH:
            return failure(
                f"{path} (owner {found.st_uid}, mode {found.st_mode & 0o7777:04o}) can be written "
                f"by others, who could put other disks under guests; chown root {path}, "
                f"chmod o-w {path}"
            )
    closed = _closed_to_readers(mount_parent, image_group(conf.dataplane.image_group))
    if closed is not None:
        return failure(
            f"{closed} has no x for others: Nova and libvirt cannot reach the images below "
            f"{conf.dataplane.mount_point}; chmod o+x {closed}"
        )
    return success(f"{', '.join(private)}")


def _closed_to_readers(path: str, group: int | None) -> str | None:
    """Return the first directory on the way to ``path`` that readers of images may not pass.

    :param group: of them, by its number; None: they are in no group of their own.
    """
    parts = path.split(os.sep)
    for end in range(2, len(parts) + 1):
        folder = os.sep.join(parts[:end])
        try:
            found = os.stat(folder)
        except OSError:
            return None  # made at the first start, with mode 0755
        passing = stat.S_IXGRP if found.st_gid == group else stat.S_IXOTH
        if not found.st_mode & passing:
            return folder
    return None


def check_image_access(conf: cfg.ConfigOpts) -> Result:
    """Check that the mount lets in libvirt and Nova, who are other users, and nobody else."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    if not conf.dataplane.allow_other:
        return failure(
            "[dataplane] allow_other = false: neither Nova nor QEMU can read images; set it to "
            "true and restart the data plane when no guest runs (the mount must be made anew)"
        )
    if not os.access("/dev/fuse", os.F_OK):
        return failure("there is no /dev/fuse; load the kernel module: modprobe fuse")
    group = image_group(conf.dataplane.image_group)
    if group is None:
        return warning(
            "every user of this host may read the images of all projects: 'groupadd -r "
            f"{IMAGE_GROUP}', 'usermod -aG {IMAGE_GROUP} USER' for the users of nova-compute and "
            "of QEMU, restart nova-compute, then acstor host restart-dataplane"
        )
    outside = [user for user in present((*NOVA_USERS, *QEMU_USERS)) if not is_member(user, group)]
    if outside:
        return failure(
            f"{', '.join(outside)} cannot read images: not in group {_group_name(group)} "
            f"([dataplane] image_group); usermod -aG {_group_name(group)} {outside[0]}, then "
            "restart its services"
        )
    return success(f"group {_group_name(group)} reads the images; /dev/fuse is there")


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def check_data_plane(conf: cfg.ConfigOpts) -> Result:
    """Check that the running data plane is of the installed release and serves."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    client = AdminClient(conf.dataplane.admin_socket, timeout=_CALL_TIMEOUT)
    try:
        status = client.call("status")
    except exception.UnavailableError as error:
        return warning(f"{error}; start it: systemctl start acstor-dataplane")
    except exception.AcstorError as error:
        return failure_of(error)
    running, installed = str(status["version"]), version.release()
    if not status["fuse"]["connected"]:
        return failure(
            f"the file system at {status['mount_point']} is gone; acstor host restart-dataplane "
            "mounts anew, then restart the guests that had disks open on it"
        )
    if running != installed:
        return warning(
            f"release {running} runs, {installed} is installed; acstor host restart-dataplane "
            "replaces it under running guests"
        )
    return success(f"release {running}, process {status['pid']}, {status['process_state']}")

"""Gives the data plane's user what a data plane wrote that was root, and makes what is missing.

Run as root before a start. The user may put anything into his directories, so it goes through no
link, and leaves what has another name somewhere, and what is neither root's nor his. Directories
come after what is in them, so that an interrupted run is simply repeated.
"""

import logging
import os
import pwd
import stat

from oslo_config import cfg

from acstor import exception
from acstor.mounting import safe_path

LOG = logging.getLogger(__name__)

RUNTIME_DIRECTORY = "/run/acstor"
"""Of the sockets, unless the operator has others: those he cares for himself."""
GIVEN = "state-given"
"""Name of the file whose time says when the state was last given."""
GIVEN_BY_DEFAULT = f"/run/acstor-mount/{GIVEN}"
"""File for which the unit of the data plane looks."""
_ROOT = 0
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def give_state(conf: cfg.ConfigOpts, runtime_directory: str = RUNTIME_DIRECTORY) -> None:
    """Give ``[dataplane] user`` the directories of the data plane that are root's.

    A file beside the socket of acstor-mount, :data:`GIVEN`, says when that was done: the unit of
    the data plane, for whose start guests wait, looks at it first.

    :param runtime_directory: of the sockets; what is in it is not looked at.
    :raises ConfigurationError: when there is no such user.
    :raises OSError: when one cannot be made or given.
    """
    name = conf.dataplane.user
    try:
        account = pwd.getpwnam(name)
    except KeyError as error:
        raise exception.ConfigurationError(
            f"[dataplane] user = {name!r} is no user of this host",
            hint="make it (systemd-sysusers), or name the user who runs the data plane",
        ) from error
    owner = _Owner(account.pw_uid, account.pw_gid, os.path.abspath(conf.dataplane.mount_point))
    # Stays root's: the mount point is in it, which must not be moved.
    os.makedirs(conf.state_path, mode=0o755, exist_ok=True)
    if os.path.dirname(conf.dataplane.admin_socket) == runtime_directory:
        _make(runtime_directory, 0o755)
        owner.give_directory(runtime_directory)
    supervision = os.path.dirname(conf.dataplane.holder_socket)
    if os.path.dirname(supervision) == runtime_directory and os.path.isdir(supervision):
        owner.give_directory(supervision)  # a holder of root's left its socket in it
    # Where a release before kept it, see LogDirectory.
    identity = os.path.join(conf.state_path, "volumes-identity.json")
    if os.path.exists(identity):
        owner.give_tree(identity)
    for path in (
        os.path.join(conf.state_path, "dataplane"),
        conf.store.path,
        conf.volumes.directory,
        conf.volumes.socket_directory,
    ):
        _make(path, 0o700)
        owner.give_tree(path)
    given = os.path.join(os.path.dirname(conf.dataplane.mount_socket), GIVEN)
    _make(os.path.dirname(given), 0o755)
    os.close(os.open(given, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    os.utime(given, follow_symlinks=False)


def _make(path: str, mode: int) -> None:
    """Make a directory, and those above, through no link but root's."""
    if os.path.lexists(path):
        return
    above = os.path.dirname(path)
    _make(above, 0o755)
    parent = safe_path.open_place(above)
    try:
        os.mkdir(os.path.basename(path), mode, dir_fd=parent)
    finally:
        os.close(parent)


class _Owner:
    """Owner that things are given to.

    :param mount_point: which is never looked at: its server may not run.
    """

    def __init__(self, uid: int, gid: int, mount_point: str) -> None:
        self._uid = uid
        self._gid = gid
        self._mount_point = mount_point
        self._count = 0

    def give_directory(self, path: str) -> None:
        """Give a directory without what is in it."""
        place = os.open(path, _PLACE)
        try:
            self._give(place, os.fstat(place), path)
        finally:
            os.close(place)

    def give_tree(self, path: str) -> None:
        """Give a file, or a directory with what is in it on the same file system.

        Links on the way are root's, another disk for the store for instance, or it fails.
        """
        place = safe_path.open_place(path)
        self._count = 0
        try:
            status = os.fstat(place)
            if status.st_uid not in {_ROOT, self._uid}:
                LOG.warning(
                    "%s is of user %d, the data plane of %d", path, status.st_uid, self._uid
                )
                return
            self._give_with_content(place, status, path)
        finally:
            os.close(place)
        if self._count:
            LOG.info("gave user %d %s: %d files and directories", self._uid, path, self._count)

    def _give_with_content(self, place: int, status: os.stat_result, path: str) -> None:
        if stat.S_ISDIR(status.st_mode):
            folder = os.open(".", _DIRECTORY, dir_fd=place)
            try:
                for name in os.listdir(folder):
                    self._give_entry(folder, name, os.path.join(path, name), status.st_dev)
            finally:
                os.close(folder)
        self._give(place, status, path)

    def _give_entry(self, parent: int, name: str, path: str, device: int) -> None:
        if path == self._mount_point:
            return
        try:
            place = os.open(name, _PLACE, dir_fd=parent)
        except FileNotFoundError:
            return  # a process of the user is alive
        try:
            status = os.fstat(place)
            if status.st_uid in {_ROOT, self._uid} and status.st_dev == device:
                self._give_with_content(place, status, path)
        finally:
            os.close(place)

    def _give(self, place: int, status: os.stat_result, path: str) -> None:
        """Give what a descriptor stands for, whatever has its name by now."""
        if status.st_uid != _ROOT or stat.S_ISLNK(status.st_mode):
            return
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            LOG.warning("%s stays root's: it has other names", path)
            return
        # A group that something was given to (sockets for QEMU's) it keeps.
        group = self._gid if status.st_gid == _ROOT else -1
        os.chown(f"/proc/self/fd/{place}", self._uid, group)
        self._count += 1

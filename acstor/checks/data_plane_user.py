"""Checks of what the user of the data plane, who is not root, may do on this host."""

import os
import pwd
import stat

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.checks import accounts
from acstor.checks.host import NOT_COMPUTE, is_compute_host
from acstor.checks.verdict import failure, success, warning
from acstor.dataplane.groups import group_id
from acstor.mounting import safe_path


def check_data_plane_user(conf: cfg.ConfigOpts) -> Result:
    """Check that the data plane's user has what it needs, and that somebody mounts for it."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    if _is_root_s(conf.dataplane.admin_socket):
        return success("the data plane that runs is root: it mounts itself")
    name = conf.dataplane.user
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        return warning(f"there is no user {name} ([dataplane] user): run systemd-sysusers")
    for option in ("socket_group", "control_group"):
        number = group_id(conf.volumes[option], f"[volumes] {option}")
        if number is not None and not accounts.is_member(name, number):
            group = conf.volumes[option]
            return failure(
                f"{name} is not in group {group} ([volumes] {option}), so the data plane cannot "
                f"give it sockets; usermod -aG {group} {name}, then acstor host restart-dataplane"
            )
    key = conf.peer.key_file
    if conf.peer.tls_enabled and not _may_read(account, key):
        return failure(f"{name} cannot read {key} ([peer] key_file); chgrp {name}, chmod 0640")
    try:
        safe_path.require_root_alone(conf.dataplane.mount_point)
    except exception.InvalidError as error:
        return failure(f"acstor-mount would refuse: {error}; {error.hint}")
    except OSError:
        pass  # made at the first start
    if not os.path.exists(conf.dataplane.mount_socket):
        return warning("acstor-mount does not run: systemctl enable --now acstor-mount")
    return success(f"user {name}; acstor-mount listens at {conf.dataplane.mount_socket}")


def _is_root_s(path: str) -> bool:
    try:
        return os.stat(path).st_uid == 0
    except OSError:
        return False


def _may_read(account: pwd.struct_passwd, path: str) -> bool:
    """Return whether a user may read a file; a missing one is found by another check."""
    try:
        found = os.stat(path)
    except OSError:
        return True
    if found.st_uid == account.pw_uid:
        return bool(found.st_mode & stat.S_IRUSR)
    if accounts.is_member(account.pw_name, found.st_gid):
        return bool(found.st_mode & stat.S_IRGRP)
    return bool(found.st_mode & stat.S_IROTH)

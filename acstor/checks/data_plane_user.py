"""Checks of what the user of the data plane, who is not root, may do on this host."""

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception, identity
from acstor.checks import accounts
from acstor.checks.host import NOT_COMPUTE, is_compute_host
from acstor.checks.verdict import failure, success, warning
from acstor.conf import config_files, opts
from acstor.dataplane.groups import group_id
from acstor.mounting import mount_point, safe_path
from acstor.origin import configured

_TEST_TIMEOUT = 10.0
"""Seconds for one look as the user: the origin may be on a server."""
_CONNECT_TIMEOUT = 2.0
_ADDRESSES = ("transport_url", "backend_url")
"""Options whose value is an address, with a password in it or not."""


def check_data_plane_user(conf: cfg.ConfigOpts) -> Result:
    """Check that the data plane's user has what it needs, and that somebody mounts for it."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    name = conf.dataplane.user
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        account = None
    lacks = None if account is None else next(_lacks(conf, account), None)
    if _is_root_s(conf.dataplane.admin_socket):
        running = "the data plane that runs is root: it mounts itself"
        return success(running if lacks is None else f"{running}; one of {name} fails: {lacks}")
    if account is None:
        return warning(f"there is no user {name} ([dataplane] user): run systemd-sysusers")
    if lacks is not None:
        return failure(lacks)
    if not _listens(conf.dataplane.mount_socket, socket.SOCK_SEQPACKET):
        return warning("acstor-mount does not run: systemctl enable --now acstor-mount")
    # A registrar on the same machine is the same user, and needs them.
    if not identity.is_configured(conf) and (shown := _secrets_shown(conf, account)):
        return warning(
            f"{name} reads {', '.join(shown)}, as whoever takes it over would; put such "
            f"lines into {_secrets_path(conf)}, owner root, mode 0600, and restart acstor-agent"
        )
    return success(f"user {name}; acstor-mount listens at {conf.dataplane.mount_socket}")


def _secrets_shown(conf: cfg.ConfigOpts, account: pwd.struct_passwd) -> list[str]:
    """Return the passwords, none of which a data plane needs, in files that its user reads."""
    written = {
        (group, name)
        for path in conf.config_file or []
        if _may(account, "-r", path)
        for group, names in config_files.written(path).items()
        for name, values in names.items()
        if _is_secret(group, name, values)
    }
    return [f"[{group}] {name}" for group, name in sorted(written)]


def _is_secret(group: str, name: str, values: Sequence[str]) -> bool:
    """Return whether an option tells a password, by its declaration or as part of an address.

    Keystone's is not looked for: a registrar, where one runs on the same machine, is the same user.
    """
    if name in _ADDRESSES:
        return any(urlsplit(part).password for value in values for part in value.split(","))
    declared = [option for of, options in opts.list_opts() if of == group for option in options]
    return any(option.secret and option.dest == name for option in declared)


def _secrets_path(conf: cfg.ConfigOpts) -> str:
    files = [path for path in conf.config_file or [] if not config_files.is_secrets_file(path)]
    return config_files.secrets_files(files or [config_files.DEFAULT_FILE])[0]


def _lacks(conf: cfg.ConfigOpts, account: pwd.struct_passwd) -> Iterator[str]:
    """Yield what the user lacks, with what to do."""
    yield from _groups_lacking(conf, account.pw_name)
    yield from _files_closed(conf, account)
    yield from _directories_closed(conf, account)
    try:
        safe_path.require_root_alone(conf.dataplane.mount_point)
        if not mount_point.is_mounted(conf.dataplane.mount_point):
            safe_path.require_directory_of_root(conf.dataplane.mount_point)
    except exception.InvalidError as error:
        yield f"acstor-mount would refuse: {error}; {error.hint}"
    except OSError:
        pass  # made at the first start


def _groups_lacking(conf: cfg.ConfigOpts, name: str) -> Iterator[str]:
    for option in ("socket_group", "control_group"):
        group = conf.volumes[option]
        number = group_id(group, f"[volumes] {option}")
        if number is not None and not accounts.is_member(name, number):
            yield (
                f"{name} is not in group {group} ([volumes] {option}), so the data plane cannot "
                f"give it sockets; usermod -aG {group} {name}, then acstor host restart-dataplane"
            )


def _files_closed(conf: cfg.ConfigOpts, account: pwd.struct_passwd) -> Iterator[str]:
    for path in conf.config_file or []:
        if not config_files.is_secrets_file(path) and not _may(account, "-r", path):
            yield f"{account.pw_name} cannot read {path}; chgrp {account.pw_name}, chmod 0640"
    if not conf.peer.tls_enabled:
        return
    for option in ("key_file", "cert_file", "ca_file", "crl_file"):
        path = conf.peer[option]
        if path and os.path.exists(path) and not _may(account, "-r", path):
            yield (
                f"{account.pw_name} cannot read {path} ([peer] {option}); chgrp "
                f"{account.pw_name}, chmod 0640, and x on the directories above"
            )


def _directories_closed(conf: cfg.ConfigOpts, account: pwd.struct_passwd) -> Iterator[str]:
    name = account.pw_name
    for url in configured.store_urls(conf):
        origin = urlsplit(url)
        path = unquote(origin.path)
        if origin.scheme in {"posix", "file"} and not _may(account, "-w", path):
            yield f"{name} cannot write to the origin {path}; mount it, or chown -R {name} it"
    for path in (conf.store.path, conf.volumes.directory):
        above = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(above) and not _may(account, "-x", above):
            yield f"{name} cannot get to {path}; chmod o+x the directories above"


def _is_root_s(path: str) -> bool:
    """Return whether root listens at a socket: what one left that is gone says nothing."""
    try:
        return os.stat(path).st_uid == 0 and _listens(path, socket.SOCK_STREAM)
    except OSError:
        return False


def _listens(path: str, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(_CONNECT_TIMEOUT)
        try:
            connection.connect(path)
        except (BlockingIOError, TimeoutError):
            return True  # many others are before this one
        except OSError:
            return False
        return True


def _may(account: pwd.struct_passwd, how: str, path: str) -> bool:
    """Return whether the user may do something, as test(1) says when he asks.

    Who may not become him is told that he may: another check says to run this as root.
    """
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    try:
        done = subprocess.run(
            ["/usr/bin/test", how, path],
            user=account.pw_uid, group=account.pw_gid, extra_groups=groups,
            check=False, timeout=_TEST_TIMEOUT, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode == 0

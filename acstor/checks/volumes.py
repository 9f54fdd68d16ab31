"""Checks of what volumes need on a compute host: libvirt, Nova's configuration, groups.

They say nothing against a host whose nova.conf does not name the driver: it has no volumes.
"""

import grp

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor.checks import nova, platform
from acstor.checks.accounts import CINDER_USERS, NOVA_USERS, QEMU_USERS, is_member, present
from acstor.checks.host import NOT_COMPUTE, is_compute_host
from acstor.checks.verdict import failure, success, warning

LIBVIRT_MIN = (9, 2)
"""The first libvirt that hands ``<reconnect delay>`` of an NBD disk to QEMU."""
_DRIVER = "acstor"
_UNUSED = "Nova on this machine does not load the driver: no volumes"


def check_libvirt(conf: cfg.ConfigOpts) -> Result:
    """Check that libvirt lets guests with volumes outlive a restart of the data plane."""
    if (unused := _unused(conf)) is not None:
        return success(unused)
    found = platform.versions(platform.LIBVIRT_PROGRAMS)
    if not found:
        return warning(
            f"none of {', '.join(platform.LIBVIRT_PROGRAMS)} is on the PATH; volumes need libvirt "
            "9.2 or newer, look yourself if it runs in a container"
        )
    for name, text in found.items():
        parsed = platform.parse_version(text)
        if parsed is None or parsed < LIBVIRT_MIN:
            return failure(
                f"{name} says {text!r}: guests with volumes see I/O errors when the data plane "
                "restarts, and volumes are not extended online; install libvirt 9.2 or newer (on "
                "Debian 12 from backports)"
            )
    return success("; ".join(found.values()))


def check_access(conf: cfg.ConfigOpts) -> Result:
    """Check that the services' users are in the groups of the sockets, and QEMU's in one only."""
    if (unused := _unused(conf)) is not None:
        return success(unused)
    control, nbd = conf.volumes.control_group, conf.volumes.socket_group
    problems = [
        *_missing("control_group", control, (*NOVA_USERS, *CINDER_USERS)),
        *_missing("socket_group", nbd, (*QEMU_USERS, *CINDER_USERS)),
    ]
    if problems:
        return failure("; ".join(problems))
    for user in QEMU_USERS:
        if control is not None and _is_member(user, control):
            return warning(
                f"user {user} is in {control} ([volumes] control_group): whoever breaks out of a "
                "guest can open and close volumes of this host; use two groups"
            )
    return success(f"[volumes] control_group = {control}, socket_group = {nbd}")


def _unused(conf: cfg.ConfigOpts) -> str | None:
    """Return why the host has no volumes; None when it may have some."""
    if not is_compute_host(conf):
        return NOT_COMPUTE
    if not conf.volumes.enabled:
        return "[volumes] enabled = false"
    options: list[cfg.Opt] = [cfg.MultiStrOpt("driver", default=[])]
    settings = nova.read_options(conf, options, "oslo_messaging_notifications")
    if settings is None or _DRIVER not in settings.oslo_messaging_notifications.driver:
        return _UNUSED
    return None


def _missing(option: str, group: str | None, users: tuple[str, ...]) -> list[str]:
    """Return what is wrong with the group of one option, for each user of this host."""
    here = present(users)
    if not here:
        return []  # the services run as root here, or in containers
    if group is None:
        return [f"[volumes] {option} is not set: {', '.join(here)} cannot use volumes"]
    try:
        grp.getgrnam(group)
    except KeyError:
        return [f"[volumes] {option} = {group} is no group of this host; groupadd -r {group}"]
    return [
        f"user {user} is not in group {group} ([volumes] {option}); usermod -aG {group} {user}, "
        "then restart its services"
        for user in here
        if not _is_member(user, group)
    ]


def _is_member(user: str, group: str) -> bool:
    try:
        return is_member(user, grp.getgrnam(group).gr_gid)
    except KeyError:
        return False

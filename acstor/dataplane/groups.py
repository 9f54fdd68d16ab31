"""Groups of this host that may use a socket, or read images."""

import grp
import logging

from acstor import exception

LOG = logging.getLogger(__name__)

IMAGE_GROUP = "acstor-images"
"""Reads images where no other group is configured and this one has members (sysusers.d)."""
GROUP_NUMBER_MAX = (1 << 32) - 2
"""The highest number of a group; the one above stands for none (chown(2))."""


def group_id(name: str | None, option: str) -> int | None:
    """Return the number of a group; None without a name.

    :param option: where the name comes from, for the error.
    :raises ConfigurationError: when there is no such group.
    """
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise exception.ConfigurationError(
            f"{option} = {name!r} is no group of this host",
            hint="name an existing group, or unset the option",
        ) from error


def image_group(configured: str | None) -> int | None:
    """Return the number of the group that reads images; None: every user of this host does.

    Without a configured group this is :data:`IMAGE_GROUP` once it has members. A host that is
    upgraded has the group before anybody is in it: closed then, its guests could not be started.

    :param configured: ``[dataplane] image_group``: a name or number; empty: every user.
    :raises ConfigurationError: when a group is configured and not there.
    """
    if configured is None:
        try:
            found = grp.getgrnam(IMAGE_GROUP)
        except KeyError:
            return None
        return found.gr_gid if found.gr_mem else None
    if not configured:
        return None
    if configured.isdecimal() and configured.isascii():
        number = int(configured)
        if number <= GROUP_NUMBER_MAX:
            return number
    return group_id(configured, "[dataplane] image_group")


def reported_image_group(configured: str | None) -> int | None:
    """Return the same, and say in the log what is open to every user of this host.

    :raises ConfigurationError: as :func:`image_group`.
    """
    number = image_group(configured)
    if number is None:
        LOG.warning(
            "every user of this host may read all images: add the users of nova-compute and of "
            "QEMU to a group and name it in [dataplane] image_group (%s needs no naming)",
            IMAGE_GROUP,
        )
    return number

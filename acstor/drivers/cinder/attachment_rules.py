"""Attachment rules: one host per volume, and a second one during a live migration.

Only one host writes a volume: its log has one end. So an attachment on a second host is refused,
with one exception: while Nova migrates an instance it attaches the volume at the destination
before it detaches it at the source, and both attachments then are of the same instance.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acstor import exception


class Access(enum.Enum):
    """Access of a host to a volume."""

    OWNER = "owner"
    """It writes."""
    STANDBY = "standby"
    """It takes over when the owner lets go."""


@dataclass(frozen=True)
class Attached:
    """One attachment as Cinder knows it."""

    id: str
    instance: str | None
    """UUID of the instance; None: the volume is attached to a host, or not yet to anything."""
    host: str | None
    """Name of the data plane's host; None: where it will be is not known yet."""


@dataclass(frozen=True)
class Present:
    """Attachments as the record of the volume has them."""

    hosts: tuple[str, ...]
    """Hosts that may open it."""
    owner: str | None
    is_standby_allowed: bool


def access_of(
    volume: str, host: str, present: Present, attachments: Sequence[Attached], is_multiattach: bool
) -> Access:
    """Return what ``host`` becomes.

    :param attachments: all of the volume that are not detached, the new one among them.
    :raises ConflictError: when the attachment must be refused.
    """
    others = [name for name in present.hosts if name != host]
    if not others:
        return Access.OWNER
    if host in present.hosts:  # asked again
        return Access.STANDBY if present.owner in others else Access.OWNER
    if len(others) == 1 and _is_migration(others[0], attachments):
        return Access.STANDBY
    where = ", ".join(others)
    if is_multiattach:
        raise exception.ConflictError(
            f"volume {volume} is attached on host {where}; a volume of ACStor can be attached to "
            f"several instances of one host only, not on host {host} too",
            hint="put the instance on that host, or detach the volume there first",
        )
    raise exception.ConflictError(
        f"volume {volume} is attached on host {where} and cannot be attached on {host} too",
        hint="detach it there first; where that host is lost, evacuate its instances or delete "
        "the attachment",
    )


def is_shared(host: str, attachments: Iterable[Attached]) -> bool:
    """Return whether more than one attachment uses the volume on ``host``."""
    return sum(attachment.host == host for attachment in attachments) > 1


def _is_migration(source: str, attachments: Sequence[Attached]) -> bool:
    """Return whether the only instance that has the volume is on its way from ``source``."""
    instances = {attachment.instance for attachment in attachments}
    at_source = [attachment for attachment in attachments if attachment.host == source]
    return (
        len(instances) == 1
        and None not in instances
        and len(at_source) == 1
        and len(attachments) == 2
    )

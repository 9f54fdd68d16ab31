"""Outcomes of becoming the owner of a volume, and of looking who that is."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord


@dataclasses.dataclass(frozen=True)
class Sealed:
    """End of the log of an owner before."""

    last: int | None
    """Last log object that counts; None: none does."""
    seal: int
    """Sequence number of the seal."""


@dataclasses.dataclass(frozen=True)
class TakeOver:
    """A volume that its owner had not given back: what that one did not push is no part of it."""

    owner: str
    """The owner before; this host itself where its local log is gone."""
    content_at: float | None
    """Time at which the last of what it pushed was sent, seconds since 1970; None: not known."""


@dataclasses.dataclass(frozen=True)
class Acquired:
    """A volume that this host owns in a new epoch."""

    record: "VolumeRecord"
    is_closed_log_current: bool = False
    """True if nobody owned it since this host closed it."""
    take_over: TakeOver | None = None


@dataclasses.dataclass(frozen=True)
class OwnerCheck:
    """Answer of a volume's record to a host that asks whether it is the owner."""

    epoch: int
    """The one that was asked about."""
    record: "VolumeRecord | None"
    """None: this host does not own the volume in that epoch."""


Seal = Callable[[str, int, int, str | None], Sealed]
"""Seals a volume's epoch from a sequence number on, in its member of the origin."""

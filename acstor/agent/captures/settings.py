"""Settings of a host's captures, and the orders that follow from them."""

import dataclasses

from acstor.agent.captures.orders import (
    CommitOrder,
    HeldCapture,
    OriginOrder,
    ReadLimits,
    ReadOrder,
)
from acstor.agent.captures.pins import Pin
from acstor.versions.delayed_commit import Bounds
from acstor.versions.host_capture.request import CaptureRequest


@dataclasses.dataclass(frozen=True)
class CaptureSettings:
    """Settings of a host's captures; see ``[captures]``."""

    origin: OriginOrder
    libvirt_uri: str
    uses_monitor: bool
    scratch_path: str
    scratch_max: int
    jobs: int
    read_rate: int
    write_rate: int
    capacity: int
    reserve_percent: float
    nice: int
    bounds: Bounds
    """Of what is held back to be compared."""
    hold_seconds: float
    """Longest time that a capture waits for the origin."""
    keep_ended: float
    """Seconds after which one that has ended is forgotten, whoever asked for it."""
    pack_size: int
    workers: int
    known_chunks_max: int
    origin_reserve_percent: int

    def read_order(
        self, request: CaptureRequest, folder: str, held_bytes: int, pin: Pin | None
    ) -> ReadOrder:
        """Return the order to read the disks of a request.

        :param held_bytes: that the host holds of other captures.
        :param pin: to read; None: the disks themselves are read.
        """
        return ReadOrder(
            origin=self.origin,
            request=request,
            folder=folder,
            limits=ReadLimits(
                # A share of what all of them may take together, whatever the others do.
                self.read_rate // self.jobs,
                self.write_rate // self.jobs,
                max(0, self.capacity - held_bytes) // self.jobs,
                self.reserve_percent,
                self.scratch_max,
            ),
            libvirt_uri=self.libvirt_uri,
            uses_monitor=self.uses_monitor,
            scratch_path=self.scratch_path,
            nice=self.nice,
            pinned=None if pin is None else pin.guest,
            pinned_at=None if pin is None else pin.pinned_at,
        )

    def commit_order(self, captures: tuple[HeldCapture, ...]) -> CommitOrder:
        """Return the order to store captures."""
        return CommitOrder(
            self.origin,
            captures,
            self.pack_size,
            self.workers,
            self.known_chunks_max,
            self.origin_reserve_percent,
            self.nice,
        )

"""Hosts with volumes whose steps a test decides: no threads, no clock, answers that get lost."""

import enum
import functools
import pathlib
from collections.abc import Callable
from typing import cast

from acstor import exception
from acstor.dataplane.volumes.attachments import VolumeAttachments
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.ownership.outcomes import OwnerCheck
from acstor.dataplane.volumes.sockets import VolumeSockets
from acstor.dataplane.volumes.volumes import Volumes
from acstor.native import DataPlane
from acstor.origin import base
from acstor.origin.faulty import Answer, Fault, FaultyOrigin
from acstor.supervision.supervisor import Supervisor
from testbed.doubles.memory_volumes import MemoryVolume, MemoryVolumes
from tests.unit.dataplane.volume_hosts import VOLUME


class Killed(BaseException):
    """The process ends here, after the call took effect."""


class Loss(enum.Enum):
    """Effect on a host of a call whose answer is lost."""

    ONCE = "once"
    """The next call is answered."""
    AWAY = "away"
    """The origin stays away."""
    KILLED = "killed"
    """The process ends, too."""
    KILLED_AND_AWAY = "killed and away"
    """The process ends, and the next one finds no origin at first."""


class LosingOrigin(FaultyOrigin):
    """Loses the answer of the call number ``lose_at``, which takes effect."""

    def __init__(self, inner: base.Origin) -> None:
        super().__init__(inner)
        self.count = 0
        self.lose_at = 0
        self.loss = Loss.ONCE
        self.is_away = False

    def arm(self, lose_at: int, loss: Loss) -> None:
        """Lose the answer of one of the calls from now on; 1: of the first."""
        self.count, self.lose_at, self.loss = 0, lose_at, loss

    def disarm(self) -> bool:
        """Lose nothing more; return whether something was lost."""
        was_lost = 0 < self.lose_at <= self.count
        self.lose_at, self.is_away = 0, False
        return was_lost

    def _before(self, operation: object, name: str) -> Fault | None:
        if self.is_away:
            raise exception.UnavailableError(f"the origin is away: {operation} of {name}")
        return None

    def _after(self, fault: Fault | None, name: str, answer: Answer) -> Answer:  # type: ignore[override]
        self.count += 1
        if self.count != self.lose_at:
            return answer
        if self.loss in {Loss.KILLED, Loss.KILLED_AND_AWAY}:
            self.is_away = self.loss is Loss.KILLED_AND_AWAY
            raise Killed
        self.is_away = self.loss is Loss.AWAY
        raise exception.UnavailableError(f"the answer about {name} was lost")


class SteppedHost:
    """One host; its processes follow each other on the same files."""

    def __init__(self, name: str, origin: base.Origin, directory: pathlib.Path) -> None:
        self.name = name
        self.origin = LosingOrigin(origin)
        self._directory = directory
        self.start()

    def start(self) -> None:
        """Begin a process, after whatever the one before has left."""
        self.runtime = MemoryVolumes()
        self.volumes = Volumes(
            host=self.name,
            access=OriginAccess(lambda: self.origin),
            is_enabled=True,
            runtime=lambda: cast("DataPlane", self.runtime),
            files=VolumeFiles(str(self._directory / "volumes")),
            place=LogDirectory(str(self._directory / "volumes"), str(self._directory / "identity")),
            sockets=VolumeSockets(
                str(self._directory / "nbd"),
                None,
                VolumeAttachments(str(self._directory / "volumes" / "attachments")),
            ),
            supervisor=Supervisor(None),
        )
        self.volumes.resuming.restore({})

    @property
    def device(self) -> MemoryVolume | None:
        """The volume as its guest sees it, if it is known here."""
        return self.runtime.volumes.get(VOLUME)

    @property
    def is_served(self) -> bool:
        """True if a guest's write would be acknowledged."""
        return self.device is not None and self.device.state == "open"

    @property
    def is_standby(self) -> bool:
        """True if a guest's request waits."""
        return self.device is not None and self.device.state == "standby"

    def attempt(self, action: Callable[[], object]) -> bool:
        """Do something that may fail, and end the process if it is killed in it."""
        try:
            action()
        except exception.AcstorError:
            return False
        except Killed:
            self.start()
            return False
        return True

    def step(self) -> None:
        """Do what goes on by itself, once: see :mod:`acstor.dataplane.volumes.reconciler`."""
        volumes = self.volumes
        volumes.observer.observe()
        to_resume, unchecked = volumes.table.unsettled()
        for volume in to_resume:
            volumes.resuming.resume(volume, self._check_owner(volume))
        for volume in unchecked:
            self.attempt(functools.partial(self._check, volume))
        for volume in volumes.table.served():
            self.attempt(functools.partial(volumes.watching.watch, volume))

    def _check(self, volume: str) -> None:
        self.volumes.checks.check(volume)

    def _check_owner(self, volume: str) -> OwnerCheck | None:
        try:
            return self.volumes.mending.check_owner(volume)
        except exception.AcstorError:
            return None

    def fetch(self, other: "SteppedHost") -> None:
        """Have a guest's request wait here until this host owns the volume."""
        assert self.device is not None
        self.device.is_wanted = True

        def wait(seconds: float) -> None:
            other.step()

        assert self.volumes.fetching.fetch(VOLUME, wait)

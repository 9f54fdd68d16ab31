"""Hosts that fight for one volume, stepped through the origin one call at a time.

What runs is the hosts' own code (:mod:`acstor.dataplane`, :mod:`acstor.repository.volumes`) on
files of its own; the origin is in memory and misbehaves, the data path is
:class:`testbed.doubles.memory_volumes.MemoryVolumes`. Each host does one thing at a time, guests
write whenever they are served, and all hosts' calls interleave as a seed decides.
"""

import contextlib
import enum
import functools
import logging
import pathlib
import random
from collections.abc import Callable

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Answer, Fault, FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.dataplane.stepped_hosts import SteppedHost
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME
from tests.unit.dataplane.write_history import HistoryError, WriteHistory
from tests.unit.repository import interleaving

LOG = logging.getLogger(__name__)

HOSTS = ("h1", "h2", "h3")
HEIR = "heir"
"""The host that opens the volume in the end."""
BURSTS = (1, 1, 1, 2, 3, 8, 30, 200)
"""Calls in a row of one host; the longest is all that it does."""
CALLS_MAX = 2_000
"""Most calls of a run: more than anything needs."""
_FETCH_LOOKS_MAX = 6
"""Looks at the record after which a standby's request is left alone for a while."""


class GaveUpError(BaseException):
    """Ends a wait for another host; the thread would go on, and is begun anew later."""


class Effect(enum.Enum):
    """Fault of a call of the origin."""

    FAILED = "failed"
    """It has no effect, and fails."""
    LOST = "lost"
    """It takes effect, and the answer is lost."""
    KILLED = "killed"
    """It takes effect, and the process is killed before it hears of that."""
    LATE = "late"
    """It hangs until its caller gives up, and takes effect later. Of calls that change nothing, and
    of those that only add an object, it is no more than a failure."""


class UnreliableOrigin(FaultyOrigin):
    """An origin as one host sees it: it waits for its turn, fails, or its answers get lost."""

    def __init__(self, inner: base.Origin, choice: random.Random) -> None:
        super().__init__(inner)
        self._choice = choice
        self._calls_left = 0
        self._armed: Effect | None = None
        self._effect: Effect | None = None
        self.actor: interleaving.Actor | None = None
        self.rates: dict[Effect, float] = {}
        """Shares of the calls to which something happens."""
        self.is_away = False
        self.is_killed = False
        self.late: list[Callable[[], object]] = []
        """Requests that are under way still."""

    @property
    def is_armed(self) -> bool:
        """True if something is going to happen to one call."""
        return self._armed is not None

    def arm(self, calls: int, effect: Effect) -> None:
        """Have something happen to one call; 1: to the next."""
        self._calls_left, self._armed = calls, effect

    def be_reliable(self) -> None:
        """Answer everything from now on."""
        self.rates, self.is_away, self._armed = {}, False, None

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref; or have it changed later, if it still is what the caller has seen then."""
        try:
            return super().swap_ref(name, expected, content)
        except exception.UnavailableError:
            if self._effect is Effect.LATE:
                inner = self._inner
                self.late.append(lambda: inner.swap_ref(name, expected, content))
            raise

    def deliver(self) -> None:
        """Have everything that is under way take its effect."""
        late, self.late = self.late, []
        for request in late:
            with contextlib.suppress(exception.ConflictError):
                request()

    def _before(self, operation: object, name: str) -> Fault | None:
        if self.actor is not None:
            self.actor.pause()
        self._effect = self._drawn()
        if self.is_away or self._effect in {Effect.FAILED, Effect.LATE}:
            raise exception.UnavailableError(f"the origin is away: {operation} of {name}")
        return None

    def _drawn(self) -> Effect | None:
        for effect, rate in self.rates.items():
            if self._choice.random() < rate:
                return effect
        self._calls_left -= 1
        if self._calls_left == 0:
            armed, self._armed = self._armed, None
            return armed
        return None

    def _after(self, fault: Fault | None, name: str, answer: Answer) -> Answer:  # type: ignore[override]
        if self._effect is Effect.KILLED:
            self.is_killed = True
            raise interleaving.Killed
        if self._effect is Effect.LOST:
            raise exception.UnavailableError(f"the answer about {name} was lost")
        return answer


class ModelHost(SteppedHost):
    """A host that does one thing at a time."""

    def __init__(
        self, name: str, origin: base.Origin, directory: pathlib.Path, choice: random.Random
    ) -> None:
        self.faults = UnreliableOrigin(origin, choice)
        super().__init__(name, self.faults, directory)
        self.actor: interleaving.Actor | None = None
        self.doing = ""
        self.began_at = 0
        self.was_serving: object = None

    def begin(self, doing: str, action: Callable[[], object], tick: int) -> None:
        """Begin something; it runs until its first call of the origin."""
        self.doing, self.began_at = doing, tick

        def run(_: base.Origin) -> bool:
            try:
                action()
            except exception.InternalError:
                raise
            except (exception.AcstorError, GaveUpError) as error:
                LOG.debug("%s of %s: %s", doing, self.name, error)
                return False
            return True

        self.actor = self.faults.actor = interleaving.Actor(self.name, run, MemoryOrigin())

    def go_on(self, calls: int) -> bool:
        """Make up to so many calls; return whether what was begun is done."""
        assert self.actor is not None
        for _ in range(calls):
            if self.actor.is_done:
                break
            self.actor.step()
        return self.actor.is_done

    def end(self) -> interleaving.Actor:
        """Forget what is done; a process that was killed in it is followed by another."""
        actor, self.actor, self.faults.actor = self.actor, None, None
        assert actor is not None
        if actor.error is not None:
            raise HistoryError(f"{self.doing} of {self.name}: {actor.error!r}") from actor.error
        if self.faults.is_killed:
            self.restart()
        return actor

    def kill(self) -> None:
        """Kill the process between two calls, and start another one."""
        if self.actor is not None:
            if not self.actor.is_done:
                self.actor.kill()
            self.actor = self.faults.actor = None
        self.restart()

    def restart(self) -> None:
        """Start a process on what the one before has left."""
        self.faults.is_killed = False
        self.was_serving = None
        self.start()

    def fetch_for_a_while(self) -> None:
        """Have a guest's request wait here until this host owns the volume, or for some looks."""
        device = self.device
        if device is None or device.state != "standby":
            return
        device.is_wanted = True
        looks = 0

        def wait(seconds: float) -> None:
            nonlocal looks
            looks += 1
            if looks == _FETCH_LOOKS_MAX:
                raise GaveUpError

        self.volumes.fetching.fetch(VOLUME, wait)


class OwnershipModel:
    """One volume, its hosts, and the history of what their guests were told.

    :param directory: for the hosts' files.
    :param choice: decides everything that happens.
    """

    def __init__(self, directory: pathlib.Path, choice: random.Random) -> None:
        self.choice = choice
        self.origin = MemoryOrigin()
        self.repository = Repository.init(self.origin)
        self.store = VolumeStore(self.repository, wait=lambda seconds: None)
        self.store.create(NewVolume(VOLUME, SIZE))
        self.store.allow_host(VOLUME, HOSTS[0])
        self.hosts = {
            name: ModelHost(name, self.origin, directory / name, choice) for name in (*HOSTS, HEIR)
        }
        self.history = WriteHistory()
        self.lost_at: dict[int, int] = {}
        """Epoch -> when its host was declared lost, in ticks."""
        self.tick = 0
        self._collections = 0.0

    @property
    def record(self) -> VolumeRecord:
        """The volume's record as it is."""
        return self.store.get(VOLUME).record

    # What may happen

    def begin(self, host: ModelHost, doing: str) -> None:
        """Have a host begin something."""
        volumes = host.volumes
        actions: dict[str, Callable[[], object]] = {
            "open": functools.partial(volumes.opening.open, VOLUME, "owner"),
            "follow": functools.partial(volumes.opening.open, VOLUME, "standby"),
            "close": functools.partial(volumes.closing.close, VOLUME, force=True),
            "push": functools.partial(volumes.pushes.push, VOLUME),
            "fold": functools.partial(volumes.folds.fold, VOLUME),
            "fetch": host.fetch_for_a_while,
            "reconcile": host.step,
        }
        host.begin(doing, actions[doing], self.tick)
        self.go_on(host, 0)

    def go_on(self, host: ModelHost, calls: int) -> None:
        """Let a host make some calls; look at everything after each."""
        for _ in range(max(1, calls)):
            is_done = host.go_on(min(1, calls))
            self.observe()
            if is_done:
                actor = host.end()
                if host.doing == "open" and actor.result:
                    self._check_new_guest(host)
                return

    def write(self, host: ModelHost) -> None:
        """Have the guest of a host write and flush, if it is served."""
        if host.is_served:
            assert host.device is not None
            self.history.add(host.device.write(512), host.name, host.device.epoch)

    def declare_lost(self) -> None:
        """Have an operator say that the hosts of the volume are lost, though they may be not."""
        record = self.record
        for name in record.hosts:
            self._disallow(name)

    def _disallow(self, name: str) -> None:
        record = self.store.disallow_host(VOLUME, name).after
        if record.owner == name:
            self.history.lost_epochs.add(record.epoch)
            self.lost_at[record.epoch] = self.tick

    def detach(self) -> None:
        """Have Cinder remove the attachments of hosts that do not own the volume.

        Nova and Cinder do that also where the host said that it could not close it.
        """
        for name in self.record.hosts:
            if self.record.owner != name:
                self._disallow(name)

    def deliver(self) -> None:
        """Have requests that hung take their effect."""
        for host in self.hosts.values():
            host.faults.deliver()

    def attach(self, name: str) -> None:
        """Have Cinder let a host attach the volume, if nobody may."""
        if not self.record.hosts:
            self.store.allow_host(VOLUME, name)

    def begin_migration(self, name: str) -> None:
        """Have Cinder let a second host attach it."""
        if len(self.record.hosts) == 1:
            self.store.begin_standby(VOLUME, name)

    def collect(self) -> None:
        """Delete what nobody needs, without any grace."""
        self._collections += 1.0
        clock = self._collections
        Collector(self.repository, "x", 0.0, clock=lambda: clock).collect()

    # What has to be true

    def observe(self) -> None:
        """Note what was stored; refuse two owners, and a host that serves an old disk.

        :raises HistoryError: when a guest was told something else.
        """
        self.tick += 1
        serving = []
        for host in self.hosts.values():
            device = host.device
            if device is None or device.state == "standby":
                host.was_serving = None
                continue
            for write in list(self.history.unstored(host.name, device.epoch)):
                if write.word in device.overlay and write.word not in device.dirty:
                    write.is_stored = True
            if not host.is_served:
                host.was_serving = None
                continue
            is_lost = device.epoch in self.history.lost_epochs
            if not is_lost:
                serving.append(host.name)
            if host.was_serving is not device:
                host.was_serving = device
                if not is_lost:
                    self.history.check(device.words, f"{host.name} in epoch {device.epoch}")
        if len(serving) > 1:
            raise HistoryError(f"{' and '.join(serving)} serve the volume at once")

    def _check_new_guest(self, host: ModelHost) -> None:
        """Check what a guest finds that has only now been let in."""
        device = host.device
        if device is None or not host.is_served:
            return
        if self.lost_at.get(device.epoch, -1) >= host.began_at:
            return  # it was let in before the host was declared lost
        self.history.check(device.words, f"a new guest of {host.name} in epoch {device.epoch}")

    def check_end(self) -> None:
        """Let everything come to its end over a reliable origin, and read the volume elsewhere.

        :raises HistoryError: when something is missing, or cannot be had.
        """
        for host in self.hosts.values():
            host.faults.be_reliable()
        for host in self.hosts.values():
            if host.actor is not None:
                self.go_on(host, CALLS_MAX)
        self.deliver()
        for _ in range(2):
            for host in self.hosts.values():
                host.step()
                self.observe()
        for host in self.hosts.values():
            try:
                host.volumes.closing.close(VOLUME, force=True)
            except exception.AcstorError as error:
                raise HistoryError(f"{host.name} cannot close the volume: {error!r}") from error
            self.observe()
        for _ in range(3):
            self.collect()
        self.declare_lost()
        self.store.allow_host(VOLUME, HEIR)
        heir = self.hosts[HEIR]
        try:
            heir.volumes.opening.open(VOLUME, "owner")
        except exception.AcstorError as error:
            raise HistoryError(f"nobody can open the volume: {error!r}") from error
        assert heir.device is not None
        self.history.check(heir.device.words, "the volume in the end")

"""A volume in an origin of three members, with the real code of hosts and movers.

What must be read follows from the history of acknowledged writes and from nothing else.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from acstor import exception, native
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.ownership.outcomes import Sealed
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.origin import base
from acstor.origin.memory import MemoryOrigin
from acstor.origin.pair import OriginPair
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_upkeep import NotCondemned, check_readable, manifests_of
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes.epoch_log import ClosedLogs
from acstor.repository.volumes.log_places import RecordedLogs
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.repository import interleaving
from tests.unit.repository.volumes.log_objects import HEADER_LENGTH, log_object

Answer = TypeVar("Answer")

VOLUME = "11111111-2222-4333-8444-555555555555"
NAMES = ("a", "b", "c")
"""The members; a is the home."""
STEP_SECONDS = 7.0
"""Time that passes with each call."""
ATTEMPTS = 4
OBJECT_BYTES = 1 << 20


class PromiseError(AssertionError):
    """A promise that was broken."""


class FencedWriteError(Exception):
    """The owner found something else where it wanted to store a log object."""


class BadStore(MemoryOrigin):
    """A store that leaves calls without answers; some of them take effect later, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.choice = random.Random(0)
        self.bad_share = 0.0
        """Share of the changes of logs and records that get no answer."""
        self.is_away = False
        self.late: list[Callable[[], object]] = []
        self.broken: list[str] = []
        """Changes of records that break Invariant M."""

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        self._look(key)
        content = b"".join(base.as_views(buffers))
        return self._fate(
            key.startswith(layout.VOLUME_LOG_PREFIX),
            lambda: super(BadStore, self).put_if_absent(key, [content]),
        )

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        return self._fate(
            name.startswith(layout.VOLUME_PREFIX),
            lambda: self._swap(name, expected, content),
        )

    def _swap(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        before = self.get_ref(name)
        token = super().swap_ref(name, expected, content)
        if name == layout.volume_ref(VOLUME) and before is not None and content is not None:
            self._compare(
                VolumeRecord.parse(before.content, VOLUME), VolumeRecord.parse(content, VOLUME)
            )
        return token

    def _compare(self, before: VolumeRecord, after: VolumeRecord) -> None:
        expected = before.member if after.epoch == before.epoch else before.assigned
        if after.member != expected or after.epoch - before.epoch not in (0, 1):
            self.broken.append(f"epoch {after.epoch}: {after.member}, not {expected}")
        wrong = after.unsealed == before.epoch and after.unsealed_member != before.member
        kept = after.unsealed == before.unsealed is not None
        if wrong or (kept and after.unsealed_member != before.unsealed_member):
            self.broken.append(f"unsealed epoch {after.unsealed}: {after.unsealed_member}")

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        self._look(key)
        return super().readinto(key, offset, buffer)

    def size(self, key: str) -> int:
        self._look(key)
        return super().size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        self._look(prefix)
        yield from super().list(prefix)

    def delete(self, key: str) -> bool:
        self._look(key)
        return super().delete(key)

    def deliver(self, share: float) -> None:
        """Have calls take effect that got no answer; the others stay under way."""
        late, self.late = self.late, []
        for call in late:
            if self.choice.random() >= share:
                self.late.append(call)
                continue
            with contextlib.suppress(exception.ConflictError):
                call()

    def _look(self, key: str) -> None:
        if self.is_away and key.startswith(layout.VOLUME_LOG_PREFIX):
            raise exception.UnavailableError(f"{key} cannot be asked for on purpose")

    def _fate(self, may_fail: bool, call: Callable[[], Answer]) -> Answer:
        if not may_fail or self.choice.random() >= self.bad_share:
            return call()
        fate = self.choice.choice(("lost", "late", "late", "never"))
        if fate == "lost":
            call()
        elif fate == "late":
            self.late.append(call)
        raise exception.UnavailableError("there is no answer, on purpose")


class KilledForGood(interleaving.Actor):
    """A process that makes no further call, also where one made of its end an ordinary error.

    As the data plane does of what it does not know.
    """

    def pause(self) -> None:
        if self.is_killed:
            raise interleaving.Killed
        super().pause()


class SteppedMembers(interleaving.SteppedOrigin):
    """Pauses before each call, of one member alone as well."""

    def __init__(self, inner: base.Origin, actor: interleaving.Actor, clock: VirtualTime) -> None:
        super().__init__(inner, actor)
        self._clock = clock

    def of_member(self, name: str | None) -> base.ObjectStore:
        return self._stepped(self._inner.of_member(name))

    def near_member(self, name: str | None) -> base.ObjectStore:
        return self._stepped(self._inner.near_member(name))

    def get(self, key: str, size_max: int) -> bytes:
        self._actor.pause()
        return self._inner.get(key, size_max)

    def list(self, prefix: str = "") -> Iterator[str]:
        self._actor.pause()
        self._clock.now += STEP_SECONDS
        yield from list(self._inner.list(prefix))

    def _stepped(self, store: base.ObjectStore) -> base.ObjectStore:
        return SteppedMembers(OriginPair(store, self._inner), self._actor, self._clock)


class Host:
    """A host's process, with the real code of an owner."""

    def __init__(self, cloud: "Cloud", name: str, origin: base.Origin) -> None:
        self._cloud = cloud
        self.name = name
        self.origin = origin
        self.access = OriginAccess(lambda: origin)
        self.owner = VolumeOwner(name, self.access)
        self.epoch = self.next = -1
        self.words = 0

    def acquire(self) -> VolumeRecord:
        """Own the volume in a new epoch; its guest sees the disk as it is then."""
        record = self.owner.acquire(VOLUME, self._seal).record
        self.epoch, self.next = record.epoch, record.next
        logs = [one.to_fields() for one in record.logs]
        self._log = self.access.log_of(VOLUME, record.epoch, record.member, logs)
        self._cloud.views.append((self.name, words_of(self.origin, record.logs)))
        return record

    def _seal(self, volume: str, epoch: int, first: int, member: str | None) -> Sealed:
        log = self.access.log_of(volume, epoch, member)
        with native.map_errors("sealing"):
            end = native.seal_volume_log(volume, epoch, first, log)
        assert end["seal"] is not None
        return Sealed(end["last"], end["seal"])

    def write(self) -> None:
        """Write one word; the guest is told once it is stored, and waits until then.

        :raises FencedWriteError: when another one has ended the epoch.
        :raises UnavailableError: when there was no answer for long.
        """
        self.words += 1
        word = f"{self.name}{self.words}"
        key = layout.log_key(VOLUME, self.epoch, self.next)
        content = log_object(VOLUME, self.epoch, self.next, word.encode())
        again(lambda: self._store(key, content))
        self._cloud.told.append((self.epoch, word))
        self.next += 1

    def _store(self, key: str, content: bytes) -> None:
        if not self._log.put_if_absent(key, [content]) and (
            self._log.get(key, OBJECT_BYTES) != content
        ):
            raise FencedWriteError(key)

    def advance(self) -> None:
        """Note in the record how far the log goes."""
        self.access.records().advance(VOLUME, self.name, self.epoch, self.next - 1)

    def release(self) -> None:
        """Give the volume back."""
        self.owner.release(VOLUME, self.epoch, self.next - 1)


class Cloud:
    """The members, and what guests were told."""

    def __init__(self) -> None:
        self.clock = VirtualTime()
        self.stores = {name: BadStore() for name in NAMES}
        self.told: list[tuple[int, str]] = []
        """Words that guests know to be stored, with the epoch of each, as they were told."""
        self.views: list[tuple[str, list[str]]] = []
        """Content that the guest of each owner found."""
        self._opened: list[ReplicatedOrigin] = []
        self.membership = Membership("a", self.stores)
        self.membership.create()
        for name in NAMES[1:]:
            self.membership.change(name, MemberEvent.FILLED)
        origin = self.open()
        Repository.init(origin)
        self.store = self.records(origin)
        self.store.create(NewVolume(VOLUME, 1 << 20))

    def open(self, *names: str) -> ReplicatedOrigin:
        """Open the origin as another process does."""
        addresses = [MemberAddress(name, name) for name in names or NAMES]
        opened = ReplicatedOrigin(addresses, lambda url: self.stores[url], clock=self.clock)
        self._opened.append(opened)
        return opened

    def keeping(self, *names: str) -> MemberKeeping:
        """Return the passes of a process that leads."""
        origin = self.open(*names)
        return MemberKeeping(
            origin,
            check_readable,
            1 << 40,
            "r",
            is_wanted=NotCondemned(origin, self.clock),
            needed=manifests_of,
            logs=RecordedLogs(origin, lambda: origin.view.home),
            clock=self.clock,
            now=lambda: 1_000_000.0,
        )

    def records(self, origin: base.Origin) -> VolumeStore:
        return VolumeStore(Repository.open(origin), wait=lambda seconds: None)

    def host(self, name: str, origin: base.Origin | None = None) -> Host:
        return Host(self, name, origin or self.open())

    def actor(self, name: str, action: Callable[[base.Origin], object]) -> interleaving.Actor:
        """Return a process that makes a step with each of its calls."""
        inner = self.open()
        actors: list[interleaving.Actor] = []

        def act(_: base.Origin) -> None:
            action(SteppedMembers(inner, actors[0], self.clock))

        actors.append(KilledForGood(name, act, inner))
        return actors[0]

    def allow(self, store: VolumeStore, host: str) -> None:
        """Let one host attach the volume, and no other."""
        for other in store.get(VOLUME).record.hosts:
            if other != host:
                store.disallow_host(VOLUME, other)
        store.allow_host(VOLUME, host)

    def heal(self) -> None:
        """Have every store answer from now on."""
        for store in self.stores.values():
            store.is_away, store.bad_share = False, 0.0

    def record(self) -> VolumeRecord:
        return self.store.get(VOLUME).record

    def logs_in(self, member: str) -> list[tuple[int, int]]:
        """Return epoch and place in the log of the log objects that a member has."""
        named = map(layout.parse_log_key, self.stores[member].list(layout.VOLUME_LOG_PREFIX))
        return sorted(one[1:] for one in named if one is not None)

    def check(self, seed: object = None) -> list[str]:
        """Have an heir take the volume, and compare what it finds with what guests were told.

        :raises PromiseError: when a write is missing or in another order, a disk has changed under
            its guest, or one slot has two contents.
        """
        self.heal()
        for store in self.stores.values():
            store.deliver(0.5)
        self.allow(self.store, "heir")
        heir = self.host("heir")
        heir.acquire()
        found = self.views[-1][1]
        for store in self.stores.values():
            store.deliver(1.0)
        again = words_of(self.open(), self.record().logs)
        told = [word for _, word in sorted(self.told, key=lambda one: one[0])]
        if self.stores["a"].broken:
            raise PromiseError(f"seed {seed}: {self.stores['a'].broken}")
        if again != found:
            raise PromiseError(f"seed {seed}: {found} was read, and {again} later")
        if [word for word in found if word in told] != told:
            raise PromiseError(f"seed {seed}: {found} is read, {told} was acknowledged")
        for name, view in self.views:
            if found[: len(view)] != view:
                raise PromiseError(f"seed {seed}: {name} found {view}, and {found} is read")
        self._check_slots(seed)
        return found

    def _check_slots(self, seed: object) -> None:
        contents: dict[str, set[bytes]] = {}
        for store in self.stores.values():
            for key in store.list(layout.VOLUME_LOG_PREFIX):
                contents.setdefault(key, set()).add(store.get(key, OBJECT_BYTES))
        for key, found in contents.items():
            if len(found) > 1:
                raise PromiseError(f"seed {seed}: {key} has {len(found)} contents")

    def close(self) -> None:
        for one in self._opened:
            one.close()


def again(call: Callable[[], object]) -> None:
    """Make a call until it is answered, a few times.

    :raises UnavailableError: when it was not.
    """
    for attempt in range(ATTEMPTS):
        try:
            call()
        except exception.UnavailableError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def words_of(origin: base.Origin, logs: Sequence[LogRange]) -> list[str]:
    """Return what a guest reads of closed ranges."""
    closed = ClosedLogs(lambda: origin, logs)
    keys = [one.key(at) for one in logs for at in range(one.first, one.last + 1)]
    return [closed.get(key, OBJECT_BYTES)[HEADER_LENGTH:].decode() for key in keys]

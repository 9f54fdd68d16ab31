"""A volume that moves, with its real record and the data plane's own sealing.

Each process has a table of its own, which it makes from the epochs that it has seen: an epoch is in
one member. A host's acquisition after itself is the move (RFD 38).
"""

import dataclasses
from collections.abc import Mapping

import pytest

from acstor import exception, native
from acstor.origin import base, pair
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.objects import ReplicatedObjects
from acstor.origin.replicated.placement import Assignments, Placed
from acstor.origin.replicated.refs import HomeRefs
from acstor.origin.replicated.sync.backlog import Backlog
from acstor.origin.replicated.sync.budget import Bandwidth, SyncBudget
from acstor.origin.replicated.sync.change_log import Change, ChangeLogWriter
from acstor.origin.replicated.sync.member_copy import MemberCopy
from acstor.origin.replicated.sync.pairs import Pair
from acstor.origin.replicated.sync.synchronisation import Synchronisation
from acstor.repository import layout
from acstor.repository.copying.object_check import check_object
from acstor.repository.repository import Repository
from acstor.repository.volumes.log_object import check_log_object
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.origin.replicated.stores import PATIENT_SECONDS
from tests.unit.repository.volumes.log_objects import log_object

VOLUME = "11111111-2222-4333-8444-555555555555"
AMPLE = Bandwidth(total=1 << 40, threshold=1 << 40, minimum=1 << 30)


def disk_of(key: str) -> str:
    named = layout.parse_log_key(key)
    return named[0] if named else "shared"


class Process:
    """A host's data plane, or a controller, over the same members; a is the home."""

    def __init__(self, stores: Mapping[str, base.Origin]) -> None:
        self.members = {
            name: Member(name, store, PATIENT_SECONDS) for name, store in stores.items()
        }
        self.table = Assignments(Placed(("a",)))
        self.log = ChangeLogWriter(self.members, disk_of)
        self.objects = ReplicatedObjects(self.members, self.table, noted=self.log.note)
        self.origin = pair.OriginPair(self.objects, HomeRefs(stores["a"]))

    def store(self) -> VolumeStore:
        return VolumeStore(Repository.open(self.origin), wait=lambda seconds: None)

    def enter(self, epoch: int, member: str) -> None:
        """Learn where an epoch is, as the record will say it; the other shall have it later."""
        other = "b" if member == "a" else "a"
        self.table.assign(layout.log_folder(VOLUME, epoch), Placed((member, other)))

    def write(self, epoch: int, sequence: int) -> bool:
        """Store a log object of an epoch; return whether its slot was free."""
        content = log_object(VOLUME, epoch, sequence, b"body")
        return self.origin.put_if_absent(layout.log_key(VOLUME, epoch, sequence), [content])

    def take(self, host: str) -> VolumeRecord:
        """Begin a new epoch, and end the one before."""
        record = self.store().acquire(VOLUME, host).after
        assert record is not None
        return record

    def end(self, host: str, record: VolumeRecord) -> VolumeRecord:
        """Seal the epoch before, and record its end."""
        assert record.unsealed is not None
        with native.map_errors("sealing"):
            end = native.seal_volume_log(VOLUME, record.unsealed, record.next, self.origin)
        seal = end["seal"]
        assert seal is not None
        last = record.next - 1 if end["last"] is None else end["last"]
        after = self.store().record_takeover(VOLUME, host, record.epoch, last=last, seal=seal).after
        assert after is not None
        return after


@dataclasses.dataclass
class Cloud:
    """Two members, and a volume that a host has written three objects of to the first."""

    stores: dict[str, FaultyOrigin]
    owner: Process
    first: int

    def process(self) -> Process:
        """Return another process, which knows where the first epoch is."""
        made = Process(self.stores)
        made.enter(1, "a")
        return made

    def lose(self, member: str) -> None:
        """Have nobody reach the objects of a member; the refs of the home stay."""
        self.stores[member].faults = [
            Fault(one, Effect.ERROR)
            for one in (
                Operation.PUT, Operation.READ, Operation.SIZE, Operation.LIST, Operation.DELETE,
            )
        ]  # fmt: skip

    def logs_in(self, member: str) -> set[tuple[int, int]]:
        """Return epoch and sequence, from the first, of the log objects that a member has."""
        inner = self.stores[member]._inner
        named = map(layout.parse_log_key, inner.list(layout.VOLUME_LOG_PREFIX))
        return {(one[1], one[2] - self.first) for one in named if one is not None}


@pytest.fixture
def cloud() -> Cloud:
    stores = {name: FaultyOrigin(MemoryOrigin()) for name in "ab"}
    owner = Process(stores)
    Repository.init(owner.origin)
    store = owner.store()
    store.create(NewVolume(VOLUME, 1 << 20))
    store.allow_host(VOLUME, "h1")
    first = owner.take("h1").next
    owner.enter(1, "a")
    for number in range(3):
        assert owner.write(1, first + number)
    return Cloud(stores, owner, first)


def moved(cloud: Cloud, process: Process, host: str = "h1") -> VolumeRecord:
    """Have a host go on in the second member."""
    record = process.take(host)
    process.enter(record.epoch, "b")
    return process.end(host, record)


def test_volume_goes_on_in_the_new_member_and_is_read_from_both(cloud: Cloud) -> None:
    record = moved(cloud, cloud.owner)
    assert [(one.epoch, one.last - cloud.first) for one in record.logs] == [(1, 2)]
    assert record.next == cloud.first + 4
    assert cloud.owner.write(2, record.next)
    assert cloud.logs_in("a") == {(1, 0), (1, 1), (1, 2), (1, 3)}
    assert cloud.logs_in("b") == {(2, 4)}
    for one in record.logs:
        for sequence in range(one.first, one.last + 1):
            content = cloud.owner.origin.get(one.key(sequence), 1 << 20)
            check_log_object(one.key(sequence), content)


def test_owner_that_was_cut_off_cannot_write_a_second_history(cloud: Cloud) -> None:
    cut_off = cloud.process()
    moved(cloud, cloud.owner)
    assert not cut_off.write(1, cloud.first + 3), "it finds the seal"
    assert cloud.logs_in("b") == set(), "nor does it write anywhere else"


def test_epoch_is_not_ended_elsewhere_where_its_member_is_away(cloud: Cloud) -> None:
    heir = cloud.process()
    record = heir.take("h1")
    heir.enter(record.epoch, "b")
    cloud.lose("a")
    with pytest.raises(exception.UnavailableError):
        heir.end("h1", record)
    assert cloud.logs_in("b") == set()
    cloud.stores["a"].faults = []
    again = cloud.process()
    again.enter(record.epoch, "b")
    after = again.end("h1", record)
    assert [(one.epoch, one.last - cloud.first) for one in after.logs] == [(1, 2)]


def test_take_over_in_mid_move_ends_the_epoch_that_was_written(cloud: Cloud) -> None:
    cloud.owner.take("h1")  # and it dies
    heir = cloud.process()
    record = moved(cloud, heir)
    assert record.epoch == 3
    assert [(one.epoch, one.last - cloud.first) for one in record.logs] == [(1, 2)]
    assert heir.write(3, record.next)
    assert cloud.logs_in("b") == {(3, 4)}


def synchronised(cloud: Cloud, process: Process) -> None:
    """Copy what the members owe to each other, as another process that leads."""
    process.log.store_due(is_ending=True)
    leader = cloud.process()
    leader.enter(2, "b")
    budgets = {name: SyncBudget(AMPLE) for name in leader.members}
    copy = MemberCopy(leader.objects, budgets, check_object, verified_share=1.0)
    synchronisation = Synchronisation(leader.members, leader.table, budgets, copy)
    synchronisation.look()
    report = synchronisation.run_period()
    assert not report.errors
    assert report.left_bytes == 0


def test_member_that_is_lost_after_a_synchronisation_takes_nothing_with_it(cloud: Cloud) -> None:
    record = moved(cloud, cloud.owner)
    cloud.owner.write(2, record.next)
    synchronised(cloud, cloud.owner)
    cloud.lose("a")
    reader = cloud.process()
    reader.enter(2, "b")
    for epoch, number in ((1, 0), (1, 1), (1, 2), (2, 4)):
        key = layout.log_key(VOLUME, epoch, cloud.first + number)
        check_log_object(key, reader.origin.get(key, 1 << 20))


def test_member_that_is_lost_before_it_makes_nothing_not_found(cloud: Cloud) -> None:
    moved(cloud, cloud.owner)
    cloud.lose("a")
    key = layout.log_key(VOLUME, 1, cloud.first)
    with pytest.raises(exception.UnavailableError):
        cloud.process().origin.get(key, 1 << 20)


def test_copies_of_an_open_epoch_do_not_end_it(cloud: Cloud) -> None:
    """The end is looked for in the member of the epoch, not among the copies."""
    synchronised(cloud, cloud.owner)
    assert cloud.logs_in("b") == {(1, 0), (1, 1), (1, 2)}
    assert cloud.owner.write(1, cloud.first + 3)
    heir = cloud.process()
    record = moved(cloud, heir)
    assert [(one.epoch, one.last - cloud.first) for one in record.logs] == [(1, 3)]
    assert not cloud.owner.write(1, cloud.first + 4)


def test_log_is_copied_in_its_order_whatever_was_noted_first(cloud: Cloud) -> None:
    """So what the other member has is a beginning of it, at any moment."""
    moved(cloud, cloud.owner)
    backlog = Backlog(cloud.owner.table)
    for number in (2, 0, 1):
        key = layout.log_key(VOLUME, 1, cloud.first + number)
        backlog.add("a", disk_of(key), Change(key, 1))
    keys = [change.key for change in backlog.objects(Pair("a", "b"), {})]
    assert keys == [layout.log_key(VOLUME, 1, cloud.first + number) for number in range(3)]

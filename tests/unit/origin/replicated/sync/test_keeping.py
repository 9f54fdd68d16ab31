"""Passes of the process that leads: what is copied, who joins, and what operators are shown."""

import hashlib
import random

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.member_records import read_mark
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.members_status import STATUS_REF, MembersStatus, read_status
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.sole_objects import find_sole
from acstor.origin.replicated.states import MemberEvent, MemberState
from acstor.origin.replicated.sync import keeping
from acstor.origin.replicated.sync.keeping import MemberKeeping
from testbed.doubles.virtual_time import VirtualTime

CONTENTS = [random.Random(number).randbytes(100 + number) for number in range(4)]
PACKS = {f"packs/{hashlib.sha256(one).hexdigest()}": one for one in CONTENTS}
SIZE = sum(map(len, CONTENTS))


def check(key: str, content: memoryview, others: base.ObjectStore) -> None:
    if hashlib.sha256(content).hexdigest() != key.rsplit("/", 1)[1]:
        raise exception.CorruptError(f"{key} is not what its name says")


class Cloud:
    """Stores of members, and a process that leads."""

    def __init__(self) -> None:
        self.clock = VirtualTime()
        self.stores: dict[str, base.Origin] = {"home": MemoryOrigin(), "near": MemoryOrigin()}
        self.membership = Membership("home", self.stores)
        self.membership.create()
        self.lead()

    def lead(self) -> None:
        """Have another process lead."""
        addresses = [MemberAddress(name, name) for name in self.stores]
        self.origin = ReplicatedOrigin(
            addresses, lambda url: self.stores[url], seconds_max=20.0, clock=self.clock
        )
        self.keeping = MemberKeeping(
            self.origin, check, 1 << 40, "leader", clock=self.clock, now=lambda: 1000.0
        )

    def store(self) -> None:
        for key, content in PACKS.items():
            self.origin.put_if_absent(key, [content])

    def packs_of(self, name: str) -> dict[str, bytes]:
        return {
            key: self.stores[name].get(key, 1 << 20) for key in self.stores[name].list("packs/")
        }

    def run(self) -> MembersStatus:
        self.clock.now += 60.0
        return self.keeping.run()

    def away(self, name: str) -> None:
        """Have a store answer nothing."""
        self.stores[name] = FaultyOrigin(
            self.stores[name], [Fault(one, Effect.ERROR) for one in Operation]
        )
        self.lead()

    def back(self, name: str) -> None:
        """Have it answer again."""
        store = self.stores[name]
        assert isinstance(store, FaultyOrigin)
        store.faults.clear()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def test_new_member_is_filled_and_then_in_use(cloud: Cloud) -> None:
    cloud.store()
    assert cloud.origin.view.state("near") is MemberState.JOINING
    status = cloud.run()
    assert cloud.packs_of("near") == PACKS
    assert cloud.origin.view.state("near") is MemberState.ACTIVE
    assert status.compared_at == 1000.0
    near = status.members["near"]
    assert (near.is_reachable, near.owed_bytes, near.sole_bytes, near.error) == (True, 0, 0, "")
    assert near.refs_behind == 0
    assert read_status(cloud.origin.refs) == status


def test_what_is_stored_later_follows_by_the_log(cloud: Cloud) -> None:
    cloud.run()
    cloud.store()
    cloud.origin.log.store_due(is_ending=True)
    cloud.run()
    assert cloud.packs_of("near") == PACKS


def test_what_no_log_tells_of_is_found_by_the_comparison(cloud: Cloud) -> None:
    cloud.run()
    cloud.store()
    assert cloud.run().members["near"].owed_bytes == 0
    cloud.clock.now += keeping.COMPARE_SECONDS
    cloud.run()
    assert cloud.packs_of("near") == PACKS


def test_member_that_was_away_is_compared_when_it_is_back(cloud: Cloud) -> None:
    cloud.run()
    cloud.away("near")
    cloud.store()
    status = cloud.run()
    assert not status.members["near"].is_reachable
    assert status.members["near"].error
    assert status.compared_at is None, "this process has compared nothing yet"
    cloud.back("near")
    cloud.clock.now += 60.0
    cloud.run()
    assert cloud.packs_of("near") == PACKS


def test_drained_member_loses_what_it_alone_has_to_the_others(cloud: Cloud) -> None:
    cloud.run()
    for key, content in PACKS.items():
        cloud.stores["near"].put_if_absent(key, [content])
    found = find_sole(cloud.origin, "near")
    assert (found.count, found.example) == (len(PACKS), min(PACKS))
    cloud.membership.change("near", MemberEvent.DRAIN)
    cloud.run()
    assert cloud.packs_of("home") == PACKS
    assert find_sole(cloud.origin, "near").count == 0
    cloud.store()
    cloud.stores["home"].put_if_absent("packs/" + "0" * 64, [b"later"])
    cloud.clock.now += keeping.COMPARE_SECONDS
    cloud.run()
    assert cloud.packs_of("near") == PACKS, "it gets nothing new"


def test_damaged_object_is_shown_and_keeps_nothing_else_back(cloud: Cloud) -> None:
    cloud.stores["home"].put_if_absent("packs/" + "0" * 64, [b"damaged"])
    cloud.store()
    status = cloud.run()
    assert cloud.packs_of("near") == PACKS
    near = status.members["near"]
    assert near.owed_bytes == len(b"damaged")
    assert near.error.startswith("1 objects are damaged or contradict each other: packs/000")
    assert cloud.origin.view.state("near") is MemberState.ACTIVE, "it has all that can be had"


def test_generations_grow_and_not_with_each_leader(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.lead()
        cloud.run()
    assert _generations(cloud) == [1, 1]
    cloud.clock.now += keeping.FIRST_GROWTH_SECONDS
    cloud.run()
    cloud.run()
    assert _generations(cloud) == [2, 2]
    cloud.clock.now += keeping.GROWTH_SECONDS
    cloud.run()
    assert _generations(cloud) == [3, 3]
    assert cloud.origin.exists("volume-log/x") is False, "it is still the member"


def _generations(cloud: Cloud) -> list[int]:
    marks = [read_mark(store)[0] for store in cloud.stores.values()]
    return [mark.generation for mark in marks if mark is not None]


def test_home_that_is_away_ends_the_pass(cloud: Cloud) -> None:
    cloud.run()
    store = cloud.stores["home"]
    faulty = FaultyOrigin(store, [])
    cloud.stores["home"] = faulty
    cloud.lead()
    faulty.faults.extend(Fault(one, Effect.ERROR) for one in Operation)
    with pytest.raises(exception.UnavailableError):
        cloud.run()


def test_damaged_status_is_written_anew(cloud: Cloud) -> None:
    cloud.run()
    ref = cloud.origin.get_ref(STATUS_REF)
    assert ref is not None
    cloud.origin.swap_ref(STATUS_REF, ref.token, b"{}")
    with pytest.raises(exception.CorruptError, match="malformed"):
        read_status(cloud.origin.refs)
    cloud.run()
    assert read_status(cloud.origin.refs) is not None

"""An origin of several members and bad luck: what an attack on it found, each cured."""

import hashlib
import random
import threading

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.member_records import MEMBER_REF
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.sole_objects import find_sole
from acstor.origin.replicated.states import MemberEvent
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.origin.replicated.sync.member_copy import Check
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.repository import Repository
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.repository import images

PACK = f"packs/{'ab' * 32}"
MOVED = f"moved/{'ab' * 32}"
LOG = f"volume-log/{'0' * 8}-0000-0000-0000-{'0' * 12}/00000001/{'0' * 16}"
SOUND = random.Random(1).randbytes(1000)
SOUND_PACK = f"packs/{hashlib.sha256(SOUND).hexdigest()}"


def accept(key: str, content: memoryview, others: base.ObjectStore) -> None:
    """Take all for sound."""


class Stores:
    """Stores of members that are in use; the first is the home."""

    def __init__(self, *names: str) -> None:
        self.names = names or ("home", "near", "far")
        self.inner = {name: MemoryOrigin() for name in self.names}
        self.stores: dict[str, base.Origin] = dict(self.inner)
        self.clock = VirtualTime()
        self.membership = Membership("home", self.inner)
        self.membership.create()
        for name in self.names[1:]:
            self.membership.change(name, MemberEvent.FILLED)

    def open(self, *names: str, seconds_max: float = 20.0) -> ReplicatedOrigin:
        addresses = [MemberAddress(name, name) for name in names or self.names]
        return ReplicatedOrigin(
            addresses, lambda url: self.stores[url], seconds_max=seconds_max, clock=self.clock
        )

    def faulty(
        self, name: str, *operations: Operation, error: type = exception.UnavailableError
    ) -> FaultyOrigin:
        """Have a store fail in some operations, or in all."""
        made = FaultyOrigin(
            self.inner[name],
            [Fault(one, Effect.ERROR, error=error) for one in operations or Operation],
        )
        self.stores[name] = made
        return made

    def keeping(self, check: Check = accept) -> MemberKeeping:
        return MemberKeeping(
            self.open(), check, 1 << 40, "leader", clock=self.clock, now=lambda: 1.0
        )

    def have(self, key: str) -> set[str]:
        return {name for name, store in self.inner.items() if store.exists(key)}


def test_images_are_registered_while_a_member_is_away() -> None:
    stores = Stores()
    images.open_repository(stores.inner["home"])
    stores.faulty("far")
    repository = Repository.open(stores.open())
    for _ in range(2):
        images.register(repository, 1, images.disk(1, 2, 3))
    images.read_back(repository, 1)


def test_nothing_of_an_image_is_where_the_home_is_not() -> None:
    stores = Stores("home", "near")
    stores.faulty("home", Operation.PUT)
    with pytest.raises(exception.UnavailableError):
        stores.open().put_if_absent(PACK, [b"chunks"])
    assert stores.have(PACK) == set()


def test_what_a_member_that_is_away_alone_had_is_not_forgotten() -> None:
    stores = Stores("home", "near")
    stores.inner["near"].put_if_absent(PACK, [bytes(1000)])
    stores.faulty("home", Operation.PUT)
    keeping = stores.keeping()
    assert keeping.run().members["near"].sole_bytes == 1000
    stores.stores["home"] = stores.inner["home"]
    away = stores.faulty("near")
    status = stores.keeping().run()
    assert (status.members["near"].sole_bytes, status.compared_at) == (1000, None)
    away.faults.clear()
    stores.clock.now += 60
    status = stores.keeping().run()
    assert (status.members["near"].sole_bytes, status.compared_at) == (0, 1.0)


def test_members_that_are_there_are_compared_though_one_is_away() -> None:
    stores = Stores()
    stores.inner["home"].put_if_absent(PACK, [b"chunks"])
    stores.faulty("far")
    stores.keeping().run()
    assert stores.have(PACK) == {"home", "near"}


def test_close_waits_for_no_store_that_hangs() -> None:
    stores = Stores()
    released, begun = threading.Event(), threading.Event()

    class Hanging(FaultyOrigin):
        def get_ref(self, name: str) -> base.Ref | None:
            begun.set()
            released.wait()
            return super().get_ref(name)

    stores.stores["far"] = Hanging(stores.inner["far"])
    origin = stores.open()
    origin.members["far"].seconds_max = 0.2
    with pytest.raises(exception.UnavailableError):
        origin.exists(PACK)
    assert begun.wait(60)
    closing = threading.Thread(target=origin.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    released.set()


@pytest.mark.parametrize("error", [exception.InvalidError, exception.UnsupportedError])
def test_member_that_refuses_access_hides_nothing(error: type) -> None:
    stores = Stores("home", "near")
    for store in stores.inner.values():
        store.put_if_absent(PACK, [b"chunks"])
    stores.faulty("near", error=error)
    assert stores.open().get(PACK, 100) == b"chunks"
    with pytest.raises(exception.AcstorError):
        stores.open().exists("packs/" + "cd" * 32)
    status = stores.keeping().run()
    assert not status.members["near"].is_reachable


def test_damaged_mark_of_one_member_keeps_nothing_else_back() -> None:
    stores = Stores()
    ref = stores.inner["far"].get_ref(MEMBER_REF)
    assert ref is not None
    stores.inner["far"].swap_ref(MEMBER_REF, ref.token, b"{}")
    stores.inner["home"].put_if_absent(PACK, [b"chunks"])
    status = stores.keeping().run()
    assert stores.have(PACK) == {"home", "near"}
    assert "far is not used" in status.members["far"].error
    with pytest.raises(exception.UnavailableError, match="far"):
        stores.open().exists("packs/" + "cd" * 32)


def test_damaged_record_of_the_members_makes_the_home_unavailable() -> None:
    stores = Stores()
    origin = stores.open()
    ref = stores.inner["home"].get_ref("members")
    assert ref is not None
    stores.inner["home"].swap_ref("members", ref.token, b"{}")
    stores.clock.now += 11
    with pytest.raises(exception.UnavailableError, match=r"home is not used: .*malformed"):
        origin.exists(MOVED)


def test_member_that_is_given_up_meanwhile_ends_no_call() -> None:
    stores = Stores()
    origin = stores.open()
    assert origin.put_if_absent(PACK, [b"chunks"])
    members = iter(origin.members.items())
    next(members)
    stores.membership.change("far", MemberEvent.FAIL)
    stores.clock.now += 11
    origin.exists(MOVED)
    assert [name for name, _ in members]
    assert "far" not in origin.members
    stores.clock.now += 61
    origin.log.store_due()
    assert list(origin.list("packs/")) == [PACK]


def test_comparison_leaves_alone_what_the_home_decides() -> None:
    stores = Stores()
    for key in (LOG, "format", MOVED):
        stores.inner["far"].put_if_absent(key, [b"left over"])
    stores.keeping().run()
    assert stores.have(LOG) == stores.have("format") == stores.have(MOVED) == {"far"}


def test_lists_of_moved_chunks_are_deleted_from_a_drained_member_too() -> None:
    stores = Stores()
    for store in stores.inner.values():
        store.put_if_absent(MOVED, [b"list"])
    stores.membership.change("far", MemberEvent.DRAIN)
    assert stores.open().delete(MOVED)
    assert stores.have(MOVED) == set()
    assert find_sole(stores.open(), "far").count == 0


def test_full_member_stops_no_registration() -> None:
    stores = Stores("home", "near")
    for name, free in (("home", 1 << 40), ("near", 0)):
        store = FaultyOrigin(stores.inner[name])
        store.room = base.Space(free, 1 << 41)
        stores.stores[name] = store
    OriginReserve(stores.open(), 5).check(1)


def test_host_that_is_cut_off_from_the_home_goes_on_reading() -> None:
    stores = Stores("home", "near")
    stores.inner["near"].put_if_absent(PACK, [b"chunks"])
    origin = stores.open()
    for _ in range(3):
        stores.membership.advance("near")
    assert origin.get(PACK, 100) == b"chunks"


def test_copies_by_controllers_make_nothing_protected() -> None:
    """Registrations rely on what hosts cannot delete, whoever copied it."""

    class OfHosts(FaultyOrigin):
        def is_protected(self, key: str) -> bool:
            return False

    stores = Stores("home", "near")
    stores.inner["home"].put_if_absent(PACK, [b"of a host"])
    stores.stores["home"] = OfHosts(stores.inner["home"])
    stores.keeping().run()
    assert stores.have(PACK) == {"home", "near"}
    assert not stores.open().is_protected(PACK)


def test_object_that_is_deleted_while_it_is_copied_does_not_come_back() -> None:
    stores = Stores("home", "near")
    stores.inner["home"].put_if_absent(SOUND_PACK, [SOUND])
    collector = stores.open()

    def delete(key: str, content: memoryview, others: base.ObjectStore) -> None:
        collector.delete(key)

    stores.keeping(delete).run()
    assert stores.have(SOUND_PACK) == set()


def test_what_is_condemned_is_not_copied() -> None:
    stores = Stores("home", "near")
    stores.inner["home"].put_if_absent(SOUND_PACK, [SOUND])
    keeping = MemberKeeping(
        stores.open(), accept, 1 << 40, "leader",
        is_wanted=lambda key: key != SOUND_PACK, clock=stores.clock,
    )  # fmt: skip
    keeping.run()
    assert stores.have(SOUND_PACK) == {"home"}

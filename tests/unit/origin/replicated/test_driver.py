"""An origin in several stores as services open it: who is asked, and who is not believed."""

import pathlib
import urllib.parse
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.origin import base, opening
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress, addresses_of, url_of
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent
from acstor.origin.replicated.sync.change_log import CHANGES_PREFIX
from testbed.doubles.virtual_time import VirtualTime

PACK = f"packs/{'ab' * 32}"
MOVED = f"moved/ab/{'ab' * 32}"
LOG = f"volume-log/{'0' * 8}-0000-0000-0000-{'0' * 12}/00000001/{'0' * 16}"
NAMES = ("home", "near", "far")


class Stores:
    """Three stores, of which a test takes away what it wants."""

    def __init__(self) -> None:
        self.inner = {name: MemoryOrigin() for name in NAMES}
        self.stores: dict[str, base.Origin] = dict(self.inner)
        self.clock = VirtualTime()
        self.membership = Membership("home", self.inner)
        self.membership.create()
        for name in ("near", "far"):
            self.membership.change(name, MemberEvent.FILLED)

    def open(self, *names: str) -> ReplicatedOrigin:
        addresses = [MemberAddress(name, name) for name in names or NAMES]
        return ReplicatedOrigin(
            addresses, lambda url: self.stores[url], seconds_max=20.0, clock=self.clock
        )

    def take_away(self, name: str) -> None:
        """Have a store answer nothing, from now on."""
        self.stores[name] = FaultyOrigin(
            self.inner[name], [Fault(one, Effect.ERROR) for one in Operation]
        )

    def have(self, key: str) -> set[str]:
        """Return the stores that have an object."""
        return {name for name, store in self.inner.items() if store.exists(key)}


@pytest.fixture
def stores() -> Stores:
    return Stores()


def test_url_names_all_members_in_order() -> None:
    addresses = (
        MemberAddress("nfs", "posix:///srv/with%20room"),
        MemberAddress("ceph", "rados://c@pool?stripe_pool=x&timeout=5"),
    )
    assert addresses_of(urllib.parse.urlsplit(url_of(addresses))) == addresses


def test_objects_of_images_go_to_the_home_and_are_owed_to_the_others(stores: Stores) -> None:
    origin = stores.open()
    assert origin.put_if_absent(PACK, [b"chunks"])
    assert stores.have(PACK) == {"home"}
    origin.close()
    assert len(list(stores.inner["home"].list(CHANGES_PREFIX))) == 1


def test_objects_of_images_are_read_from_whichever_has_them(stores: Stores) -> None:
    stores.inner["far"].put_if_absent(PACK, [b"chunks"])
    origin = stores.open()
    assert origin.get(PACK, 100) == b"chunks"
    stores.take_away("near")
    assert stores.open().get(PACK, 100) == b"chunks"


def test_nothing_is_absent_while_a_member_cannot_be_asked(stores: Stores) -> None:
    assert not stores.open().exists(PACK)
    stores.take_away("far")
    origin = stores.open()
    with pytest.raises(exception.UnavailableError, match="far"):
        origin.exists(PACK)
    with pytest.raises(exception.UnavailableError):
        list(origin.list("packs/"))


def test_volumes_and_what_the_home_decides_need_no_other_member(stores: Stores) -> None:
    stores.take_away("near")
    stores.take_away("far")
    origin = stores.open()
    log = origin.of_member(None)
    assert log.put_if_absent(LOG, [b"words"])
    assert not log.put_if_absent(LOG, [b"other"])
    assert list(log.list("volume-log/")) == [LOG]
    assert log.get(LOG, 100) == origin.get(LOG, 100) == b"words"
    assert not log.exists(LOG[:-1] + "1")
    assert not origin.exists(MOVED)
    assert origin.swap_ref("images/x", None, b"record") is not None
    assert list(origin.list_protected("packs/")) == []
    assert origin.space() is None


def test_log_of_an_epoch_is_in_the_member_that_is_named(stores: Stores) -> None:
    origin = stores.open()
    with pytest.raises(exception.InternalError, match="no member was named"):
        origin.put_if_absent(LOG, [b"words"])
    log = origin.of_member("near")
    assert log.put_if_absent(LOG, [b"words"])
    assert stores.have(LOG) == {"near"}
    assert list(origin.of_member("far").list("volume-log/")) == []
    assert list(origin.of_member("home").list("volume-log/")) == []
    assert list(origin.list("volume-log/")) == [LOG]
    with pytest.raises(exception.UnsupportedError):
        log.delete(LOG)


def test_log_is_nowhere_else_where_its_member_is_away(stores: Stores) -> None:
    for name in ("home", "far"):  # copies
        stores.inner[name].put_if_absent(LOG, [b"words"])
    stores.take_away("near")
    log = stores.open().of_member("near")
    for call in (
        lambda: log.put_if_absent(LOG, [b"words"]),
        lambda: list(log.list("volume-log/")),
        lambda: log.get(LOG, 100),
        lambda: log.size(LOG),
    ):
        with pytest.raises(exception.UnavailableError):
            call()
    assert stores.open().get(LOG, 100) == b"words", "by its key it is read from any"


def test_closed_log_is_read_from_its_own_member_first(stores: Stores) -> None:
    for name, content in (("home", b"h"), ("near", b"n"), ("far", b"f")):
        stores.inner[name].put_if_absent(LOG, [content])
    origin = stores.open()
    assert origin.near_member("near").get(LOG, 100) == b"n"
    assert origin.near_member("far").get(LOG, 100) == b"f"
    assert origin.near_member(None).get(LOG, 100) == b"h"
    stores.inner["near"].delete(LOG)
    assert origin.near_member("near").get(LOG, 100) in (b"h", b"f")
    assert origin.near_member("unknown").get(LOG, 100) in (b"h", b"f")


@pytest.mark.parametrize("event", [MemberEvent.FAIL, MemberEvent.DRAIN])
def test_log_of_a_member_that_is_given_up_is_not_written(
    stores: Stores, event: MemberEvent
) -> None:
    origin = stores.open()
    log = origin.of_member("near")
    stores.membership.change("near", event)
    stores.clock.now += 11
    if event is MemberEvent.DRAIN:
        assert origin.of_member("near").put_if_absent(LOG, [b"words"])
        return
    with pytest.raises(exception.UnavailableError, match="near of the origin is not in use"):
        origin.of_member("near")
    with pytest.raises(exception.UnavailableError, match="near of the origin is not in use"):
        log.put_if_absent(LOG, [b"words"])


def test_origin_of_one_store_is_its_own_home(stores: Stores) -> None:
    store = MemoryOrigin()
    assert store.of_member(None) is store
    assert store.near_member("near") is store
    with pytest.raises(exception.UnsupportedError, match="near of the origin is not open here"):
        store.of_member("near")


def test_images_are_stored_while_other_members_are_away(stores: Stores) -> None:
    stores.take_away("near")
    origin = stores.open()
    assert origin.put_if_absent(PACK, [b"chunks"])
    assert origin.get(PACK, 100) == b"chunks"


def test_store_that_is_not_the_member_is_not_asked(stores: Stores) -> None:
    stores.inner["near"].put_if_absent(PACK, [b"another cloud's"])
    stores.stores["near"] = MemoryOrigin()  # nothing is mounted
    origin = stores.open()
    with pytest.raises(exception.UnavailableError, match=r"near is not used: .*is no member"):
        origin.exists(PACK)


def test_store_that_cannot_be_opened_counts_as_away(stores: Stores) -> None:
    def refuse(url: str) -> base.Origin:
        if url == "near":
            raise exception.InvalidError("origin directory near does not exist")
        return stores.inner[url]

    origin = ReplicatedOrigin([MemberAddress(name, name) for name in NAMES], refuse)
    with pytest.raises(exception.UnavailableError, match="near is not used: origin directory"):
        origin.exists(PACK)
    stores.inner["far"].put_if_absent(PACK, [b"chunks"])
    assert origin.exists(PACK)


def test_member_that_another_host_has_and_this_one_does_not_know(stores: Stores) -> None:
    origin = stores.open("home", "near")
    with pytest.raises(exception.UnavailableError, match="far of the origin is not in"):
        origin.exists(PACK)
    assert origin.put_if_absent(PACK, [b"chunks"])
    assert origin.exists(PACK)


def test_member_that_has_not_joined_yet_is_not_asked(stores: Stores) -> None:
    stores.inner["new"] = stores.stores["new"] = MemoryOrigin()
    origin = stores.open("home", "near", "far", "new")
    assert not origin.exists(PACK)
    stores.membership = Membership("home", stores.inner)
    stores.membership.join("new")
    stores.inner["new"].put_if_absent(PACK, [b"chunks"])
    assert not origin.exists(PACK)
    stores.clock.now += 60.0
    assert not origin.exists(PACK), "this call sees the record, and was placed before it"
    assert origin.exists(PACK)


@pytest.mark.parametrize("event", [MemberEvent.FAIL, MemberEvent.DRAIN])
def test_member_that_gets_nothing_any_more(stores: Stores, event: MemberEvent) -> None:
    stores.membership.change("near", event)
    origin = stores.open()
    assert origin.placement.place(PACK).members == ("home", "far")
    assert ("near" in origin.members) == (event is MemberEvent.DRAIN)


def test_member_that_was_given_up_is_no_obstacle(stores: Stores) -> None:
    stores.take_away("near")
    origin = stores.open()
    with pytest.raises(exception.UnavailableError):
        origin.exists(PACK)
    stores.membership.change("near", MemberEvent.FAIL)
    stores.clock.now += 60.0
    origin.exists(MOVED)  # a call of the home, which looks at the record
    assert not origin.exists(PACK)


def _no_home(stores: Stores) -> None:
    stores.stores["home"] = MemoryOrigin()


def _another_home(stores: Stores) -> None:
    stores.stores["home"], stores.stores["near"] = stores.inner["near"], stores.inner["home"]


@pytest.mark.parametrize("break_it", [_no_home, _another_home])
def test_first_store_has_to_be_the_home(stores: Stores, break_it: Callable[[Stores], None]) -> None:
    break_it(stores)
    with pytest.raises(exception.ConfigurationError, match="home"):
        stores.open()


def test_home_that_is_exchanged_is_not_believed(stores: Stores) -> None:
    origin = stores.open()
    other = Membership("home", {"home": MemoryOrigin(), "near": MemoryOrigin()})
    record = other.create()
    ref = stores.inner["home"].get_ref("members")
    assert ref is not None
    stores.inner["home"].swap_ref("members", ref.token, record.encode())
    stores.clock.now += 60.0
    with pytest.raises(exception.UnavailableError, match="home of another origin"):
        origin.exists(MOVED)


def test_services_open_it_by_its_url(tmp_path: pathlib.Path) -> None:
    addresses = []
    for name in ("home", "near"):
        (tmp_path / name).mkdir()
        addresses.append(MemberAddress(name, f"posix://{tmp_path / name}"))
    membership = Membership("home", {one.name: opening.open_driver(one.url) for one in addresses})
    membership.create()
    origin = opening.open_origin(url_of(addresses), 1.0)
    origin.put_if_absent(PACK, [b"chunks"])
    assert origin.get(PACK, 100) == b"chunks"
    origin.close()
    with pytest.raises(exception.ConfigurationError, match="2 to 4"):
        opening.open_origin("members:?home=posix%3A%2F%2F%2Fx", 1.0)

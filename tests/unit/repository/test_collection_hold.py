"""Holds: nothing is deleted while one is renewed, and one that is not renewed ends."""

import pathlib
import threading

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.gc.condemnation import Tombstone, Tombstones
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.gc.hold import HOLD_VERSION, LEASE_SECONDS, Hold, HoldKeeper, holders
from acstor.repository.repository import Repository
from testbed.fixtures.conditions import wait_for
from tests.unit.repository.images import disk, image_id, open_repository, register

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden" / "collection-hold-v2.json"


@pytest.fixture
def repository() -> Repository:
    """A repository with garbage: a pack and a manifest."""
    made = open_repository(memory.MemoryOrigin())
    register(made, 0, disk(1, 2))
    made.remove_image(image_id(0))
    return made


def collect(repository: Repository, now: float, host: str = "a") -> Report:
    return Collector(repository, host, 0.0, clock=lambda: now).collect()


def test_nothing_is_deleted_while_somebody_copies(repository: Repository) -> None:
    with HoldKeeper(repository.origin, "h1:7") as keeper:
        for now in (0.0, LEASE_SECONDS - 1):
            report = collect(repository, now)
            assert (report.holds, report.deleted) == (1, 0)
        assert report.waiting == 2
        keeper.renew()
        assert collect(repository, LEASE_SECONDS + 1).holds == 1
        keeper.renew()
    report = collect(repository, LEASE_SECONDS + 2)
    assert (report.holds, report.deleted) == (0, 2)


def test_hold_that_is_not_renewed_ends_and_its_holder_learns(repository: Repository) -> None:
    with HoldKeeper(repository.origin, "h1:7") as keeper:
        assert collect(repository, 0.0).holds == 1
        report = collect(repository, LEASE_SECONDS)
        assert (report.holds, report.deleted) == (0, 2)
        for call in (keeper.renew, keeper.check, keeper.renew):
            with pytest.raises(exception.ConflictError, match="has ended"):
                call()
    assert not list(repository.origin.list_refs(layout.CONDEMNED_PREFIX))


def test_each_collector_goes_by_its_own_clock(repository: Repository) -> None:
    with HoldKeeper(repository.origin, "h1:7"):
        assert collect(repository, 0.0, "a").holds == 1
        assert collect(repository, 1e9, "b").holds == 1, "it has not seen the hold before"
        assert collect(repository, -5.0, "a").holds == 1, "its clock was set back"
        assert collect(repository, LEASE_SECONDS - 6, "a").holds == 1
        assert collect(repository, 1e9 + LEASE_SECONDS, "b").holds == 0


def test_two_copies_hold_each_for_itself(repository: Repository) -> None:
    with HoldKeeper(repository.origin, "h1:7") as first, HoldKeeper(repository.origin, "h2:8"):
        assert first.name != ""
        assert collect(repository, 0.0).holds == 2
    assert collect(repository, 1.0).holds == 0


def test_hold_is_renewed_by_itself(repository: Repository) -> None:
    origin, earlier = repository.origin, set(threading.enumerate())
    with HoldKeeper(origin, "h1:7", renewal_seconds=0.01) as keeper:

        def renewals() -> int:
            ref = origin.get_ref(keeper.name)
            return Hold.parse(ref.content).renewal if ref else -1

        wait_for("two renewals", lambda: renewals() >= 2)
    assert origin.get_ref(keeper.name) is None
    left = set(threading.enumerate()) - earlier
    assert "collection-hold" not in {thread.name for thread in left}


def test_malformed_hold_ends_too(repository: Repository) -> None:
    name = layout.condemned_ref("f" * 64)
    repository.origin.swap_ref(name, None, b'{"version": 2, "kind": "hold", "seen": 7}')
    assert collect(repository, 0.0).holds == 1
    assert collect(repository, LEASE_SECONDS).holds == 0
    assert repository.origin.get_ref(name) is None


def test_hold_of_a_newer_release_stops_collections(repository: Repository) -> None:
    repository.origin.swap_ref(layout.condemned_ref("f" * 64), None, b'{"version": 3}')
    with pytest.raises(exception.UnsupportedError, match="hold on collections"):
        holders(repository.origin, "a", lambda: 0.0)


def test_collectors_without_holds_refuse_to_collect(repository: Repository) -> None:
    """A release before parses all that is among the tombstones."""
    with HoldKeeper(repository.origin, "h1:7") as keeper:
        ref = repository.origin.get_ref(keeper.name)
        assert ref is not None
        name = keeper.name.removeprefix(layout.CONDEMNED_PREFIX)
        assert layout.name_of(name) == name
        with pytest.raises(exception.UnsupportedError):
            Tombstone.parse(name, ref)
        assert not Tombstones(repository.origin).names()


def test_hold_version_requires_update() -> None:
    found = Hold.parse(GOLDEN.read_bytes())
    assert HOLD_VERSION == 2
    assert (found.holder, found.lease_seconds, found.renewal) == ("controller-1:4711", 900.0, 12)
    assert found.seen == {"controller-2": 1795261707.5}
    assert found.encode() == GOLDEN.read_bytes(), "bump HOLD_VERSION"

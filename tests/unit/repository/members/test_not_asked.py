"""Logs in a member that nobody asks: asleep, about to wake, or given up; and answers about them."""

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin.replicated.power.record import AWAKE, PowerRecord, swap_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.states import MemberEvent
from acstor.repository import layout
from acstor.repository.copying.roots import Root, RootReader
from acstor.repository.gc import claim
from acstor.repository.repository import Repository
from acstor.repository.volumes.restoring import RestorableVolumes
from tests.unit.repository.members.cloud import VOLUME, Cloud, Host

SNAPSHOT = VOLUME.replace("1111", "4444", 1)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with contextlib.closing(Cloud()) as made:
        yield made


@pytest.fixture
def owner(cloud: Cloud) -> Host:
    """An owner that writes in b, of which the others have the beginning."""
    cloud.allow(cloud.store, "x")
    cloud.store.assign(VOLUME, "b")
    host = cloud.host("x")
    host.acquire()
    host.write()
    cloud.keeping().run()
    host.write()
    return host


def found_off(cloud: Cloud) -> None:
    """Have b be switched on again, whose machine somebody has switched off: it slept before."""
    waking = dataclasses.replace(AWAKE, state=PowerState.WAKING, since=1.0)
    swap_power(cloud.stores["a"], None, PowerRecord({"b": waking}))


def root_of(cloud: Cloud, *, is_restore: bool = False) -> Root:
    reader = RootReader(Repository.open(cloud.open()), is_restore=is_restore)
    return next(one for one in reader.read_all() if one.name == layout.volume_ref(VOLUME))


def test_copy_of_the_repository_has_the_whole_log(cloud: Cloud, owner: Host) -> None:
    root = root_of(cloud)
    assert not root.damages
    assert layout.log_key(VOLUME, owner.epoch, owner.next - 1) in root.keys


@pytest.mark.parametrize("is_lost", [False, True])
def test_copy_takes_no_beginning_of_a_log_for_all_of_it(
    cloud: Cloud, owner: Host, is_lost: bool
) -> None:
    if is_lost:
        cloud.membership.change("b", MemberEvent.FAIL)
    else:
        found_off(cloud)
    root = root_of(cloud)
    keys = list(root.keys)
    assert layout.log_key(VOLUME, owner.epoch, owner.next - 2) in keys
    assert layout.log_key(VOLUME, owner.epoch, owner.next - 1) not in keys
    assert any("member b of the origin" in one.what for one in root.damages)


def test_what_is_read_of_a_copy_is_what_it_has(cloud: Cloud, owner: Host) -> None:
    found_off(cloud)
    assert not root_of(cloud, is_restore=True).damages
    assert owner.next


def test_released_log_is_whole_wherever_it_is(cloud: Cloud, owner: Host) -> None:
    owner.release()
    cloud.clock.now += 4000
    cloud.keeping().run()
    found_off(cloud)
    assert not root_of(cloud).damages


def test_what_a_member_may_have_is_not_taken_for_collected(cloud: Cloud, owner: Host) -> None:
    owner.advance()
    logs = cloud.record().logs
    found_off(cloud)
    with pytest.raises(exception.UnavailableError):
        claim.missing_logs(cloud.open(), logs)


def test_what_is_lost_with_a_member_is_missing(cloud: Cloud, owner: Host) -> None:
    owner.advance()
    logs = cloud.record().logs
    cloud.membership.change("b", MemberEvent.FAIL)
    assert claim.missing_logs(cloud.open(), logs) == [
        layout.log_key(VOLUME, owner.epoch, owner.next - 1)
    ]


def test_no_revert_begins_an_epoch_in_a_member_that_was_given_up(cloud: Cloud, owner: Host) -> None:
    """Nobody could end it, wherever the volume was assigned afterwards."""
    cloud.store.assign(VOLUME, None)
    owner.acquire()
    owner.write()
    owner.release()
    cloud.store.disallow_host(VOLUME, "x")
    cloud.clock.now += 4000
    cloud.keeping().run()
    cloud.store.snapshot(VOLUME, SNAPSHOT)
    cloud.store.assign(VOLUME, "b")
    cloud.membership.change("b", MemberEvent.FAIL)
    store = RestorableVolumes(Repository.open(cloud.open()))
    before = cloud.record()
    with pytest.raises(exception.UnavailableError, match="b of the origin is not in use"):
        store.revert(VOLUME, SNAPSHOT)
    with pytest.raises(exception.UnavailableError, match="b of the origin is not in use"):
        store.restore(VOLUME, before.disk, by="task", epoch=before.epoch)
    assert cloud.record() == before
    store.assign(VOLUME, "c")
    assert store.revert(VOLUME, SNAPSHOT).after.member == "c"
    cloud.allow(cloud.store, "y")
    host = cloud.host("y")
    host.acquire()
    host.write()
    assert cloud.views[-1][1] == ["x1", "x2", "x3"]

"""The one lease of a member and its lock in a real etcd cluster: its end, and who sees it."""

import dataclasses
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tooz
from tooz import coordination

from acstor.cluster.member import Member
from acstor.cluster.membership import (
    CoordinationSettings,
    Membership,
    open_coordinator,
    read_members,
)
from testbed.fixtures import etcd
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.etcd import EtcdCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not etcd.is_installed(), reason="needs etcd and etcd3gw"),
]

LASTS = 60
"""Seconds of a lease that is not to end by itself."""
SHORT = 6
"""Seconds of one that is to; etcd rounds up to what its elections take."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with etcd.etcd_cluster(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture
def group(tmp_path: pathlib.Path) -> str:
    return tmp_path.name


class Members:
    """Two members that beat when the test says so; the first holds the lock.

    :param timeout: seconds for which its lease lasts.
    """

    def __init__(self, cluster: EtcdCluster, group: str, timeout: int) -> None:
        self.settings = CoordinationSettings(cluster.backend_url, group, 1.0, LASTS)
        shorter = dataclasses.replace(self.settings, member_timeout=timeout)
        self.first = Membership(shorter, "h1", lambda: None)
        self.second = Membership(self.settings, "h2", lambda: None)
        for name, each in (("h1", self.first), ("h2", self.second)):
            each.join_as(
                Member(
                    name=name,
                    peer_address="10.0.0.1:7420",
                    metrics_address="127.0.0.1:1",
                    capacity_bytes=1 << 30,
                    release="1",
                )
            )
        # A short lease may be over where this stands still in the middle of the first beat.
        wait_for("the first to have the lock", lambda: self.beat(self.first))
        self.second.set_eligible(False)
        self.second._beat()
        self.second.set_eligible(True)

    @property
    def lease_id(self) -> int:
        """The first one's."""
        return int(self.first._coordinator.lease_id)

    def are_both_there(self) -> bool:
        """Have the first one beat; return whether another process reads both."""
        self.beat(self.first)
        return self.names() == ["h1", "h2"]

    def beat(self, membership: Membership) -> bool:
        """Have one try for the lock at once; return whether it has it."""
        membership._until_lock = 0
        try:
            membership._beat()
        except Exception as error:
            membership._lose(error)  # as its thread does
        return membership.is_elected()

    def names(self) -> list[str]:
        """Members as another process reads them."""
        coordinator = open_coordinator(self.settings, "observer")
        try:
            return sorted(read_members(coordinator, self.settings.group))
        finally:
            coordinator.stop()

    def leave(self) -> None:
        """Give everything back."""
        for each in (self.first, self.second):
            each._disconnect(leave=True)


@pytest.fixture
def members(cluster: EtcdCluster, group: str) -> Iterator[Members]:
    found = Members(cluster, group, LASTS)
    yield found
    found.leave()


def test_holder_that_was_stopped_for_longer_than_its_lease_has_lost_everything(
    cluster: EtcdCluster, group: str
) -> None:
    members = Members(cluster, group, SHORT)
    lease = members.lease_id

    def is_taken_over() -> bool:
        is_elected = members.beat(members.second)
        assert not (is_elected and members.first.is_elected()), "both hold it"
        return is_elected

    try:
        wait_for("the other to take over", is_taken_over, timeout=60)
        assert members.names() == ["h2"]
        assert not members.beat(members.first)
        assert members.lease_id != lease
        wait_for("both", members.are_both_there)
        assert members.beat(members.second)
    finally:
        members.leave()


def test_lease_that_was_revoked_is_seen_at_the_next_beat(members: Members) -> None:
    """While its holder's clock says that it lasts: by an operator, for instance."""
    members.first._coordinator._membership_lease.revoke()
    assert members.first.is_elected()
    assert members.names() == ["h2"]
    assert members.beat(members.second)

    assert not members.beat(members.first)
    assert members.names() == ["h1", "h2"]
    assert members.beat(members.second)


def test_revoked_lease_is_replaced_where_nobody_else_wants_the_lock(members: Members) -> None:
    lease = members.lease_id
    members.first._coordinator._membership_lease.revoke()
    assert members.beat(members.first)
    assert members.lease_id != lease
    assert not members.beat(members.second)
    assert members.names() == ["h1", "h2"]


def test_one_holds_the_lock_again_after_all_servers_were_killed(
    cluster: EtcdCluster, group: str
) -> None:
    members = Members(cluster, group, SHORT)

    def are_back() -> bool:
        holders = [members.beat(each) for each in (members.first, members.second)]
        assert not (members.first.is_elected() and members.second.is_elected())
        return any(holders) and members.first.view.is_current and members.second.view.is_current

    try:
        cluster.restart_all()
        wait_for("one to hold it", are_back, timeout=120)
        wait_for("both", members.are_both_there)
    finally:
        members.leave()


def test_lock_that_many_want_is_one_ones(cluster: EtcdCluster, group: str) -> None:
    """Those of a release before among them, which have a lease for each lock."""
    settings = CoordinationSettings(cluster.backend_url, group, 1.0, LASTS)
    name = f"{group}-lock".encode()
    coordinators = [open_coordinator(settings, f"h{number}") for number in range(6)]
    for url in settings.urls()[:2]:
        former = coordination.get_coordinator(url, b"former", executor="synchronous")
        former.start()
        coordinators.append(former)
    locks = [each.get_lock(name) for each in coordinators]
    for _ in range(5):
        held = contended(locks)
        assert len(held) == 1
        assert [lock for lock in locks if lock.acquired] == held
        assert not any(lock.acquire(blocking=False) for lock in locks if lock is not held[0])
        assert held[0].release()
        assert not held[0].acquired
        assert not held[0].release()
    for each in coordinators:
        each.stop()


def contended(locks: list[Any]) -> list[Any]:
    """Try for all of them at the same time; return those that are held."""
    ready, held = threading.Barrier(len(locks)), []

    def attempt(lock: Any) -> None:
        ready.wait()
        if lock.acquire(blocking=False):
            held.append(lock)

    threads = [threading.Thread(target=attempt, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return held


def test_lock_is_known_again_by_who_took_it_without_an_answer(members: Members) -> None:
    coordinator = members.first._coordinator
    lock, another = coordinator.get_lock(b"a"), coordinator.get_lock(b"a")
    assert lock.acquire(blocking=False)
    lock._taken_with = None  # as if the answer had been lost
    assert not another.acquire(blocking=False)
    assert lock.acquire(blocking=False)
    coordinator._membership_lease.revoke()
    with pytest.raises(tooz.ToozError):
        lock.acquire(blocking=False)
    coordinator.heartbeat()
    assert not lock.acquired
    assert another.acquire(blocking=False)
    assert not lock.acquire(blocking=False)

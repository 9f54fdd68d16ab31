"""Members and leaders of a real etcd cluster, whose servers die and hang one after the other."""

import pathlib
import signal
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.cluster.leader_lock import Leadership
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

MEMBER_TIMEOUT = 40
"""Seconds, in which all endpoints are tried while etcd itself elects, on a busy machine too."""
LOCK_TIMEOUT = 10
"""Seconds that the lock of a leader lasts whose server is gone."""
H1, H2 = (
    Member(
        name=name,
        peer_address="10.0.0.1:7420",
        metrics_address="127.0.0.1:1",
        capacity_bytes=1 << 30,
        release="1",
    )
    for name in ("h1", "h2")
)


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[EtcdCluster]:
    with etcd.etcd_cluster(tmp_path) as running:
        yield running


def settings(cluster: EtcdCluster, timeout: int = MEMBER_TIMEOUT) -> CoordinationSettings:
    return CoordinationSettings(cluster.backend_url, "acstor", 0.5, timeout)


def join(cluster: EtcdCluster, member: Member) -> Membership:
    membership = Membership(settings(cluster), member.name, lambda: None)
    membership.join_as(member)
    membership.start()
    return membership


def names(membership: Membership) -> list[str]:
    return sorted(membership.view.members) if membership.view.is_current else []


def is_publisher(membership: Membership) -> bool:
    return membership.view.is_current and membership.is_elected()


def wait_past(url: str, *members: Membership) -> None:
    """Wait until each of them sees both by another endpoint."""

    def is_past(membership: Membership) -> bool:
        return membership._endpoints.current != url and names(membership) == ["h1", "h2"]

    wait_for(f"both, not by {url}", lambda: all(map(is_past, members)), timeout=120)


def test_members_outlast_any_one_server(cluster: EtcdCluster) -> None:
    """One hangs and goes on, then one is killed, comes back, and the others are killed in turn."""
    first, second = members = join(cluster, H1), join(cluster, H2)
    urls = settings(cluster).urls()
    try:
        wait_for("both", lambda: names(first) == names(second) == ["h1", "h2"], timeout=60)
        since = [each.view.joined_at for each in members]
        for fault in (signal.SIGSTOP, signal.SIGKILL, signal.SIGKILL):
            index = urls.index(first._endpoints.current)
            cluster.send(index, fault)
            wait_past(urls[index], *members)
            if fault is signal.SIGSTOP:
                cluster.send(index, signal.SIGCONT)
            else:
                cluster.restart(index)
        assert [each.view.joined_at for each in members] == since  # nobody has missed them
        wait_for("one publishes", lambda: is_publisher(first) != is_publisher(second))
    finally:
        for each in members:
            each.stop(30, leave=True)
    coordinator = open_coordinator(settings(cluster), "observer")
    assert read_members(coordinator, "acstor") == {}
    coordinator.stop()


def test_lead_is_taken_up_again_by_another_server(cluster: EtcdCluster) -> None:
    first, second = (
        Leadership(settings(cluster, LOCK_TIMEOUT), "registrar", name, lambda: None)
        for name in ("r1", "r2")
    )
    first.start()
    second.start()
    try:
        wait_for("one leads", lambda: first.is_leader != second.is_leader, timeout=60)
        urls = settings(cluster, LOCK_TIMEOUT).urls()
        leader = first if first.is_leader else second
        index = urls.index(leader._endpoints.current)
        cluster.send(index, signal.SIGKILL)
        wait_for("it goes on", lambda: leader._endpoints.current != urls[index])
        wait_for("one leads again", lambda: first.is_leader != second.is_leader, timeout=120)
        # Who stood still in the middle of a beat tells of it until the next one.
        wait_for("no problem", lambda: first.problem is second.problem is None)
    finally:
        first.stop(30)
        second.stop(30)


def test_server_that_cannot_be_reached_is_named(cluster: EtcdCluster) -> None:
    cluster.stop()
    with pytest.raises(exception.UnavailableError, match=r"127\.0\.0\.1.*: ConnectionFailedError"):
        open_coordinator(settings(cluster), "observer")

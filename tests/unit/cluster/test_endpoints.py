"""Members and leaders of a coordination cluster of several endpoints."""

import logging
import pathlib

import pytest
from tooz import coordination

from acstor import exception
from acstor.cluster import leader_lock
from acstor.cluster import membership as membership_module
from acstor.cluster.endpoints import Endpoints
from acstor.cluster.leader_lock import Leadership
from acstor.cluster.membership import (
    CoordinationSettings,
    Membership,
    open_coordinator,
    read_members,
)
from acstor.conf import backend_urls, loading
from testbed.doubles.coordination_cluster import CoordinationCluster
from testbed.fixtures.conditions import wait_for
from tests.unit.cluster.ring_publishers import member

FIRST, SECOND, THIRD = (f"etcd3+http://e{number}:2379" for number in (1, 2, 3))
SETTINGS = CoordinationSettings(f"{FIRST}, {SECOND} {THIRD}", "acstor", 0.05, 10)
URLS = SETTINGS.urls()


@pytest.fixture
def cluster(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> CoordinationCluster:
    made = CoordinationCluster(
        membership_module.connect, f"file://{tmp_path}/coordination?timeout=10"
    )
    monkeypatch.setattr(membership_module, "connect", made.connect)
    monkeypatch.setattr(leader_lock, "connect", made.connect)
    return made


@pytest.fixture
def membership() -> Membership:
    made = Membership(SETTINGS, "h1", lambda: None)
    made.join_as(member("h1"))
    return made


def seen(cluster: CoordinationCluster) -> list[str]:
    coordinator = open_coordinator(SETTINGS, "observer")
    try:
        return sorted(read_members(coordinator, "acstor"))
    finally:
        coordinator.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:///c", ["file:///c"]),
        ("zookeeper://a:1,b:2", ["zookeeper://a:1,b:2"]),
        ("redis://r?sentinel=a&sentinel_fallback=b:1", None),
        (f"{FIRST},{SECOND}", [FIRST, SECOND]),
        (f" {FIRST},\n  {SECOND} ,{THIRD}\n", [FIRST, SECOND, THIRD]),
        ("etcd3+https://u:p,w@a?x=1 etcd3+https://b?x=1", None),
    ],
)
def test_urls_are_separated_by_spaces_or_commas(text: str, expected: list[str] | None) -> None:
    wanted = text.split(" ") if expected is None else expected
    assert list(backend_urls.split(text)) == wanted


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("redis://u:hunter2@a redis://b", "redis://"),
        ("etcd3+http://u:hunter2@a, file:///c", "file://"),
        ("etcd3+http://u:hunter2@a etcd3+https://b", "differ"),
        ("etcd3+http://a?api_version=v3,etcd3+http://u:hunter2@b", "differ"),
        ("etcd3+http://a/x etcd3+http://u:hunter2@b/y", "differ"),
    ],
)
def test_urls_that_are_not_of_one_cluster_are_refused(text: str, wrong: str) -> None:
    with pytest.raises(exception.ConfigurationError, match=wrong) as caught:
        Membership(CoordinationSettings(text, "acstor", 1, 10), "h1", lambda: None)
    assert "hunter2" not in str(caught.value) + str(caught.value.hint)


def test_urls_may_stand_on_lines_of_their_own(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[coordination]\nbackend_url =\n    {FIRST}\n    {SECOND}\ngroup = g\n")
    conf = loading.load("test", ["--config-file", str(path)])
    assert backend_urls.split(conf.coordination.backend_url) == (FIRST, SECOND)


def test_urls_that_cannot_be_used_are_told_at_the_start(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[coordination]\nbackend_url = {FIRST} redis://u:hunter2@r\n")
    with pytest.raises(exception.ConfigurationError, match="redis://") as caught:
        loading.load("test", ["--config-file", str(path)])
    assert "hunter2" not in str(caught.value)


def test_each_endpoint_gets_the_timeouts_that_it_does_not_name() -> None:
    timeouts = "membership_timeout=10&lock_timeout=10&timeout=5"
    assert list(URLS) == [f"{url}?{timeouts}" for url in (FIRST, SECOND, THIRD)]


def test_endpoints_are_taken_in_turn_and_told_without_passwords(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoints = Endpoints(["etcd3+http://u:hunter2@e1", "etcd3+http://u:hunter2@e2"])
    taken = []
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            taken.append(endpoints.current.partition("@")[2])
            endpoints.fail()
    assert taken == ["e1", "e2", "e1"]
    assert "e1" in caplog.text
    assert "hunter2" not in caplog.text


def test_one_endpoint_stays(caplog: pytest.LogCaptureFixture) -> None:
    endpoints = Endpoints(["file:///c"])
    with caplog.at_level(logging.DEBUG):
        endpoints.fail()
    assert (endpoints.current, endpoints.is_alone, caplog.text) == ("file:///c", True, "")


def test_dead_endpoint_is_passed_over(cluster: CoordinationCluster, membership: Membership) -> None:
    cluster.down = {URLS[0]}
    membership.start()
    try:
        wait_for("joined", lambda: membership.view.is_current)
        assert list(membership.view.members) == ["h1"]
        assert cluster.attempts == {URLS[0]: 1, URLS[1]: 1}
    finally:
        membership.stop(10, leave=True)


def test_member_whose_endpoint_dies_is_not_missed(
    cluster: CoordinationCluster, membership: Membership
) -> None:
    membership.start()
    try:
        wait_for("joined", lambda: membership.view.is_publisher)
        joined_at = membership.view.joined_at
        for dead in (URLS[0], URLS[1], URLS[2]):  # the first one is back after the third
            cluster.down = {dead}
            wait_for("lost", lambda: membership.view.problem)
            assert seen(cluster) == ["h1"]
            wait_for("on by the next one", lambda: membership.view.is_current)
            assert seen(cluster) == ["h1"]
        assert membership.view.joined_at == joined_at
        assert membership._endpoints.current == URLS[0]
        assert cluster.stops == 6  # of those who looked: the member itself never left
    finally:
        membership.stop(10, leave=True)
    assert cluster.stops == 7


def test_cluster_that_is_down_is_asked_with_the_delays_of_one_endpoint(
    cluster: CoordinationCluster, membership: Membership
) -> None:
    cluster.down = set(URLS)
    for _ in range(9):
        with pytest.raises(Exception, match="is down") as caught:
            membership._beat()
        membership._lose(caught.value)
    assert set(cluster.attempts.values()) == {3}
    delays = [membership._delay() for _ in range(200)]
    assert max(delays) > 7.5  # as after nine failures of one, though each had three


def test_lead_goes_on_by_another_endpoint(cluster: CoordinationCluster) -> None:
    changes: list[bool] = []
    leader = Leadership(SETTINGS, "registrar", "r1", lambda: changes.append(leader.is_leader))
    leader.start()
    try:
        wait_for("it leads", lambda: leader.is_leader)
        cluster.down = {URLS[0]}
        wait_for("it has lost the lead", lambda: False in changes)
        wait_for("it leads again", lambda: leader.is_leader)
        assert leader._endpoints.current == URLS[1]
        assert cluster.stops == 0
    finally:
        leader.stop(10)


def test_any_endpoint_that_answers_does_for_a_command(cluster: CoordinationCluster) -> None:
    cluster.down = {URLS[0], URLS[1]}
    open_coordinator(SETTINGS, "observer").stop()
    cluster.down = set(URLS)
    with pytest.raises(Exception, match="e3:2379"):
        open_coordinator(SETTINGS, "observer")


def test_error_without_a_text_is_told_by_its_kind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of etcd3gw, which are no ToozError either."""

    class ConnectionFailedError(Exception):
        pass

    class Coordinator:
        def start(self, start_heart: bool) -> None:
            raise ConnectionFailedError

    monkeypatch.setattr(coordination, "get_coordinator", lambda *_, **__: Coordinator())
    with pytest.raises(exception.UnavailableError, match=r"e1:2379.*: ConnectionFailedError"):
        open_coordinator(CoordinationSettings(FIRST, "acstor", 1, 10), "h1")

"""Members and the publisher's lock on one lease of etcd: requests of each beat, and its end."""

import collections
import io
import json
import pathlib
from typing import Any

import pytest
import requests
import tooz
from etcd3gw import exceptions
from oslo_utils import netutils
from tooz.drivers import etcd3gw

from acstor.cluster import etcd
from acstor.cluster.leader_lock import Leadership
from acstor.cluster.membership import (
    MEMBERS_EVERY,
    OWN_ENTRY_EVERY,
    CoordinationSettings,
    Membership,
    open_coordinator,
    read_members,
)
from testbed.doubles.memory_etcd import MemoryClient, MemoryEtcd
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.cluster.ring_publishers import member

URL = "etcd3+http://127.0.0.1"
BEAT, TIMEOUT = 2.0, 10
BEATS = 120


class Cloud:
    """Members that beat when the test says so."""

    def __init__(self, url: str = URL) -> None:
        self.time = VirtualTime(100.0)
        self.etcd = MemoryEtcd(self.time)
        self.settings = CoordinationSettings(url, "acstor", BEAT, TIMEOUT)
        self.members: list[Membership] = []

    def join(self, name: str) -> Membership:
        found = Membership(self.settings, name, lambda: None, clock=self.time)
        found.join_as(member(name))
        found._beat()
        self.members.append(found)
        return found

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.time.sleep(BEAT)
            for each in self.members:
                each._beat()

    def requests_of(self, membership: Membership) -> collections.Counter[str]:
        """Return what a member asks in :data:`BEATS` beats, in which nothing happens."""
        others = [each for each in self.members if each is not membership]
        found: collections.Counter[str] = collections.Counter()
        for _ in range(BEATS):
            self.time.sleep(BEAT)
            for other in others:
                other._beat()
            before = collections.Counter(self.etcd.requests)
            membership._beat()
            found += self.etcd.requests - before
        return found


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    found = Cloud()
    monkeypatch.setattr("etcd3gw.client", found.etcd.client)
    return found


def test_publisher_sends_two_requests_at_each_beat(cloud: Cloud) -> None:
    publisher, other = cloud.join("h1"), cloud.join("h2")
    cloud.beat(2)
    assert publisher.is_elected()
    assert not other.is_elected()
    assert cloud.requests_of(publisher) == {"refresh": BEATS, "get_prefix": BEATS}


def test_member_sends_one_request_at_each_beat_and_some_now_and_then(cloud: Cloud) -> None:
    _, other = cloud.join("h1"), cloud.join("h2")
    cloud.beat(2)
    found = cloud.requests_of(other)
    assert found.pop("refresh") == BEATS
    assert found.pop("transaction") <= BEATS  # of two members each tries for the lock at one or two
    assert found.pop("get") <= BEATS / OWN_ENTRY_EVERY + 1
    assert found.pop("get_prefix") <= 2 * BEATS / MEMBERS_EVERY + 1
    assert not found


def test_leader_sends_one_request_at_each_beat(cloud: Cloud) -> None:
    leader = Leadership(cloud.settings, "registrar", "r1", lambda: None, clock=cloud.time)
    leader._beat()
    assert leader.is_leader
    before = collections.Counter(cloud.etcd.requests)
    for _ in range(BEATS):
        cloud.time.sleep(BEAT)
        leader._beat()
    assert leader.is_leader
    assert cloud.etcd.requests - before == {"refresh": BEATS}


def test_lease_that_has_ended_is_seen_at_the_next_beat_with_all_that_it_had(cloud: Cloud) -> None:
    """Not in time to be seen by the clock: revoked by an operator, or by etcd's own recovery."""
    publisher, other = cloud.join("h1"), cloud.join("h2")
    cloud.beat(2)
    assert publisher.is_elected()
    cloud.etcd.revoke(publisher._coordinator.lease_id)
    observer = open_coordinator(cloud.settings, "observer")
    assert sorted(read_members(observer, "acstor")) == ["h2"]

    other._until_lock = 0
    other._beat()
    publisher._beat()

    assert other.is_elected()
    assert not publisher.is_elected()
    assert not publisher.view.is_publisher
    assert sorted(read_members(observer, "acstor")) == ["h1", "h2"]


def test_lock_of_a_holder_that_was_stopped_is_nobodys_but_the_next_ones(cloud: Cloud) -> None:
    stopped, other = cloud.join("h1"), cloud.join("h2")
    cloud.beat(2)
    cloud.members.remove(stopped)
    cloud.beat(TIMEOUT)
    assert other.is_elected()
    assert not stopped.is_elected()
    stopped._beat()
    assert other.is_elected()
    assert not stopped.is_elected()


def test_lock_that_is_given_back_is_free_at_once(cloud: Cloud) -> None:
    publisher, other = cloud.join("h1"), cloud.join("h2")
    cloud.beat(2)
    publisher.set_eligible(False)
    publisher._beat()
    other._until_lock = 0
    other._beat()
    assert (publisher.is_elected(), other.is_elected()) == (False, True)
    # What is another's stays so.
    assert publisher._lock is not None
    assert not publisher._lock._lock.release()
    cloud.beat()
    assert other.is_elected()


def test_lock_is_the_same_as_that_of_a_release_before(cloud: Cloud) -> None:
    """It has a lease for each lock, and a cloud is upgraded host by host."""
    former = etcd3gw.Etcd3Driver(b"h0", netutils.urlsplit(URL), {"executor": "synchronous"})
    former.start()
    lock = former.get_lock(b"acstor-ring-publisher")
    assert lock.acquire(blocking=False)
    member = cloud.join("h1")
    assert not member.is_elected()
    assert lock.release()
    member._until_lock = 0
    member._beat()
    assert member.is_elected()
    assert not lock.acquire(blocking=False)


def test_lock_with_a_time_of_its_own_has_a_lease_of_its_own(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = Cloud(f"{URL}?lock_timeout=6")
    monkeypatch.setattr("etcd3gw.client", shorter.etcd.client)
    publisher, other = shorter.join("h1"), shorter.join("h2")
    shorter.beat(2)
    assert publisher.is_elected()
    assert shorter.requests_of(publisher)["refresh"] == 2 * BEATS
    shorter.members.remove(publisher)
    shorter.time.sleep(7.0)
    other._until_lock = 0
    other._beat()
    assert other.is_elected()


def test_lock_is_not_taken_with_a_lease_that_has_ended(cloud: Cloud) -> None:
    coordinator = open_coordinator(cloud.settings, "h1")
    lock = coordinator.get_lock(b"a")
    assert not lock.acquired
    cloud.etcd.revoke(coordinator.lease_id)
    with pytest.raises(tooz.ToozError):
        lock.acquire(blocking=False)
    assert not lock.acquired
    coordinator.heartbeat()
    assert lock.acquire(blocking=False)
    assert lock.acquired


class Unanswered(MemoryClient):
    """A client that gets no answer to transactions, which are carried out all the same."""

    def transaction(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Carry it out."""
        super().transaction(wanted)
        raise exceptions.ConnectionTimeoutError


def test_lock_that_was_taken_without_an_answer_is_known_again(cloud: Cloud) -> None:
    """It lasts as long as the membership, so that nobody else could ever take it."""
    coordinator, other = (open_coordinator(cloud.settings, name) for name in ("h1", "h2"))
    lock, others = coordinator.get_lock(b"a"), other.get_lock(b"a")
    answering, coordinator.client = coordinator.client, Unanswered(cloud.etcd)
    with pytest.raises(tooz.ToozError, match="ConnectionTimeoutError"):
        lock.acquire(blocking=False)
    coordinator.client = answering
    assert not lock.acquired
    assert not others.acquire(blocking=False)
    assert lock.acquire(blocking=False)
    assert lock.acquired
    # By its key alone: another with the same name on the same lease is another.
    assert not coordinator.get_lock(b"a").acquire(blocking=False)


class Terse(MemoryClient):
    """A client of a server that leaves out of its answers what it likes."""

    def __init__(self, etcd: MemoryEtcd, answer: dict[str, Any]) -> None:
        super().__init__(etcd)
        self._answer = answer

    def transaction(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Carry it out, and tell little of it."""
        super().transaction(wanted)
        return self._answer


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"responses": []},
        {"responses": [{}]},
        {"responses": [{"response_range": {"kvs": [{}]}}]},
    ],
    ids=["nothing", "no response", "no range", "no fields"],
)
def test_lock_whose_holder_is_not_told_is_another_ones(
    cloud: Cloud, answer: dict[str, Any]
) -> None:
    """And is no failure, which would have the member join anew each time that it tries."""
    coordinator = open_coordinator(cloud.settings, "h1")
    lock = coordinator.get_lock(b"a")
    coordinator.client = Terse(cloud.etcd, answer)
    assert not lock.acquire(blocking=False)
    assert not lock.acquired


def test_lock_that_was_given_back_without_an_answer_is_not_held_on(cloud: Cloud) -> None:
    """Else a host that may publish again would go on with what is another's by then."""
    publisher, other = cloud.join("h1"), cloud.join("h2")
    cloud.beat(2)
    connected = publisher._coordinator
    connected.client = Unanswered(cloud.etcd)
    publisher.set_eligible(False)
    with pytest.raises(tooz.ToozError):
        publisher._beat()
    other._until_lock = 0
    other._beat()
    publisher._lose(OSError("as its thread does"))
    publisher.set_eligible(True)
    publisher._beat()
    assert publisher._coordinator is not connected
    assert (publisher.is_elected(), other.is_elected()) == (False, True)


def test_lock_is_neither_waited_for_nor_shared(cloud: Cloud) -> None:
    lock = open_coordinator(cloud.settings, "h1").get_lock(b"a")
    for wanted in ({"blocking": True}, {"blocking": False, "shared": True}):
        with pytest.raises(tooz.NotImplemented):
            lock.acquire(**wanted)


def test_environment_of_requests_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/of-the-site.pem")
    monkeypatch.setenv("NO_PROXY", "etcd-2")
    for url, proxies in (
        ("https://etcd-1:2379", {"https": "http://proxy:3128"}),
        ("https://etcd-2:2379", {}),
    ):
        session = requests.Session()
        wanted = session.merge_environment_settings(url, {}, None, None, None)
        prepared = etcd.PreparedSession(session, url)
        assert not prepared.trust_env
        found = prepared.merge_environment_settings(url, {}, None, None, None)
        assert {name: found["proxies"].get(name) for name in proxies} == proxies
        assert (found["proxies"], found["verify"]) == (wanted["proxies"], wanted["verify"])
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    own = requests.Session()
    # As of the URL's ca_cert, cert_cert and cert_key.
    own.verify, own.cert = "/etc/acstor/ca.pem", ("/etc/acstor/etcd.pem", "/etc/acstor/etcd.key")
    prepared = etcd.PreparedSession(own, "https://etcd-1:2379")
    assert (prepared.verify, prepared.cert) == (own.verify, own.cert)


class Requests(requests.adapters.BaseAdapter):
    """Keeps what is sent, and answers that all is well."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[requests.PreparedRequest, Any]] = []

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        """Keep it."""
        self.sent.append((request, options["timeout"]))
        answer = requests.Response()
        answer.status_code, answer.request, answer.url = 200, request, str(request.url)
        answer.raw = io.BytesIO(b"{}")
        return answer

    def close(self) -> None:
        """Do nothing."""


def test_request_is_prepared_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine etcd login acstor password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    url, adapter = "http://etcd:2379", Requests()
    session = etcd.PreparedSession(requests.Session(), url)
    session.mount(url, adapter)
    for _ in range(2):
        assert session.post(f"{url}/v3/lease/keepalive", json={"ID": 7}, timeout=5).json() == {}
        session.post(f"{url}/v3/kv/txn", data='{"compare": []}', timeout=4)
        session.post(f"{url}/v3/lease/keepalive", json={"ID": 8}, timeout=5)
    assert [json.loads(str(request.body)) for request, _ in adapter.sent[:3]] == [
        {"ID": 7},
        {"compare": []},
        {"ID": 8},
    ]
    assert [timeout for _, timeout in adapter.sent] == [5, 4, 5] * 2
    for (first, _), (second, _) in zip(adapter.sent[:3], adapter.sent[3:], strict=True):
        assert first is second
        assert first.method == "POST"
        assert str(first.headers["Authorization"]).startswith("Basic ")
    assert [request.path_url for request, _ in adapter.sent[:2]] == [
        "/v3/lease/keepalive",
        "/v3/kv/txn",
    ]

"""Hosts are told whose disks they are to keep, whoever says so."""

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.project_settings import ProjectDefaults
from acstor.versions.lifecycle import followed_servers
from acstor.versions.lifecycle.followed_servers import FollowedServers
from acstor.versions.lifecycle.server_requests import ServerRequests
from acstor.versions.retention import Policy
from acstor.versions.services.compute import Server
from testbed.doubles.memory_compute import MemoryCompute
from testbed.fixtures.conditions import wait_for
from tests.compliance.databases import DATABASES, new_clock
from tests.unit.versions.lifecycle.test_server_events import SERVER, payload

SHUTDOWN = frozenset({Trigger.SHUTDOWN})
Word = tuple[str, str, frozenset[Trigger]]


class Hosts:
    """Hosts that are told.

    :ivar error: raised in place of hearing.
    """

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.tries = 0
        self.error: Exception | None = None
        self.is_open = threading.Event()
        self.is_open.set()

    def __call__(self, host: str, server: str, on: frozenset[Trigger]) -> None:
        self.tries += 1
        assert self.is_open.wait(60)
        if self.error is not None:
            raise self.error
        self.words.append((host, server, on))


@pytest.fixture
def stores(tmp_path: pathlib.Path) -> Stores:
    return stores_of(DATABASES["memory"](tmp_path, new_clock()))


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def followed(stores: Stores, hosts: Hosts) -> Iterator[FollowedServers]:
    found = FollowedServers(ServerRequests(stores, lambda image: {}), hosts)
    yield found
    found.stop()


def told(hosts: Hosts, count: int) -> list[Word]:
    wait_for("hosts are told", lambda: len(hosts.words) >= count)
    return hosts.words


def test_host_is_told_what_metadata_ask_for(followed: FollowedServers, hosts: Hosts) -> None:
    followed.hear("instance.create.end", payload())
    assert told(hosts, 1) == [("compute-1", SERVER, SHUTDOWN)]


def test_host_is_told_what_the_project_asks_for(
    followed: FollowedServers, hosts: Hosts, stores: Stores
) -> None:
    stores.defaults.put("p1", ProjectDefaults(frozenset({Trigger.DELETE}), Policy()))
    followed.hear("instance.create.end", payload(metadata={}))
    assert told(hosts, 1) == [("compute-1", SERVER, frozenset({Trigger.DELETE}))]


def test_host_is_told_that_it_is_over(followed: FollowedServers, hosts: Hosts) -> None:
    followed.hear("instance.create.end", payload())
    told(hosts, 1)
    wait_for("it is noted", lambda: followed._told == {SERVER: "compute-1"})
    followed.hear("instance.update", payload(metadata={"acstor:version_on": "none"}))
    assert told(hosts, 2)[1] == ("compute-1", SERVER, frozenset())
    followed.hear("instance.update", payload(metadata={"acstor:version_on": "none"}))


def test_nobody_is_told_of_servers_that_ask_for_nothing(
    followed: FollowedServers, hosts: Hosts
) -> None:
    followed.hear("instance.create.end", payload(metadata={}))
    followed.hear("instance.exists", payload())
    followed.hear("instance.create.end", payload(host=None))
    followed.hear("instance.create.end", payload(uuid="nonsense"))
    followed.hear("instance.create.end", None)
    followed.hear("instance.create.end", payload(uuid=SERVER.replace("46", "47")))
    assert [word[1] for word in told(hosts, 1)] == [SERVER.replace("46", "47")]


def test_all_are_told_again_at_each_look(followed: FollowedServers, hosts: Hosts) -> None:
    compute = MemoryCompute()
    for number in range(5):
        compute.add(f"s{number}", "p1", f"h{number % 2}")
        asks = {"acstor:version_on": "shutdown"} if number else {}
        compute.change(f"s{number}", metadata=asks)
    compute.add("nowhere", "p1", None)
    for look in range(2):
        assert followed.look(compute.servers()) == 4
        told(hosts, 4 * (look + 1))
    assert {word[1] for word in hosts.words} == {"s1", "s2", "s3", "s4"}


def test_changed_metadata_are_found_at_the_next_look(
    followed: FollowedServers, hosts: Hosts
) -> None:
    compute = MemoryCompute()
    compute.add("s1", "p1", "h1")
    compute.change("s1", metadata={"acstor:version_on": "shutdown"})
    followed.look(compute.servers())
    told(hosts, 1)
    wait_for("it is noted", lambda: bool(followed._told))
    compute.change("s1", metadata={})
    followed.look(compute.servers())
    assert told(hosts, 2)[1] == ("h1", "s1", frozenset())
    del compute.known["s1"]
    wait_for("it is forgotten", lambda: not followed._told)
    assert followed.look(compute.servers()) == 0


@pytest.mark.parametrize(
    "error",
    [
        exception.DeadlineError("silent"),
        exception.UnsupportedError("captures are off"),
        RuntimeError("a fault"),
    ],
)
def test_host_that_does_not_hear_is_told_at_the_next_look(
    followed: FollowedServers, hosts: Hosts, error: Exception
) -> None:
    hosts.error = error
    followed.hear("instance.create.end", payload())
    wait_for("it was tried", lambda: hosts.tries == 1 and not followed._waiting)
    assert followed._told == {}
    hosts.error = None
    compute = MemoryCompute()
    compute.add(SERVER, "p1", "compute-1")
    compute.change(SERVER, metadata={"acstor:version_on": "shutdown"})
    followed.look(compute.servers())
    assert told(hosts, 1) == [("compute-1", SERVER, SHUTDOWN)]


def test_latest_word_counts_where_hosts_are_slow(
    followed: FollowedServers, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.is_open.clear()
    for number in range(followed_servers.CALLS_AT_A_TIME):
        followed.hear("instance.create.end", payload(uuid=SERVER.replace("46", f"{50 + number}")))
    wait_for("all are busy", lambda: hosts.tries == followed_servers.CALLS_AT_A_TIME)
    for words in ("shutdown", "delete", "shutdown,delete"):
        followed.hear("instance.update", payload(metadata={"acstor:version_on": words}))
    monkeypatch.setattr(followed_servers, "WAITING_MAX", 1)
    followed.hear("instance.update", payload(uuid=SERVER.replace("46", "99")))
    assert list(followed._waiting) == [SERVER]
    hosts.is_open.set()
    words_of_it = [word for word in told(hosts, 9) if word[1] == SERVER]
    assert words_of_it == [("compute-1", SERVER, frozenset({Trigger.SHUTDOWN, Trigger.DELETE}))]


def test_absent_glance_ends_a_look_and_no_notification(stores: Stores, hosts: Hosts) -> None:
    def away(image: str) -> Any:
        raise exception.UnavailableError("Glance is away")

    followed = FollowedServers(ServerRequests(stores, away), hosts)
    followed.hear("instance.create.end", payload(metadata={}))
    server = Server("s", "p1", "", "ACTIVE", "h1", "image", None, {}, {})
    with pytest.raises(exception.UnavailableError):
        followed.look([server])
    followed.stop()
    followed.hear("instance.create.end", payload())
    assert hosts.words == []

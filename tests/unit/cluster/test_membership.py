"""Membership on the embedded backend: directories and locks of this machine."""

import collections
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.cluster import membership as membership_module
from acstor.cluster.member import Member
from acstor.cluster.membership import (
    MEMBERS_EVERY,
    CoordinationSettings,
    Membership,
    open_coordinator,
    read_members,
)
from testbed.fixtures.conditions import wait_for


def member(name: str, **fields: object) -> Member:
    described = {
        "name": name,
        "peer_address": "10.0.0.1:7420",
        "metrics_address": "127.0.0.1:1",
        "capacity_bytes": 1 << 30,
        "release": "1",
        **fields,
    }
    return Member(**described)  # type: ignore[arg-type]


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> CoordinationSettings:
    return CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 2)


@pytest.fixture
def join(settings: CoordinationSettings) -> Iterator[Callable[[Member], Membership]]:
    started: list[Membership] = []

    def join(wanted: Member) -> Membership:
        membership = Membership(settings, wanted.name, lambda: None)
        membership.join_as(wanted)
        membership.start()
        started.append(membership)
        return membership

    yield join
    for membership in started:
        membership.stop(10, leave=True)


def names(membership: Membership) -> list[str]:
    return sorted(membership.view.members) if membership.view.is_current else []


def test_members_see_each_other_with_what_they_tell(
    join: Callable[[Member], Membership],
) -> None:
    first, second = join(member("h1", topology="a/b")), join(member("h2"))
    wait_for("both see both", lambda: names(first) == names(second) == ["h1", "h2"])
    told = member("h1", topology="a/b")
    wait_for("what it tells", lambda: second.view.members.get("h1") == told)


def only_publisher(memberships: list[Membership]) -> Membership:
    """Wait until one publishes: none does for a moment where all of them stood still."""

    def found() -> Membership | None:
        publishers = [each for each in memberships if each.view.is_publisher]
        assert len(publishers) < 2
        return publishers[0] if publishers else None

    return wait_for("a publisher", found)


def test_exactly_one_is_the_publisher(join: Callable[[Member], Membership]) -> None:
    memberships = [join(member(f"h{number}")) for number in range(3)]
    wait_for("all see all", lambda: all(len(names(each)) == 3 for each in memberships))
    former = only_publisher(memberships)
    former.stop(10, leave=True)
    rest = [each for each in memberships if each is not former]
    assert only_publisher(rest) in rest


def test_publisher_stopped_for_longer_than_its_lock_lasts_gives_it_up_first(
    settings: CoordinationSettings,
) -> None:
    now = [100.0]
    membership = Membership(settings, "c1", lambda: None, clock=lambda: now[0])
    membership.join_as(member("c1"))
    seen = []
    for passed in (0.0, settings.member_timeout / 2, settings.member_timeout):
        now[0] += passed
        connected = membership._coordinator
        membership._beat()
        # A heartbeat over the same connection would renew what may be another's by now.
        seen.append((membership.view.is_publisher, membership._coordinator is connected))
    membership._disconnect(leave=True)
    assert seen == [(True, False), (True, True), (True, False)]


def test_changed_description_reaches_the_others(join: Callable[[Member], Membership]) -> None:
    first, second = join(member("h1")), join(member("h2"))
    wait_for("both see both", lambda: names(first) == names(second) == ["h1", "h2"])
    first.join_as(member("h1", is_draining=True))
    draining = member("h1", is_draining=True)
    wait_for("the change", lambda: second.view.members.get("h1") == draining)


def test_leaving_is_seen_at_once_and_staying_until_the_timeout(
    join: Callable[[Member], Membership], settings: CoordinationSettings
) -> None:
    observer, restarting, leaving = (join(member(f"h{number}")) for number in range(3))
    wait_for("all", lambda: names(observer) == ["h0", "h1", "h2"])
    leaving.stop(10, leave=True)
    wait_for("one left", lambda: names(observer) == ["h0", "h1"])
    restarting.stop(10, leave=False)
    renewed_at = restarting._renewed_at
    assert renewed_at is not None
    found = read_members(open_coordinator(settings, "fresh"), "acstor")
    # Unless this stood still for that long meanwhile.
    assert "h1" in found or time.monotonic() - renewed_at >= settings.member_timeout
    wait_for("it is forgotten", lambda: names(observer) == ["h0"])


def test_killed_member_joins_again_under_its_name(
    join: Callable[[Member], Membership], settings: CoordinationSettings
) -> None:
    killed = open_coordinator(settings, "h1")
    killed.create_group(b"acstor").get()
    killed.join_group(b"acstor", {"version": 1}).get()
    again = join(member("h1"))
    wait_for("joined again", lambda: names(again) == ["h1"])


def test_member_that_the_backend_forgot_joins_again(
    join: Callable[[Member], Membership], settings: CoordinationSettings
) -> None:
    membership = join(member("h1"))
    wait_for("joined", lambda: names(membership) == ["h1"])
    other = open_coordinator(settings, "h1")
    other.leave_group(b"acstor").get()
    fresh = open_coordinator(settings, "observer")
    wait_for("joined again", lambda: "h1" in read_members(fresh, "acstor"))


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_membership_counts_from_before_a_short_absence(
    settings: CoordinationSettings, is_forgotten: bool
) -> None:
    now = [100.0]
    membership = Membership(settings, "h1", lambda: None, clock=lambda: now[0])
    membership.join_as(member("h1"))
    membership._beat()
    for _ in range(3):
        now[0] += settings.member_timeout
        if is_forgotten:
            membership._coordinator.leave_group(b"acstor").get()
        else:
            membership._lose(OSError("gone"))
        membership._beat()
        assert membership.view.joined_at == 100.0
    now[0] += settings.member_timeout + 0.1
    membership._lose(OSError("gone"))
    membership._beat()
    assert membership.view.joined_at == now[0]
    membership._disconnect(leave=True)


def test_lost_backend_keeps_the_view_and_is_reached_again(
    join: Callable[[Member], Membership], tmp_path: pathlib.Path
) -> None:
    membership = join(member("h1"))
    wait_for("joined", lambda: names(membership) == ["h1"])
    backend = tmp_path / "coordination"
    backend.rename(tmp_path / "away")
    backend.write_text("in the way")
    wait_for("lost", lambda: membership.view.problem)
    assert list(membership.view.members) == ["h1"]
    assert not membership.view.is_publisher
    backend.unlink()
    (tmp_path / "away").rename(backend)
    wait_for("back", lambda: names(membership) == ["h1"])


def test_members_are_read_by_who_needs_them(
    join: Callable[[Member], Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: collections.Counter[str] = collections.Counter()
    real = membership_module.read_members

    def counted(coordinator: Any, group: str) -> dict[str, Member]:
        readers[threading.current_thread().name] += 1
        return real(coordinator, group)

    monkeypatch.setattr(membership_module, "read_members", counted)
    memberships = [join(member(f"h{number}")) for number in range(2)]
    wait_for("both see both", lambda: all(len(names(each)) == 2 for each in memberships))
    publisher = only_publisher(memberships)
    (other,) = [each for each in memberships if each is not publisher]
    for each in memberships:
        each._thread.name = "publisher" if each is publisher else "other"
    wait_for("many beats", lambda: readers["publisher"] >= 2 * MEMBERS_EVERY)
    assert 1 <= readers["other"] <= readers["publisher"] / 4
    assert other.view.is_current


def test_being_no_member_is_possible(join: Callable[[Member], Membership]) -> None:
    first, second = join(member("h1")), join(member("h2"))
    wait_for("both", lambda: names(second) == ["h1", "h2"])
    first.join_as(None)
    wait_for("one", lambda: names(second) == ["h2"])
    assert not first.view.is_publisher


def test_malformed_member_is_left_out(
    join: Callable[[Member], Membership], settings: CoordinationSettings
) -> None:
    membership = join(member("h1"))
    wait_for("joined", lambda: names(membership) == ["h1"])
    stranger = open_coordinator(settings, "stranger")
    stranger.join_group(b"acstor", {"version": 1, "name": "h1"}).get()
    assert sorted(read_members(stranger, "acstor")) == ["h1"]


def test_change_is_announced_to_the_owner(settings: CoordinationSettings) -> None:
    changed = threading.Event()
    membership = Membership(settings, "h1", changed.set)
    membership.join_as(member("h1"))
    membership.start()
    assert changed.wait(20)
    membership.stop(10, leave=True)


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        {},
        {"version": 1},
        {**member("h1").to_capabilities(), "version": "1"},
        {**member("h1").to_capabilities(), "capacity_bytes": -1},
        {**member("h1").to_capabilities(), "capacity_bytes": True},
        {**member("h1").to_capabilities(), "is_draining": 1},
        {**member("h1").to_capabilities(), "name": "h2"},
        {**member("h1").to_capabilities(), "release": "x" * 1000},
    ],
)
def test_description_of_a_member_is_validated(capabilities: object) -> None:
    with pytest.raises(exception.InvalidError):
        Member.from_capabilities("h1", capabilities)


def test_description_of_a_newer_release_is_understood() -> None:
    capabilities = {**member("h1").to_capabilities(), "version": 2, "colour": "red"}
    assert Member.from_capabilities("h1", capabilities) == member("h1")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///c", "file:///c?timeout=7"),
        ("file:///c?timeout=3", "file:///c?timeout=3"),
        (
            "redis://r:6379?db=1",
            "redis://r:6379?db=1&membership_timeout=7&lock_timeout=7&timeout=3",
        ),
        (
            "etcd3+http://e?lock_timeout=3",
            "etcd3+http://e?lock_timeout=3&membership_timeout=7&timeout=3",
        ),
        (
            "memcached://m?timeout=9",
            "memcached://m?timeout=9&membership_timeout=7&lock_timeout=7",
        ),
        ("zookeeper://z", "zookeeper://z?timeout=7"),
    ],
)
def test_timeouts_are_told_to_the_backend(url: str, expected: str) -> None:
    assert CoordinationSettings(url, "acstor", 1, 7).urls() == (expected,)


def test_unknown_backend_is_unsupported_without_its_password() -> None:
    settings = CoordinationSettings("nothing://user:secret@host", "acstor", 1, 5)
    with pytest.raises(exception.UnsupportedError) as caught:
        open_coordinator(settings, "h1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("etcd3+http://e", 7.0),
        ("etcd3+http://e?lock_timeout=3", 3.0),
        ("etcd3+http://e?lock_timeout=3&lock_timeout=5", 5.0),
        ("etcd3+http://e?lock_timeout=5, etcd3+http://f?lock_timeout=5", 5.0),
        ("file:///c?lock_timeout=3", 7.0),
    ],
)
def test_lock_lasts_as_long_as_the_url_says(url: str, expected: float) -> None:
    """A holder that believes in a longer one is a second holder for the difference."""
    assert CoordinationSettings(url, "acstor", 1, 7).lock_timeout == expected


def test_lock_timeout_that_is_no_number_is_named() -> None:
    with pytest.raises(exception.InvalidError, match="lock_timeout"):
        _ = CoordinationSettings("redis://r?lock_timeout=soon", "acstor", 1, 7).lock_timeout

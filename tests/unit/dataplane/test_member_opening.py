"""Members as a data plane opens them at its start, and follows them afterwards."""

import pathlib
import threading
from typing import Any, cast

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.dataplane import member_opening, origin_source
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.member_opening import MemberFollower, open_configured
from acstor.dataplane.member_readers import MemberReader
from acstor.native import DataPlane
from acstor.origin.base import RefStore
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.power.record import PowerEntry, read_power, swap_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.states import MemberEvent

NAMES = ("home", "near")


class Runtime:
    """Remembers what the data plane is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def set_member_generation(self, member: str, generation: int) -> None:
        self.told.append((member, generation))


class Stores:
    """Refs of the members, which can be taken away."""

    def __init__(self, folder: pathlib.Path) -> None:
        config = folder / "acstor.conf"
        config.write_text("[origin]\nmembers = home=posix:///home,near=posix:///near\n")
        self.conf: cfg.ConfigOpts = loading.load("test", ["--config-file", str(config)])
        self.refs: dict[str, RefStore] = {name: MemoryOrigin() for name in NAMES}
        self.membership = Membership("home", self.refs)
        self.membership.create()
        self.membership.change("near", MemberEvent.FILLED)
        (folder / "state").mkdir()
        self.attachments = Attachments(str(folder / "state"))
        self.away = threading.Event()
        self.released = threading.Event()
        self.is_hanging = False

    def open_refs(self, url: str) -> RefStore:
        if self.is_hanging:
            self.released.wait(60)
        if self.away.is_set():
            raise exception.UnavailableError("the store is away")
        return self.refs[url.rsplit("/", 1)[1]]


@pytest.fixture
def stores(tmp_path: pathlib.Path) -> Stores:
    return Stores(tmp_path)


def _opened(stores: Stores) -> list[tuple[str, int, bool]]:
    source = open_configured(stores.conf, stores.attachments, stores.open_refs)
    return [(one.name, one.generation, one.is_assigned) for one in source.members]


def test_members_are_as_the_home_says(stores: Stores) -> None:
    stores.membership.advance("near")
    assert _opened(stores) == [("home", 1, True), ("near", 2, True)]
    stores.membership.change("near", MemberEvent.DRAIN)
    assert _opened(stores) == [("home", 1, True), ("near", 2, False)]


def test_home_that_is_away_or_hangs_keeps_no_host_from_starting(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _opened(stores)
    stores.away.set()
    assert _opened(stores) == before
    monkeypatch.setattr(member_opening, "READ_SECONDS", 0.05)
    stores.is_hanging = True
    assert _opened(stores) == before
    stores.released.set()


def test_first_start_of_a_host_needs_the_home(stores: Stores) -> None:
    stores.away.set()
    with pytest.raises(exception.UnavailableError):
        _opened(stores)


def test_store_that_is_no_home_is_not_covered_up_by_what_was_known(stores: Stores) -> None:
    _opened(stores)
    stores.refs["home"] = MemoryOrigin()
    with pytest.raises(exception.ConfigurationError, match="home of no members"):
        _opened(stores)


def test_member_that_has_not_joined_is_left_out(stores: Stores) -> None:
    stores.conf.set_override(
        "members",
        ["home=posix:///home", "near=posix:///near", "new=posix:///new"],
        group="origin",
    )
    assert [name for name, _, _ in _opened(stores)] == ["home", "near"]


def test_grown_generations_are_told_once(stores: Stores) -> None:
    source = open_configured(stores.conf, stores.attachments, stores.open_refs)
    runtime = Runtime()
    follower = MemberFollower(
        stores.conf,
        source,
        lambda: cast(DataPlane, cast(Any, runtime)),
        stores.attachments,
        stores.open_refs,
    )
    follower.look()
    assert runtime.told == []
    stores.membership.advance("near")
    follower.look()
    follower.look()
    assert runtime.told == [("near", 2)]
    stores.membership.change("near", MemberEvent.FAIL)
    follower.look()
    assert runtime.told == [("near", 2)]
    stores.away.set()
    with pytest.raises(exception.UnavailableError):
        follower.look()
    assert [name for name, _, _ in _opened(stores)] == [], "near failed: the home is read alone"


def test_origin_of_one_store_needs_nothing_of_it(stores: Stores, tmp_path: pathlib.Path) -> None:
    stores.conf.set_override("members", [], group="origin")
    stores.conf.set_override("url", f"posix://{tmp_path}", group="origin")
    source = origin_source.open_source(stores.conf, stores.attachments)
    assert source.posix_root == str(tmp_path)
    assert not source.members
    assert stores.attachments.members() is None


def test_member_that_this_host_does_not_know_is_never_taken_for_empty(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_configured(stores.conf, stores.attachments, stores.open_refs)
    stores.refs["far"] = MemoryOrigin()
    membership = Membership("home", stores.refs)
    membership.join("far")
    runtime = cast(DataPlane, cast(Any, Runtime()))
    follower = MemberFollower(
        stores.conf, source, lambda: runtime, stores.attachments, stores.open_refs
    )
    follower.look()
    follower.look()
    assert caplog.text.count("are far, home, near now: restart this data plane") == 1
    far = open_configured(stores.conf, stores.attachments, stores.open_refs).members[2]
    assert far.name == "far"
    assert far.reader is not None
    with pytest.raises(exception.UnavailableError, match="members of this host"):
        far.reader.readinto("packs/x", 0, memoryview(bytearray(1)))
    with pytest.raises(exception.UnavailableError):
        far.read_generation()


def _sleep(stores: Stores, state: PowerState) -> None:
    home = stores.refs["home"]
    record, token = read_power(home)
    swap_power(home, token, record.with_entry("near", PowerEntry(state, 1.0)))


def test_member_that_sleeps_is_not_touched(stores: Stores) -> None:
    runtime = Runtime()
    source = open_configured(stores.conf, stores.attachments, stores.open_refs)
    near = next(one for one in source.members if one.name == "near")
    follower = MemberFollower(
        stores.conf, source, lambda: cast(DataPlane, runtime), stores.attachments, stores.open_refs
    )
    follower.look()
    assert near.read_generation() == 1
    _sleep(stores, PowerState.QUIESCING)
    follower.look()
    assert runtime.told == []
    _sleep(stores, PowerState.SWITCHING_OFF)
    follower.look()
    follower.look()
    assert runtime.told == [("near", 1)]
    stores.is_hanging = True
    with pytest.raises(exception.UnavailableError, match="sleeps"):
        near.read_generation()
    stores.is_hanging = False
    stores.membership.advance("near")
    _sleep(stores, PowerState.ACTIVE)
    follower.look()
    assert runtime.told == [("near", 1), ("near", 2)]
    assert near.read_generation() == 2


def test_data_plane_that_starts_meanwhile_touches_no_sleeper(stores: Stores) -> None:
    _sleep(stores, PowerState.OFF)
    source = open_configured(stores.conf, stores.attachments, stores.open_refs)
    readers = [one for one in source.members if isinstance(one, MemberReader)]
    assert {one.name: one.asleep.is_set() for one in readers} == {"home": False, "near": True}

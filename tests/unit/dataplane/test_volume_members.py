"""Volumes whose log goes from one member of the origin to another, under data planes."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.dataplane.volumes.clean_proof import CleanProof, CleanReason
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent
from acstor.repository import layout
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.memory_volumes import words_of
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.test_volume_parts import KEPT
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest, move_to_second

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "volume-kept-v3.json"
NAMES = ("home", "near", "far")
_LOG_CALLS = (Operation.PUT, Operation.READ, Operation.SIZE, Operation.LIST)


@pytest.fixture
def stores() -> dict[str, FaultyOrigin]:
    return {name: FaultyOrigin(MemoryOrigin()) for name in NAMES}


@pytest.fixture
def origin(stores: dict[str, FaultyOrigin]) -> Iterator[ReplicatedOrigin]:
    """An origin of three members, in the place of one store."""
    membership = Membership("home", stores)
    membership.create()
    for name in NAMES[1:]:
        membership.change(name, MemberEvent.FILLED)
    addresses = [MemberAddress(name, name) for name in NAMES]
    opened = ReplicatedOrigin(addresses, lambda url: stores[url])
    yield opened
    opened.members.close()


def logs_in(store: FaultyOrigin) -> list[int]:
    """Return the epochs of the log objects that a store has, of each object."""
    named = map(layout.parse_log_key, store._inner.list(layout.VOLUME_LOG_PREFIX))
    return sorted(one[1] for one in named if one is not None)


def kept(host: HostUnderTest) -> dict[str, object]:
    path = pathlib.Path(host.conf.volumes.directory, VOLUME, "volume.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def written(host: HostUnderTest) -> str:
    """Write a word, and have it in the origin."""
    word = host.device.write(512)
    host.call("push")
    return word


def opened_again(host: HostUnderTest) -> None:
    host.call("close", force=True)
    host.open()


def test_volume_goes_on_in_another_member_when_it_is_opened_again(
    host: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    host.open()
    words = [written(host)]
    assert "member" not in kept(host)
    assert kept(host)["version"] == 2
    store.assign(VOLUME, "near")
    words.append(written(host))
    assert (logs_in(stores["home"]), logs_in(stores["near"])) == ([1, 1], [])
    opened_again(host)
    words.append(written(host))
    assert (logs_in(stores["home"]), logs_in(stores["near"])) == ([1, 1, 1], [2])
    assert (kept(host)["version"], kept(host)["member"]) == (3, "near")
    record = store.get(VOLUME).record
    assert (record.member, record.assigned, record.unsealed) == ("near", "near", None)
    assert host.device.words == words
    store.assign(VOLUME, None)
    opened_again(host)
    words.append(written(host))
    assert (logs_in(stores["home"]), logs_in(stores["near"])) == ([1, 1, 1, 3], [2, 2])
    assert kept(host)["version"] == 2
    assert host.device.words == words


def test_next_process_goes_on_in_the_member_of_the_epoch(
    host: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    store.assign(VOLUME, "near")
    host.open()
    words = [written(host)]
    store.assign(VOLUME, "far")
    host.restart()
    wait_for("it is served again", lambda: host.state == "serving")
    words.append(written(host))
    assert [logs_in(stores[name]) for name in NAMES] == [[], [1, 1], []]
    assert host.device.words == words


def test_another_host_seals_where_the_log_is(
    host: HostUnderTest,
    store: VolumeStore,
    stores: dict[str, FaultyOrigin],
    add_host: Callable[[str], HostUnderTest],
) -> None:
    store.assign(VOLUME, "near")
    host.open()
    words = [written(host)]
    store.assign(VOLUME, "far")
    second = move_to_second(store, add_host)
    words.append(written(second))
    assert [logs_in(stores[name]) for name in NAMES] == [[], [1, 1], [2]]
    assert second.device.words == words
    host.device.write(512)
    with pytest.raises(exception.AcstorError):
        host.call("push")
    assert [logs_in(stores[name]) for name in NAMES] == [[], [1, 1], [2]]


def test_volume_waits_for_the_member_of_its_log(
    host: HostUnderTest,
    store: VolumeStore,
    stores: dict[str, FaultyOrigin],
    add_host: Callable[[str], HostUnderTest],
) -> None:
    store.assign(VOLUME, "near")
    host.open()
    word = written(host)
    store.assign(VOLUME, "far")
    stores["near"].faults = [Fault(one, Effect.ERROR) for one in _LOG_CALLS]
    with pytest.raises(exception.UnavailableError):
        move_to_second(store, add_host)
    assert [logs_in(stores[name]) for name in NAMES] == [[], [1], []]
    assert store.get(VOLUME).record.unsealed_member == "near"
    stores["near"].faults = []
    third = add_host("h3")
    store.disallow_host(VOLUME, "h2")
    store.allow_host(VOLUME, "h3")
    third.open()
    assert third.device.words == [word]


def test_log_is_read_from_others_while_its_member_is_away(
    host: HostUnderTest, store: VolumeStore, stores: dict[str, FaultyOrigin]
) -> None:
    store.assign(VOLUME, "near")
    host.open()
    word = written(host)
    store.assign(VOLUME, "far")
    opened_again(host)
    near, home = stores["near"]._inner, stores["home"]._inner
    for key in near.list(layout.VOLUME_LOG_PREFIX):
        home.put_if_absent(key, [near.get(key, 1 << 20)])
    stores["near"].faults = [Fault(one, Effect.ERROR) for one in _LOG_CALLS]
    record = store.get(VOLUME).record
    assert [one.member for one in record.logs] == ["near"]
    assert words_of(store._origin, record.disk) == [word]


def test_host_that_knows_the_home_alone_is_refused(
    host: HostUnderTest,
    store: VolumeStore,
    stores: dict[str, FaultyOrigin],
    add_host: Callable[[str], HostUnderTest],
) -> None:
    store.assign(VOLUME, "near")
    second = add_host("h2")
    second.plane._origin = stores["home"]
    second.restart()
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    before = store.get(VOLUME).record
    with pytest.raises(exception.UnsupportedError, match=r"near .* is not open here"):
        second.open()
    assert store.get(VOLUME).record == before
    # Nor is it taken from where it is, although it is to be in the home from now on.
    store.disallow_host(VOLUME, "h2")
    store.allow_host(VOLUME, "h1")
    host.open()
    written(host)
    store.assign(VOLUME, None)
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    with pytest.raises(exception.UnsupportedError, match=r"near .* is not open here"):
        second.open()
    assert logs_in(stores["home"]) == []


# Files


def test_kept_volume_of_a_member_requires_update() -> None:
    of_member = dataclasses.replace(KEPT, member="near")
    assert of_member.encode() == GOLDEN.read_bytes(), "bump MEMBER_VERSION"
    assert PersistedVolume.decode(GOLDEN.read_bytes()) == of_member


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"version":3', b'"version":2'),
        (b'"member":"near"', b'"member":null'),
        (b'"member":"near"', b'"member":"../x"'),
        (b'"member":"near",', b""),
    ],
)
def test_kept_volume_that_contradicts_itself_is_refused(before: bytes, after: bytes) -> None:
    content = GOLDEN.read_bytes()
    assert before in content
    with pytest.raises(exception.CorruptError):
        PersistedVolume.decode(content.replace(before, after))


def test_proof_keeps_the_member_of_what_was_opened() -> None:
    for opened in (KEPT, dataclasses.replace(KEPT, member="near")):
        proof = CleanProof(opened.volume, CleanReason.RELEASED, opened)
        assert CleanProof.decode(proof.encode()) == proof
    assert b"member" not in CleanProof(KEPT.volume, CleanReason.RELEASED, KEPT).encode()

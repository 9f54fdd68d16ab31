"""Closed volumes: local content outlasts a close and an opening on the same host, only then."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.backoff import BackOff
from acstor.dataplane.volumes import reconciler
from acstor.origin.base import Ref
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME, HostUnderTest

NEVER = "c6a3a6c0-3f2b-4f6b-8f1c-6a6a35a7a0de"
SWAP = Durability(regions=(Region(DurabilityClass.NONE, partition="swap"),))
AddHost = Callable[[str], HostUnderTest]


@pytest.fixture(params=[Durability(DurabilityClass.NONE), SWAP], ids=["none", "region"])
def local(host: HostUnderTest, store: VolumeStore, request: Any) -> "Local":
    """A volume with parts of class none, that h1 may own."""
    store.create(NewVolume(NEVER, SIZE, request.param))
    store.allow_host(NEVER, "h1")
    return Local(host)


class Local:
    """That volume on a host; ``mark`` is what only its log has."""

    def __init__(self, host: HostUnderTest) -> None:
        self.host = host
        directory = pathlib.Path(host.conf.volumes.directory) / NEVER
        self.mark = directory / "log" / "segment-00000000"

    def call(self, method: str, **params: Any) -> Any:
        return self.host.client.call(f"volume.{method}", volume=NEVER, **params)

    def open(self) -> int:
        return int(self.call("open", role="owner")["epoch"])

    def close(self) -> None:
        self.call("close", force=True)

    def write(self) -> None:
        assert self.open() == 1
        self.mark.write_text("never travels")


def test_content_outlasts_stop_and_start(local: Local, store: VolumeStore) -> None:
    """As Nova does at a stop and a start, and at a hard reboot."""
    local.write()
    for epoch in (2, 3, 4):
        local.close()
        assert store.get(NEVER).record.owner is None
        assert local.host.client.call("volume.list") == []
        assert local.open() == epoch
        assert local.mark.read_text() == "never travels"


def test_content_outlasts_a_restart_while_it_is_closed(local: Local) -> None:
    local.write()
    local.close()
    local.host.restart()
    assert local.host.client.call("volume.list") == []
    assert local.open() == 2
    local.host.restart()
    wait_for("the volume is served", lambda: local.call("status")["state"] == "serving")
    assert local.mark.read_text() == "never travels"


def test_content_is_void_once_another_host_had_the_volume(
    local: Local, store: VolumeStore, add_host: AddHost
) -> None:
    local.write()
    local.close()
    store.disallow_host(NEVER, "h1")
    store.allow_host(NEVER, "h2")
    second = Local(add_host("h2"))
    assert second.open() == 2
    second.close()
    store.disallow_host(NEVER, "h2")
    store.allow_host(NEVER, "h1")
    assert local.open() == 3
    assert not local.mark.exists()
    assert local.host.client.call("volume.list_aside") == []


@contextlib.contextmanager
def without_answers(origin: MemoryOrigin, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the block every change of a ref takes effect, and its answer is lost."""
    swap_ref = origin.swap_ref

    def lossy(name: str, expected: str | None, content: bytes | None) -> Any:
        swap_ref(name, expected, content)
        raise exception.UnavailableError("the answer was lost")

    with monkeypatch.context() as away:
        away.setattr(origin, "swap_ref", lossy)
        yield


def test_ownership_whose_answer_was_lost_costs_no_content(
    local: Local, store: VolumeStore, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    local.write()
    local.close()
    with without_answers(origin, monkeypatch), pytest.raises(exception.UnavailableError):
        local.open()
    assert store.get(NEVER).record.owner == "h1"
    assert local.open() == 3
    assert local.mark.read_text() == "never travels"


@pytest.mark.parametrize(
    ("failing", "is_done", "times"),
    [
        ("acquire", False, 3),
        ("acquire", True, 3),
        ("record_takeover", False, 3),
        ("record_takeover", True, 3),
    ],
)
def test_opening_that_fails_again_and_again_costs_no_content(
    local: Local, monkeypatch: pytest.MonkeyPatch, failing: str, is_done: bool, times: int
) -> None:
    local.write()
    local.close()
    for _ in range(times):
        with failing_call(monkeypatch, failing, is_done), pytest.raises(exception.UnavailableError):
            local.open()
    local.open()
    assert local.mark.read_text() == "never travels"


def test_openings_that_fail_each_at_another_place_cost_no_content(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.write()
    local.close()
    for failing, is_done in [
        ("record_takeover", True),
        ("acquire", False),
        ("record_takeover", False),
        ("acquire", True),
        ("record_takeover", True),
        ("acquire", True),
    ]:
        with failing_call(monkeypatch, failing, is_done), pytest.raises(exception.UnavailableError):
            local.open()
        local.host.restart()
    local.open()
    assert local.mark.read_text() == "never travels"


def test_opening_that_a_former_release_began_costs_no_content(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept no note of the epoch that it tried to own the volume in."""
    local.write()
    local.close()
    path = local.mark.parent.parent / "clean.json"
    closed = path.read_bytes()
    with failing_call(monkeypatch, "acquire", True), pytest.raises(exception.UnavailableError):
        local.open()
    path.write_bytes(closed)
    with (
        failing_call(monkeypatch, "record_takeover", True),
        pytest.raises(exception.UnavailableError),
    ):
        local.open()
    local.open()
    assert local.mark.read_text() == "never travels"


@contextlib.contextmanager
def failing_call(monkeypatch: pytest.MonkeyPatch, name: str, is_done: bool) -> Iterator[None]:
    """Within the block a change of a record fails, or takes effect without an answer."""
    call = getattr(VolumeStore, name)

    def fails(*arguments: Any, **options: Any) -> Any:
        if is_done:
            call(*arguments, **options)
        raise exception.UnavailableError("the answer was lost")

    with monkeypatch.context() as away:
        away.setattr(VolumeStore, name, fails)
        yield


@pytest.mark.parametrize("failing", ["acquire", "record_takeover"])
@pytest.mark.parametrize("is_done", [False, True])
def test_content_is_void_once_somebody_stored_into_its_epoch(
    local: Local,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    is_done: bool,
) -> None:
    """As a process does that does not know that its release took effect."""
    local.write()
    local.close()
    origin.put_if_absent(layout.log_key(NEVER, 1, store.get(NEVER).record.next), [b"an object"])
    with failing_call(monkeypatch, failing, is_done), pytest.raises(exception.UnavailableError):
        local.open()
    local.open()
    assert not local.mark.exists()
    assert local.host.client.call("volume.list_aside") == []


@pytest.mark.parametrize("is_done", [False, True])
def test_content_is_void_once_another_host_had_the_volume_between_two_attempts(
    local: Local,
    store: VolumeStore,
    add_host: AddHost,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
) -> None:
    local.write()
    local.close()
    with failing_call(monkeypatch, "acquire", is_done), pytest.raises(exception.UnavailableError):
        local.open()
    store.disallow_host(NEVER, "h1")
    store.allow_host(NEVER, "h2")
    second = Local(add_host("h2"))
    second.open()
    second.close()
    store.disallow_host(NEVER, "h2")
    store.allow_host(NEVER, "h1")
    with failing_call(monkeypatch, "acquire", True), pytest.raises(exception.UnavailableError):
        local.open()
    local.open()
    assert not local.mark.exists()


def test_kill_before_the_record_gives_the_volume_back_costs_no_content(
    local: Local, store: VolumeStore, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    local.write()
    with without_answers(origin, monkeypatch), pytest.raises(exception.UnavailableError):
        local.close()
    assert store.get(NEVER).record.owner is None
    local.host.restart()
    wait_for("the volume is fenced", lambda: local.call("status")["state"] == "fenced")
    local.close()
    assert local.host.client.call("volume.list_aside") == []
    assert local.open() == 2
    assert local.mark.read_text() == "never travels"


def test_class_that_was_changed_meanwhile_counts_for_what_is_there(
    local: Local, store: VolumeStore
) -> None:
    """Content that was to stay here is pushed when it is to travel: the runtime is told of the
    change."""
    local.write()
    local.close()
    through = Durability(DurabilityClass.WRITE_THROUGH)
    store.set_durability(NEVER, through)
    assert local.open() == 2
    assert local.host.plane.runtime is not None
    device = local.host.plane.runtime.volumes[NEVER]
    assert device.spec["durability"] != through.to_fields()
    assert device.durability == through.to_fields()
    local.close()
    assert local.open() == 3
    assert not local.mark.exists(), "the origin has all of it"


def test_failed_opening_costs_no_content(local: Local) -> None:
    local.write()
    local.close()
    assert local.host.plane.runtime is not None
    local.host.plane.runtime.fail_next_open = "exhausted"
    with pytest.raises(exception.ExhaustedError):
        local.open()
    assert local.open() == 2
    assert local.mark.read_text() == "never travels"


@pytest.mark.parametrize("how", ["deleted", "owned elsewhere"])
def test_log_that_is_of_no_use_is_swept(
    local: Local,
    store: VolumeStore,
    add_host: AddHost,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_SWEEP_INTERVAL", 0.02)
    local.write()
    local.close()
    local.host.restart()
    store.disallow_host(NEVER, "h1")
    assert local.mark.exists(), "nobody has owned it since"
    if how == "deleted":
        store.delete(NEVER)
    else:
        store.allow_host(NEVER, "h2")
        Local(add_host("h2")).open()
    wait_for("the log is removed", lambda: not os.path.exists(local.mark.parent.parent))
    assert local.host.client.call("volume.list_aside") == []


def test_log_is_not_swept_while_the_origin_does_not_answer(
    local: Local, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_SWEEP_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "RETRY", BackOff(0.04, 60.0))
    local.write()
    local.close()
    asked: list[str] = []
    get_ref = origin.get_ref

    def is_away(name: str) -> Any:
        if name != layout.volume_ref(NEVER):
            return get_ref(name)
        asked.append(name)
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "get_ref", is_away)
        local.host.restart()
        wait_for("looks at the record", lambda: len(asked) > 2)
    assert local.open() == 2
    assert local.mark.read_text() == "never travels"


def test_log_outlasts_a_file_system_of_the_origin_that_is_not_mounted(
    local: Local, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    """Nothing is there, which is not to say that the volume was deleted."""
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_SWEEP_INTERVAL", 0.02)
    local.write()
    local.close()
    asked: list[str] = []

    def is_empty(name: str) -> None:
        if name == layout.volume_ref(NEVER):
            asked.append(name)

    def is_absent(key: str, size_max: int) -> bytes:
        raise exception.NotFoundError(f"there is no {key}")

    local.host.restart()
    with monkeypatch.context() as unmounted:
        unmounted.setattr(origin, "get_ref", is_empty)
        unmounted.setattr(origin, "get", is_absent)
        wait_for("looks at the record", lambda: len(asked) > 2)
    assert local.open() == 2
    assert local.mark.read_text() == "never travels"


def test_volume_of_an_origin_that_is_mounted_amidst_the_look_is_there(
    host: HostUnderTest,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get_ref, looks = origin.get_ref, iter([None])

    def mounted_after_one(name: str) -> Ref | None:
        return next(looks, get_ref(name))

    monkeypatch.setattr(origin, "get_ref", mounted_after_one)
    assert store.find(VOLUME) is not None


def test_volume_whose_disk_failed_to_sync_is_closed_without_a_restart(
    host: HostUnderTest, store: VolumeStore
) -> None:
    host.open()
    flushed = host.device.write(4096)
    host.device.write(4096)
    host.device.fail_sync()
    host.call("close", force=True)
    assert store.get(VOLUME).record.owner is None
    host.open()
    assert host.device.words == [flushed]


def test_log_that_does_not_open_again_is_closed_later(
    host: HostUnderTest, store: VolumeStore
) -> None:
    host.open()
    flushed = host.device.write(4096)
    host.device.write(4096)
    host.device.fail_sync()
    runtime = host.plane.runtime
    assert runtime is not None
    runtime.fail_next_open = "unavailable"
    with pytest.raises(exception.UnavailableError):
        host.call("close", force=True)
    assert host.state == "closing"
    assert store.get(VOLUME).record.owner == "h1"
    host.call("close", force=True)
    assert store.get(VOLUME).record.owner is None
    host.open()
    assert host.device.words == [flushed]

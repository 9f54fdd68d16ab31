"""Volumes over the admin socket: who owns them, what restarts keep; the data path in memory."""

import os
import pathlib
import stat
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.backoff import BackOff
from acstor.control.client import AdminClient
from acstor.dataplane.volumes import local_volume, reconciler
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME, HostUnderTest, move_to_second

Call = Callable[..., Any]

EMPTY = ["attachments", "identity.json"]
"""Files in the directory of the logs without an open volume."""


def test_opening_owns_the_volume_and_binds_its_socket(
    host: HostUnderTest, store: VolumeStore
) -> None:
    opened = host.open()
    assert opened == {
        "volume": VOLUME,
        "role": "owner",
        "state": "serving",
        "socket": opened["socket"],
        "export": opened["export"],
        "size_bytes": SIZE,
        "epoch": 1,
    }
    mode = os.stat(opened["socket"]).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660
    assert store.get(VOLUME).record.owner == "h1"
    assert host.open() == opened
    assert store.get(VOLUME).record.epoch == 1


def test_closing_pushes_and_gives_the_volume_back(host: HostUnderTest, store: VolumeStore) -> None:
    socket_path = host.open()["socket"]
    host.device.write(4096)
    host.call("close", force=False)
    record = store.get(VOLUME).record
    assert record.owner is None
    assert len(record.logs) == 1
    assert record.content_end == (1, record.logs[0].last)
    assert not os.path.exists(socket_path)
    directory = host.conf.volumes.directory
    wait_for("its log is removed", lambda: sorted(os.listdir(directory)) == EMPTY)
    assert host.client.call("volume.list") == []
    host.call("close", force=False)
    with pytest.raises(exception.NotFoundError):
        host.call("status")


def test_volume_in_use_is_closed_by_force_only(host: HostUnderTest, store: VolumeStore) -> None:
    host.open()
    host.device.clients = 1
    with pytest.raises(exception.InvalidError, match="in use"):
        host.call("close", force=False)
    assert host.state == "serving"
    host.call("close", force=True)
    assert store.get(VOLUME).record.owner is None


def test_unknown_volume_and_a_host_that_is_not_allowed_are_refused(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    with pytest.raises(exception.FencedError, match="may not attach"):
        add_host("h2").open()
    store.disallow_host(VOLUME, "h1")
    store.delete(VOLUME)
    with pytest.raises(exception.NotFoundError):
        host.open()
    assert host.client.call("volume.list") == []
    assert host.call("close", force=False) == {"done": True}


def test_second_host_is_refused_while_the_first_is_allowed(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.open()
    store.begin_standby(VOLUME, "h2")
    with pytest.raises(exception.FencedError, match="in use on host h1"):
        add_host("h2").open()


def test_take_over_seals_the_log_and_fences_the_old_owner(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.open()
    host.device.write(512)
    pushed = host.call("push")
    host.device.write(512)
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    second = add_host("h2")
    assert second.open()["epoch"] == 2
    assert second.device.spec["logs"] == pushed["logs"]

    with pytest.raises(exception.FencedError):
        host.call("push")
    assert host.state == "fenced"
    host.call("close", force=False)
    record = store.get(VOLUME).record
    assert (record.owner, record.epoch) == ("h2", 2)
    assert [log.to_fields() for log in record.logs] == pushed["logs"]


def test_push_says_how_to_find_it(host: HostUnderTest, store: VolumeStore) -> None:
    host.open()
    nothing = host.call("push")
    assert nothing["logs"] == []
    host.device.write(4096)
    pushed = host.call("push")
    assert pushed["sequence"] == nothing["sequence"] + 1
    assert pushed["logs"] == [
        {
            "volume": VOLUME,
            "epoch": 1,
            "first": pushed["sequence"],
            "last": pushed["sequence"],
        }
    ]
    assert (pushed["epoch"], pushed["manifest"], pushed["size_bytes"]) == (1, None, SIZE)


def test_freeze_ends_with_thaw_or_by_itself(host: HostUnderTest) -> None:
    host.open()
    host.call("freeze", timeout_s=5)
    assert host.state == "frozen"
    host.call("thaw")
    assert host.state == "serving"
    host.call("freeze", timeout_s=5)
    host.device.state = "open"  # as the runtime does when the time is over
    assert host.state == "serving"
    host.call("thaw")


def test_thaw_of_one_holder_does_not_end_the_freeze_of_another(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_volume, "time", SimpleNamespace(monotonic=VirtualTime()))
    host.open()
    host.call("freeze", timeout_s=50, holder="first group")
    host.call("freeze", timeout_s=5, holder="second group")
    assert host.device.freezes[-1] == 50, "as long as the longer of the two"
    assert host.call("thaw", holder="first group") == {"done": True, "was_held": True}
    assert (host.state, host.device.state) == ("frozen", "frozen")
    assert host.device.freezes[-1] == 5
    assert host.call("thaw", holder="first group")["was_held"] is False, "a repeated call"
    assert host.state == "frozen"
    assert host.call("thaw", holder="second group")["was_held"] is True
    assert (host.state, host.device.state) == ("serving", "open")
    host.call("freeze", timeout_s=50, holder="first group")
    host.restart()
    wait_for("the volume is served", lambda: host.state == "serving")
    assert host.call("thaw", holder="first group")["was_held"] is False


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("open", {"role": "reader"}),
        ("open", {}),
        ("freeze", {"timeout_s": 0}),
        ("freeze", {"timeout_s": 1e9}),
        ("freeze", {"timeout_s": 1, "holder": "x" * 65}),
        ("resize", {"size_bytes": 513}),
        ("set_limits", {"iops": -1, "bytes_per_s": 0}),
        ("set_durability", {"durability": "none"}),
        ("close", {"force": 1}),
        ("status", {"more": 1}),
    ],
)
def test_wrong_parameters_are_refused(
    host: HostUnderTest, method: str, params: dict[str, object]
) -> None:
    with pytest.raises(exception.InvalidError):
        host.call(method, **params)


# Restarts


def test_next_process_goes_on_with_the_same_epoch(host: HostUnderTest, store: VolumeStore) -> None:
    host.open()
    host.device.write(512)
    durability = Durability(DurabilityClass.NONE)
    # The record first, as Cinder does: the owner follows it by itself, too.
    store.resize(VOLUME, 2 * SIZE)
    store.describe(VOLUME, metadata={"iops": "100", "bytes_per_s": str(1 << 20)})
    store.set_durability(VOLUME, durability)
    host.call("resize", size_bytes=2 * SIZE)
    host.call("set_limits", iops=100, bytes_per_s=1 << 20)
    host.call("set_durability", durability=durability.to_fields())
    inode = os.stat(host.call("status")["socket"]).st_ino
    host.restart()
    wait_for("the volume is served", lambda: host.state == "serving")
    assert store.get(VOLUME).record.epoch == 1
    spec = host.device.spec
    assert (spec["epoch"], spec["size_bytes"]) == (1, 2 * SIZE)
    assert (spec["iops"], spec["bytes_per_s"]) == (100, 1 << 20)
    assert spec["durability"] == durability.to_fields()
    assert inode != 0
    assert os.path.exists(host.call("status")["socket"])


def test_restart_does_not_need_the_origin(
    host: HostUnderTest,
    store: VolumeStore,
    monkeypatch: pytest.MonkeyPatch,
    origin: MemoryOrigin,
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "RETRY", BackOff(0.04, 60.0))
    host.open()
    asked: list[str] = []

    def is_away(name: str) -> None:
        asked.append(name)
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "get_ref", is_away)
        host.restart()
        wait_for("the volume is served", lambda: host.state == "serving")
        wait_for("looks for the owner", lambda: len(asked) > 2)
    assert host.state == "serving"


def test_owner_that_was_replaced_while_it_was_down_is_fenced(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.open()
    host.device.write(512)
    host.plane.stop_for_next()
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    second = add_host("h2")
    second.open()
    host.plane.start()
    wait_for("the volume is fenced", lambda: host.state == "fenced")
    assert host.device.state == "fenced"
    assert host.device.listener is not None, "clients are to get EIO, not to wait"
    with pytest.raises(exception.FencedError):
        host.call("freeze", timeout_s=1)
    host.call("close", force=True)
    assert second.state == "serving"
    names = sorted(os.listdir(host.conf.volumes.directory))
    assert names == ["aside", *EMPTY], "it was not pushed"


def test_owner_that_was_replaced_while_the_origin_was_away_is_fenced_when_it_answers(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "RETRY", BackOff(0.04, 60.0))
    host.open()
    host.plane.stop_for_next()
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    add_host("h2").open()
    with monkeypatch.context() as away:
        away.setattr(reconciler, "_CHECK_TIMEOUT", 0.0)
        host.plane.start()
        wait_for("the volume is resumed", lambda: host.state in {"serving", "fenced"})
    wait_for("the volume is fenced", lambda: host.state == "fenced")


def test_volume_that_does_not_open_after_a_restart_is_tried_again(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "RETRY", BackOff(0.04, 60.0))
    host.open()
    host.plane.stop_for_next()

    def fail_once(runtime: Any) -> None:
        runtime.fail_next_open = "unavailable"

    host.plane.start(fail_once)
    wait_for("the volume is served", lambda: host.state == "serving")
    assert store.get(VOLUME).record.epoch == 1


def test_lost_local_log_costs_an_epoch(host: HostUnderTest, store: VolumeStore) -> None:
    host.open()
    host.device.write(512)
    pushed = host.call("push")
    host.plane.stop_for_next()
    kept = pathlib.Path(host.conf.volumes.directory) / VOLUME / "volume.json"
    kept.unlink()
    host.plane.start()
    assert host.client.call("volume.list") == []
    assert host.open()["epoch"] == 2
    assert host.device.spec["logs"] == pushed["logs"]


def test_damaged_state_is_given_up_by_operators_only(
    host: HostUnderTest, store: VolumeStore
) -> None:
    host.open()
    host.plane.stop_for_next()
    kept = pathlib.Path(host.conf.volumes.directory) / VOLUME / "volume.json"
    kept.write_text("{")
    segment = kept.parent / "log" / "segment"
    segment.write_text("what the origin lacks")
    host.plane.start()
    assert host.call("status")["state"] == "opening"
    assert "malformed" in host.call("status")["error"]
    with pytest.raises(exception.UnavailableError, match="malformed"):
        host.call("close", force=False)
    with pytest.raises(exception.CorruptError, match="malformed"):
        host.open()
    with pytest.raises(exception.UnavailableError, match="give-up"):
        host.call("close", force=True)
    assert segment.exists(), "somebody may mend it"
    aside = host.call("give_up")["aside"]
    assert (pathlib.Path(aside["path"]) / "log" / "segment").exists()
    assert host.open()["epoch"] == 2


# The origin fails, folding


def test_volume_that_cannot_be_pushed_stays_until_it_can(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    host.open()
    host.device.write(512)

    def is_away(key: str, buffers: object) -> bool:
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "put_if_absent", is_away)
        with pytest.raises(exception.AcstorError):
            host.call("close", force=False)
        assert host.state == "closing"
        assert store.get(VOLUME).record.owner == "h1"
        assert host.open()["state"] == "serving"
        with pytest.raises(exception.AcstorError):
            host.call("close", force=False)
    host.call("close", force=False)
    assert store.get(VOLUME).record.owner is None


def test_volume_that_is_pushed_but_not_given_back_goes_on(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    host.open()
    host.device.write(512)

    def is_away(*_: object) -> str | None:
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "swap_ref", is_away)
        with pytest.raises(exception.UnavailableError):
            host.call("close", force=False)
        assert host.device.state == "standby", "all of it is pushed"
        with pytest.raises(exception.UnavailableError):
            host.call("close", force=False)
        # One of the releases may take effect yet, as long as the record can be read only.
        with pytest.raises(exception.UnavailableError):
            host.open()
        assert host.device.state == "standby"
    before = origin.get_ref(layout.volume_ref(VOLUME))
    assert host.open()["state"] == "serving"
    assert host.device.state == "open"
    assert origin.get_ref(layout.volume_ref(VOLUME)) != before
    host.call("close", force=False)
    assert store.get(VOLUME).record.owner is None


def test_fenced_volume_is_opened_anew(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.open()
    second = move_to_second(store, add_host)
    host.device.write(512)
    with pytest.raises(exception.FencedError):
        host.call("push")
    second.call("close", force=False)
    store.disallow_host(VOLUME, "h2")
    store.allow_host(VOLUME, "h1")
    assert host.open()["epoch"] == 3
    assert host.state == "serving"


def test_failed_opening_leaves_nothing_here(host: HostUnderTest, store: VolumeStore) -> None:
    assert host.plane.runtime is not None
    host.plane.runtime.fail_next_open = "exhausted"
    with pytest.raises(exception.ExhaustedError):
        host.open()
    assert host.client.call("volume.list") == []
    assert os.listdir(host.conf.volumes.socket_directory) == []
    assert host.open()["state"] == "serving"


def test_long_log_is_folded_by_itself(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    host.restart()
    host.open()
    host.device.write(512)
    host.call("push")
    host.device.is_fold_due = True
    wait_for("a fold", lambda: store.get(VOLUME).record.manifest is not None)
    wait_for("the new base", lambda: host.device.manifest_path is not None)
    record = store.get(VOLUME).record
    assert (record.logs, record.pending) == ((), None)
    path = host.device.manifest_path
    host.restart()
    wait_for("the volume is served", lambda: host.state == "serving")
    assert host.device.spec["manifest_path"] == path
    assert host.device.spec["next"] == record.next


def test_nobody_waits_for_a_fold_that_takes_its_time(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    host.restart()
    host.open()
    host.device.write(512)
    host.call("push")
    host.device.may_fold.clear()
    host.device.is_fold_due = True
    wait_for("a fold", lambda: host.device.is_folding)
    assert host.call("fold")["is_folded"], "at once"
    host.device.write(512)
    host.call("push")
    host.device.is_fold_due = True
    wait_for("a fold once more", lambda: host.device.is_folding)
    host.call("close", force=False)
    assert store.get(VOLUME).record.owner is None


def test_fold_without_a_log_changes_nothing(host: HostUnderTest, store: VolumeStore) -> None:
    host.open()
    before = store.get(VOLUME).record
    assert host.call("fold") == {"manifest": None, "is_folded": False}
    assert store.get(VOLUME).record == before


# The socket of Nova and Cinder


def test_control_socket_has_what_nova_needs_and_no_more(host: HostUnderTest) -> None:
    control = AdminClient(host.conf.volumes.control_socket)
    assert control.call("volume.host") == {"host": "h1", "protocol_version": 1}
    assert control.call("volume.open", volume=VOLUME, role="owner")["epoch"] == 1
    assert control.call("volume.status", volume=VOLUME)["clients"] == 0
    control.call("volume.close", volume=VOLUME, force=False)
    with pytest.raises(exception.UnsupportedError):
        control.call("drain", on=True)


def test_host_without_volumes_refuses_them(
    conf: cfg.ConfigOpts, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    conf.set_override("enabled", False, "volumes")
    host = add_host("h1")
    with pytest.raises(exception.UnsupportedError, match="enabled"):
        host.open()
    assert not os.path.exists(conf.volumes.control_socket)

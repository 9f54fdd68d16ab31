"""Logs set aside: content that only a local log has is never removed, fenced or given up."""

import errno
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from acstor import exception
from acstor.control.client import AdminClient
from acstor.dataplane.volumes import clean_proof, persisted_files, reconciler
from acstor.dataplane.volumes.clean_proof import CleanProof, CleanReason
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.logs import aside as logs_aside
from acstor.dataplane.volumes.logs.aside import LogsAside
from acstor.dataplane.volumes.persisted_volume import PersistedStandby
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.memory_volumes import LOG
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import ROOT
from tests.unit.dataplane.test_volume_parts import KEPT
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest, move_to_second

GOLDEN = ROOT / "tests" / "golden"
AddHost = Callable[[str], HostUnderTest]


def aside_of(host: HostUnderTest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.client.call("volume.list_aside")
    return found


def dirty_in(path: str) -> int:
    """Return how many bytes of a log that was put aside were never pushed."""
    dirty_bytes = json.loads(pathlib.Path(path, "log", LOG).read_text())["dirty_bytes"]
    return int(dirty_bytes)


# Fenced volumes


@pytest.mark.parametrize("force", [True, False])
def test_log_of_a_fenced_volume_is_put_aside(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost, force: bool
) -> None:
    host.open()
    host.device.write(512)
    second = move_to_second(store, add_host)
    with pytest.raises(exception.FencedError):
        host.call("push")
    host.call("close", force=force)
    (aside,) = aside_of(host)
    assert (aside["name"], aside["volume"]) == (f"{VOLUME}.1", VOLUME)
    assert "another host owns" in aside["why"]
    assert aside["put_aside_at"] > 0
    assert aside["bytes"] > 0
    assert dirty_in(aside["path"]) == 512
    assert second.state == "serving"


def test_fenced_volume_that_is_opened_anew_leaves_its_log_aside(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost
) -> None:
    host.open()
    host.device.write(512)
    second = move_to_second(store, add_host)
    with pytest.raises(exception.FencedError):
        host.call("push")
    second.call("close", force=False)
    store.disallow_host(VOLUME, "h2")
    store.allow_host(VOLUME, "h1")
    assert host.open()["epoch"] == 3
    (aside,) = aside_of(host)
    assert dirty_in(aside["path"]) == 512


def test_owner_that_was_replaced_unseen_keeps_what_it_did_not_push(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost
) -> None:
    """The process ended; the volume went to another host and comes back as a live migration."""
    host.open()
    host.device.write(512)
    host.plane.stop_for_next()
    move_to_second(store, add_host)
    store.begin_standby(VOLUME, "h1")
    host.plane.start(lambda runtime: runtime.may_open.clear())
    runtime = host.plane.runtime
    assert runtime is not None
    runtime.may_open.set()
    wait_for("the volume is fenced", lambda: host.state == "fenced")
    assert host.call("open", role="standby")["state"] == "standby"
    (aside,) = aside_of(host)
    assert dirty_in(aside["path"]) == 512


def test_fenced_volume_of_which_everything_was_pushed_leaves_nothing(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost
) -> None:
    host.open()
    host.device.write(512)
    host.call("push")
    move_to_second(store, add_host)
    host.plane.stop_for_next()
    host.plane.start()
    wait_for("the volume is fenced", lambda: host.state == "fenced")
    host.call("close", force=False)
    assert aside_of(host) == []


# What operators do


def given_up(host: HostUnderTest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give up a volume whose volume.json cannot be read; return what was put aside."""
    host.open()
    host.device.write(512)
    host.plane.stop_for_next()
    kept = pathlib.Path(host.conf.volumes.directory) / VOLUME / "volume.json"
    content = kept.read_bytes()
    kept.write_text("{")
    host.plane.start()
    assert host.state == "opening"
    aside: dict[str, Any] = host.call("give_up")["aside"]
    assert dirty_in(aside["path"]) == 512
    pathlib.Path(aside["path"], "volume.json").write_bytes(content)
    return aside


def test_volume_that_was_given_up_opens_anew_or_from_its_log(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    aside = given_up(host, monkeypatch)
    assert host.client.call("volume.list") == []
    host.client.call("volume.restore_aside", name=aside["name"])
    wait_for("the volume is served", lambda: host.state == "serving")
    assert (host.device.epoch, host.device.dirty_bytes) == (1, 512)
    assert aside_of(host) == []
    host.call("close", force=False)
    assert len(store.get(VOLUME).record.logs) == 1


def test_log_is_not_put_back_over_what_the_volume_is_by_now(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = given_up(host, monkeypatch)
    assert host.open()["epoch"] == 2
    with pytest.raises(exception.FencedError, match="serving"):
        host.client.call("volume.restore_aside", name=aside["name"])
    host.call("close", force=False)
    with pytest.raises(exception.FencedError, match="epoch 1"):
        host.client.call("volume.restore_aside", name=aside["name"])
    assert host.client.call("volume.list") == []
    assert [one["name"] for one in aside_of(host)] == [aside["name"]]


def test_log_is_removed_by_name_only(host: HostUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = given_up(host, monkeypatch)
    with pytest.raises(exception.NotFoundError):
        host.client.call("volume.remove_aside", name=f"{VOLUME}.2")
    for name in ("../x", VOLUME, f"{VOLUME}.0", 1):
        with pytest.raises(exception.InvalidError):
            host.client.call("volume.remove_aside", name=name)
    assert host.client.call("volume.remove_aside", name=aside["name"]) == aside
    assert aside_of(host) == []
    assert not os.path.exists(aside["path"])


def test_log_is_not_exported_over_a_file_nor_while_the_volume_is_open(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    aside = given_up(host, monkeypatch)
    there = tmp_path / "there.raw"
    there.write_text("somebody's")
    with pytest.raises(exception.InvalidError, match="exists"):
        host.client.call("volume.export_aside", name=aside["name"], path=str(there))
    assert there.read_text() == "somebody's"
    host.open()
    with pytest.raises(exception.FencedError, match="detach"):
        host.client.call("volume.export_aside", name=aside["name"], path=str(tmp_path / "new.raw"))


def test_proof_that_could_not_be_removed_durably_is_removed_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back after a power failure it would have the log removed, with all that was flushed."""
    files = VolumeFiles(str(tmp_path))
    files.make(VOLUME)
    synced: list[str] = []

    def sync(path: str) -> None:
        synced.append(path)
        if len(synced) == 1:
            raise OSError(errno.EIO, "the disk does not take it")

    monkeypatch.setattr(persisted_files, "sync_directory", sync)
    with pytest.raises(OSError, match="does not take it"):
        files.begin_serving(VOLUME)
    files.begin_serving(VOLUME)
    assert synced == [files.directory(VOLUME)] * 2


def test_volume_that_is_served_is_not_given_up(host: HostUnderTest) -> None:
    host.open()
    with pytest.raises(exception.InvalidError, match="serving"):
        host.call("give_up")
    assert host.state == "serving"


def test_volume_that_the_origin_does_not_take_is_given_up_with_its_writes_aside(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch, origin: Any
) -> None:
    host.open()
    host.device.write(512)

    def is_away(key: str, buffers: object) -> bool:
        raise exception.UnavailableError("the origin is away")

    monkeypatch.setattr(origin, "put_if_absent", is_away)
    with pytest.raises(exception.AcstorError):
        host.call("close", force=True)
    assert host.state == "closing"
    aside = host.call("give_up")["aside"]
    assert dirty_in(aside["path"]) == 512
    assert host.client.call("volume.list") == []


def test_nova_and_cinder_cannot_give_anything_up(host: HostUnderTest) -> None:
    control = AdminClient(host.conf.volumes.control_socket)
    for method in ("give_up", "list_aside", "remove_aside", "restore_aside", "export_aside"):
        with pytest.raises(exception.UnsupportedError):
            control.call(f"volume.{method}")


# Files


def test_log_goes_only_with_the_proof_that_it_may(tmp_path: pathlib.Path) -> None:
    files = VolumeFiles(str(tmp_path))
    log = pathlib.Path(files.log_directory(VOLUME), "segment")

    def begin() -> None:
        files.make(VOLUME)
        files.keep(KEPT, {"5f" * 32: b"manifest"})
        log.write_text("a write")

    begin()
    assert files.remove(VOLUME, "nobody was served") is None
    assert not os.path.exists(files.directory(VOLUME))

    begin()
    files.begin_serving(VOLUME)
    first = files.remove(VOLUME, "served")
    assert first is not None
    assert pathlib.Path(first.path, "log", "segment").read_text() == "a write"
    assert files.find_aside(first) == KEPT

    begin()
    files.begin_serving(VOLUME)
    files.keep_clean(CleanProof(VOLUME, CleanReason.RELEASED, KEPT))
    assert files.remove(VOLUME, "released") is None

    begin()
    files.begin_serving(VOLUME)
    files.make(VOLUME)
    assert not log.exists()
    assert [one.name for one in files.aside.list()] == [f"{VOLUME}.1", f"{VOLUME}.2"]
    assert files.kept() == {}, "what was put aside is not opened"


@pytest.mark.parametrize("damage", [b"", b"{}", b"[" * 100, b'{"version":2}'])
def test_damaged_proof_is_none(tmp_path: pathlib.Path, damage: bytes) -> None:
    files = VolumeFiles(str(tmp_path))
    files.make(VOLUME)
    pathlib.Path(files.log_directory(VOLUME), "segment").write_text("a write")
    pathlib.Path(files.directory(VOLUME), "clean.json").write_bytes(damage)
    files.remove_unserved(VOLUME)
    assert files.remove(VOLUME, "closed") is not None


def test_standby_does_not_cost_what_was_not_pushed(tmp_path: pathlib.Path) -> None:
    files = VolumeFiles(str(tmp_path))
    files.make(VOLUME)
    files.keep(KEPT)
    pathlib.Path(files.log_directory(VOLUME), "segment").write_text("a write")
    files.begin_serving(VOLUME)
    files.keep_standby(PersistedStandby(VOLUME, KEPT.size_bytes))
    (aside,) = files.aside.list()
    assert files.find_aside(aside) == KEPT
    assert files.kept() == {VOLUME: PersistedStandby(VOLUME, KEPT.size_bytes)}


def test_log_without_a_reason_is_listed(tmp_path: pathlib.Path) -> None:
    """A disk without room is a reason to put a log aside, and keeps no reason."""
    aside = LogsAside(str(tmp_path))
    (tmp_path / f"{VOLUME}.3").mkdir()
    (tmp_path / "else").mkdir()
    (one,) = aside.list()
    assert (one.name, one.why, one.put_aside_at) == (f"{VOLUME}.3", "", None)


def test_clean_version_requires_update() -> None:
    golden = (GOLDEN / "volume-clean-v1.json").read_bytes()
    clean = CleanProof(VOLUME, CleanReason.RELEASED, KEPT)
    assert clean.encode() == golden, "an older release reads it"
    assert CleanProof.decode(golden) == clean
    golden = (GOLDEN / "volume-clean-v2.json").read_bytes()
    clean = CleanProof(VOLUME, CleanReason.RELEASED, KEPT, taking=5)
    assert clean_proof.CLEAN_VERSION == 2
    assert clean.encode() == golden
    assert CleanProof.decode(golden) == clean
    unserved = CleanProof(VOLUME, CleanReason.UNSERVED)
    assert CleanProof.decode(unserved.encode()) == unserved


def test_aside_version_requires_update(tmp_path: pathlib.Path) -> None:
    assert logs_aside.ASIDE_VERSION == 1
    folder = tmp_path / f"{VOLUME}.1"
    folder.mkdir()
    (folder / "aside.json").write_bytes((GOLDEN / "volume-aside-v1.json").read_bytes())
    (one,) = LogsAside(str(tmp_path)).list()
    assert (one.why, one.put_aside_at) == ("another host owns the volume", 1700000000.5)

"""Reports of a host on volumes whose previous owner had not released them."""

import datetime
import logging
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.dataplane.volumes import metrics
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.take_overs import TakeOvers
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.log_object import log_created_at
from acstor.repository.volumes.store import VolumeStore
from testbed.fixtures.documents import ROOT
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest, move_to_second
from tests.unit.repository.volumes.log_objects import log_object

AddHost = Callable[[str], HostUnderTest]
WRITE_BACK = Durability(DurabilityClass.WRITE_BACK)


def outcomes(host: HostUnderTest) -> dict[str, int]:
    text: str = host.client.call("metrics")
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1
    name = f"{metrics.TAKE_OVERS}_total"
    return {
        outcome: int(float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        for outcome in ("complete", "rolled_back")
        if line.startswith(f'{name}{{outcome="{outcome}"}}')
    }


def test_rollback_is_told(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: AddHost,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "testbed.doubles.memory_volumes.MemoryVolume.object_of",
        lambda self: log_object(self.volume, self.epoch, self.next, created_ms=1_700_000_000_500),
    )
    store.set_durability(VOLUME, WRITE_BACK)
    host.open()
    host.device.write(512)
    host.call("push")
    host.device.write(512)
    with caplog.at_level(logging.WARNING):
        second = move_to_second(store, add_host)
    told = [record.getMessage() for record in caplog.records if "taken over" in record.message]
    assert len(told) == 1
    assert "from h1" in told[0]
    assert " s old" in told[0]
    metadata = store.get(VOLUME).record.metadata
    assert metadata["taken_over_from"] == "h1"
    taken_over_at = datetime.datetime.fromisoformat(metadata["taken_over_at"])
    assert abs(datetime.datetime.now(datetime.UTC) - taken_over_at) < datetime.timedelta(days=1)
    assert metadata["taken_over_content_at"] == "2023-11-14T22:13:20+00:00"
    assert outcomes(second) == {"complete": 0, "rolled_back": 1}
    assert outcomes(host) == {"complete": 0, "rolled_back": 0}


def test_take_over_of_write_through_is_complete(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost
) -> None:
    host.open()
    second = move_to_second(store, add_host)
    assert outcomes(second) == {"complete": 1, "rolled_back": 0}
    assert "taken_over_from" not in store.get(VOLUME).record.metadata


def test_volume_that_was_given_back_is_no_take_over(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost
) -> None:
    store.set_durability(VOLUME, WRITE_BACK)
    host.open()
    host.call("close", force=False)
    second = move_to_second(store, add_host)
    assert outcomes(second) == {"complete": 0, "rolled_back": 0}


def test_volume_is_served_though_its_record_does_not_take_the_note(
    host: HostUnderTest, store: VolumeStore, add_host: AddHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_durability(VOLUME, WRITE_BACK)
    host.open()

    def fails(self: VolumeOwner, volume: str, take_over: object) -> None:
        raise exception.InvalidError("too many entries")

    monkeypatch.setattr(VolumeOwner, "note_take_over", fails)
    assert move_to_second(store, add_host).state == "serving"


def test_moment_of_a_log_object_is_where_the_data_plane_puts_it() -> None:
    golden = (ROOT / "tests" / "golden" / "volume-log-v1.bin").read_bytes()
    assert log_created_at(golden) == 1_800_000_000
    assert log_created_at(log_object(VOLUME, 1, 1)) is None
    assert log_created_at(b"half") is None


def test_page_describes_the_metrics() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "metrics-volume-hosts.rst").read_text()
    assert f"``{metrics.TAKE_OVERS}_total``" in page
    assert f"``{metrics.LOGS_ASIDE}``" in page
    assert f"``{metrics.LOGS_ASIDE_BYTES}``" in page


def test_the_text_has_names_types_and_help() -> None:
    take_overs = TakeOvers()
    take_overs.count(is_complete=True)
    assert metrics.text(take_overs, []).splitlines() == [
        "# HELP acstor_volume_take_overs "
        "Volumes taken over from an owner that had not given them back.",
        "# TYPE acstor_volume_take_overs counter",
        'acstor_volume_take_overs_total{outcome="complete"} 1.0',
        'acstor_volume_take_overs_total{outcome="rolled_back"} 0.0',
        "# HELP acstor_volume_logs_aside Local logs that were put aside.",
        "# TYPE acstor_volume_logs_aside gauge",
        "acstor_volume_logs_aside 0.0",
        "# HELP acstor_volume_logs_aside_bytes Bytes that they take on the disk.",
        "# TYPE acstor_volume_logs_aside_bytes gauge",
        "acstor_volume_logs_aside_bytes 0.0",
    ]

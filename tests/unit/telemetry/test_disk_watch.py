"""Health of a disk as the kernel and the disk report it."""

import json
import os
import pathlib
import threading
from typing import Any

import pytest

from acstor.telemetry import block_devices, disk_watch
from acstor.telemetry.block_devices import BlockDevice
from acstor.telemetry.disk_watch import DiskWatch
from acstor.telemetry.host_state_details import DiskHealth
from testbed.fixtures import conditions

NVME: dict[str, Any] = {
    "smart_status": {"passed": True, "nvme": {"value": 0}},
    "nvme_smart_health_information_log": {"critical_warning": 0, "percentage_used": 7},
}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (NVME, DiskHealth(True, 0.07)),
        ({"smart_status": {"passed": False}, "endurance_used": {"current_percent": 130}},
         DiskHealth(False, 1.0)),
        ({"smart_status": {"passed": True}}, DiskHealth(True)),
        ({"scsi_percentage_used_endurance_indicator": 40}, DiskHealth(True, 0.4)),
        # A virtual disk: it cannot be asked.
        ({"smartctl": {"exit_status": 1, "messages": [{"severity": "error"}]}}, None),
        ({"smart_status": {"passed": "yes"}, "endurance_used": {"current_percent": "7"}}, None),
        ({"smart_status": [1], "endurance_used": {"current_percent": -1}}, None),
        ([], None),
    ],
)  # fmt: skip
def test_report_of_smartctl(report: Any, expected: DiskHealth | None) -> None:
    assert disk_watch.parse_report(json.dumps(report).encode()) == expected


@pytest.mark.parametrize("report", [b"", b"{", b"\xff\xfe", b"[" * 200_000, b"7"])
def test_what_is_no_report_says_nothing(report: bytes) -> None:
    assert disk_watch.parse_report(report) is None


def program(folder: pathlib.Path, text: str) -> str:
    file = folder / "smartctl"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def test_disk_is_asked_without_a_shell(tmp_path: pathlib.Path) -> None:
    asked = tmp_path / "asked"
    name = program(tmp_path, f"printf '%s\\n' \"$@\" > {asked}; echo '{json.dumps(NVME)}'; exit 64")
    device = BlockDevice("cciss!c0d0; touch x", True, tmp_path)
    assert disk_watch.ask_disk(device, name) == DiskHealth(True, 0.07)
    last = asked.read_text(encoding="utf-8").splitlines()[-1]
    assert last == "/dev/cciss/c0d0; touch x"
    assert disk_watch.ask_disk(BlockDevice("dm-0", False, tmp_path), name) is None


def test_program_that_hangs_or_is_missing_says_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "PROGRAM_TIMEOUT", 0.1)
    device = BlockDevice("sda", True, tmp_path)
    assert disk_watch.ask_disk(device, program(tmp_path, "exec sleep 60")) is None
    assert disk_watch.ask_disk(device, str(tmp_path / "none")) is None


@pytest.fixture
def sysfs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A RAID of a partition and a whole disk, under the file system of the tests."""
    number = os.stat(tmp_path).st_dev
    devices = tmp_path / "devices"
    for name in ("md0/slaves", "sda/sda1", "sdb", "sda/device", "sdb/device", "md0/md"):
        (devices / name).mkdir(parents=True)
    (devices / "sda/sda1/partition").write_text("1\n")
    (devices / "md0/slaves/sda1").symlink_to(devices / "sda/sda1")
    (devices / "md0/slaves/sdb").symlink_to(devices / "sdb")
    links = tmp_path / "dev/block"
    links.mkdir(parents=True)
    (links / f"{os.major(number)}:{os.minor(number)}").symlink_to(devices / "md0")
    return tmp_path


def test_devices_are_found_through_a_stack(sysfs: pathlib.Path) -> None:
    found = block_devices.devices_under(str(sysfs / "not" / "there"), sysfs)
    assert [(each.name, each.is_lowest) for each in found] == [
        ("md0", False), ("sda", True), ("sdb", True),
    ]  # fmt: skip
    assert block_devices.devices_under("/proc/self/status", sysfs) == []


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("devices/sda/device/state", "running\n", None),
        ("devices/sda/device/state", "offline\n", DiskHealth(False)),
        ("devices/sda/device/state", "dead\n", DiskHealth(False)),
        ("devices/md0/md/degraded", "1\n", DiskHealth(False)),
        ("devices/md0/md/degraded", "0\n", None),
        ("devices/sdb/device/life_time", "0x02 0x05\n", DiskHealth(True, 0.5)),
        ("devices/sdb/device/life_time", "0x0b 0x01\n", DiskHealth(True, 1.0)),
        ("devices/sdb/device/life_time", "0x00 0x00\n", None),
        ("devices/sdb/device/life_time", "none of it\n", None),
        ("devices/sdb/device/pre_eol_info", "0x03\n", DiskHealth(False)),
        ("devices/sdb/device/pre_eol_info", "0x01\n", None),
    ],
)
def test_what_the_kernel_says(
    sysfs: pathlib.Path, file: str, text: str, expected: DiskHealth | None
) -> None:
    (sysfs / file).write_text(text, encoding="ascii")
    watch = DiskWatch(
        str(sysfs), 3600.0,
        devices=lambda path: block_devices.devices_under(path, sysfs), asks=(block_devices.health,),
    )  # fmt: skip
    watch.check()
    assert watch.health == expected


def test_worst_of_all_counts() -> None:
    told = (None, DiskHealth(True, 0.2), DiskHealth(False), DiskHealth(True, 0.1))
    assert disk_watch.worst(*told) == DiskHealth(False, 0.2)
    assert disk_watch.worst(None, None) is None


def test_watch_looks_again_and_survives_a_fault(tmp_path: pathlib.Path) -> None:
    looks = []
    is_asked = threading.Event()

    def ask(device: BlockDevice) -> DiskHealth | None:
        looks.append(device)
        if len(looks) == 1:
            raise OSError("input/output error")
        is_asked.set()
        return DiskHealth(False, 0.9)

    device = BlockDevice("sda", True, tmp_path)
    watch = DiskWatch("/", 0.01, devices=lambda path: [device], asks=(ask,))
    assert watch.health is None
    watch.start()
    assert is_asked.wait(30)
    conditions.wait_for("what was told", lambda: watch.health == DiskHealth(False, 0.9))
    watch.stop(30)
    count = len(looks)
    watch.stop(0)
    assert len(looks) == count >= 2

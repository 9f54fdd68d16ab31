"""Orders and reports as they go between the agent and its processes, and headers of disks."""

import json
import os
import pathlib
import struct
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.agent.captures.orders import OriginOrder
from acstor.agent.captures.sources.qemu_server import BYTES_PER_CPU_SECOND, CPU_SECONDS_MIN
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.qcow2_facts import Qcow2Facts, read_facts, require_writable
from acstor.agent.restores.target import open_target
from acstor.agent.restores.writing import Written
from acstor.repository.source import confinement
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore.request import RestoreRequest

TASK, SERVER, VERSION, IMAGE = (str(uuid.UUID(int=number)) for number in range(1, 5))
ORDER = RestoreOrder(
    OriginOrder("file:///srv", 60.0, "h1"),
    RestoreRequest(TASK, SERVER, "vda", VERSION, "a project", IMAGE, 60.0),
    1,
    2,
    "qemu:///system",
    uses_monitor=True,
    nice=10,
)


def test_order_arrives_as_it_was_sent() -> None:
    line = ORDER.encode()
    assert line.endswith(b"\n")
    assert RestoreOrder.parse(line) == ORDER


@pytest.mark.parametrize(
    "failure", [None, Failure.of(exception.CorruptError("damaged", hint="look"))]
)
def test_report_arrives_as_it_was_sent(failure: Failure | None) -> None:
    report = RestoreReport(Written(1, 2, 3, 4), is_touched=False, failure=failure)
    assert RestoreReport.from_fields(json.loads(json.dumps(report.to_fields()))) == report


def test_report_that_does_not_say_so_may_have_written() -> None:
    report = RestoreReport(Written(), is_touched=False).to_fields()
    del report["is_touched"]
    assert RestoreReport.from_fields(report).is_touched


@pytest.mark.parametrize("fields", [{}, {"written": []}, {"written": {"read_bytes": -1}}])
def test_nonsense_is_no_report(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"written|bytes"):
        RestoreReport.from_fields(fields)


def header(
    version: int = 3,
    encryption: int = 0,
    snapshots: int = 0,
    features: int = 0,
    size: int = 1 << 20,
) -> bytes:
    front = struct.pack(">4sIQIIQ", b"QFI\xfb", version, 0, 0, 16, size)
    rest = struct.pack(">IIQQIIQ", encryption, 1, 0, 0, 1, snapshots, 0)
    return front + rest + struct.pack(">Q", features) + bytes(32)


def facts_of(path: pathlib.Path, content: bytes) -> Qcow2Facts:
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_facts(descriptor, str(path))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header(encryption=2), "encrypted"),
        (header(snapshots=3), "3 snapshots"),
        (header(features=2), "corrupt"),
        (header(features=4), "another file"),
        (header(version=2, features=4), None),
        (header(features=1), None),
        (header(), None),
    ],
)
def test_header_tells_what_forbids_writing(
    tmp_path: pathlib.Path, content: bytes, reason: str | None
) -> None:
    found = facts_of(tmp_path / "disk", content)
    if reason is None:
        require_writable("disk", found)
        return
    with pytest.raises(exception.UnsupportedError, match=reason):
        require_writable("disk", found)


def test_header_tells_the_size_of_the_disk(tmp_path: pathlib.Path) -> None:
    assert facts_of(tmp_path / "disk", header()).size_bytes == 1 << 20


def test_time_for_a_small_overlay_is_by_its_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore may write all of a disk into a file that has next to nothing."""
    found: list[int] = []

    def confine(arguments: list[str], limits: confinement.Limits, *_: Any, **__: Any) -> Any:
        found.append(limits.cpu_seconds)
        return ["false"]

    monkeypatch.setattr(confinement, "confine", confine)
    path = tmp_path / "disk"
    path.write_bytes(header(size=1 << 40))
    with pytest.raises(exception.UnavailableError):
        open_target("vda", str(path), "qcow2")
    assert found == [CPU_SECONDS_MIN + (1 << 40) // BYTES_PER_CPU_SECOND]


@pytest.mark.parametrize("content", [b"", header()[:60], b"x" * 200, header(version=4)])
def test_other_files_are_no_images(tmp_path: pathlib.Path, content: bytes) -> None:
    with pytest.raises(exception.UnsupportedError, match="qcow2"):
        facts_of(tmp_path / "disk", content)

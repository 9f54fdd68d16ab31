"""Formats of captures on a host's disk, against their golden files."""

import dataclasses
import pathlib

import pytest

from acstor import exception
from acstor.agent.captures import pins, spool, table
from acstor.agent.captures.orders import HeldDisk, HeldMoment
from acstor.agent.captures.pins import Pin
from acstor.agent.captures.table import CaptureRecord
from acstor.repository.versions.record import Consistency
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_capture.states import CaptureState
from tests.unit.agent.captures.guests import TASK, disk_at, guest_of_disks, request_of
from tests.unit.repository.versions.records import NOON

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
RECORD = CaptureRecord(
    request_of(devices=("vda",)),
    3,
    CaptureState.HELD,
    1795780800.0,
    HeldMoment(
        NOON,
        Consistency.FS,
        "",
        (HeldDisk("vda", TASK, 1 << 20, 4096, False, "ab" * 32, None, True),),
        {"vdb": "it is swap, which nobody wants back"},
    ),
    Failure(exception.ErrorKind.UNAVAILABLE, "the origin is away", "look at it"),
    devices=("vda", "vdb"),
    pin="/pins",
    is_begun=True,
)
PIN = Pin(guest_of_disks(disk_at("/pins/vda"), is_active=False), "/pins", NOON, is_final=True)


def test_record_requires_update() -> None:
    assert table.RECORD_VERSION == 1
    golden = (GOLDEN / "capture-record-v1.json").read_bytes()
    assert RECORD.encode() == golden
    assert CaptureRecord.parse(golden, "a record") == RECORD


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "request": {}}']
)
def test_malformed_records_are_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        CaptureRecord.parse(content, "a record")


def test_record_of_a_newer_release_is_refused() -> None:
    content = RECORD.encode().replace(b'"version": 1}', b'"version": 2}')
    with pytest.raises(exception.UnsupportedError):
        CaptureRecord.parse(content, "a record")


def test_pin_requires_update() -> None:
    assert pins.PIN_VERSION == 1
    golden = (GOLDEN / "capture-pin-v1.json").read_bytes()
    assert pins._encode(PIN) == golden
    assert pins._parse(golden, "/pins") == PIN
    for content in (b"[]", b"{}", golden.replace(b'"file"', b'"tape"')):
        with pytest.raises(ValueError):  # noqa: PT011 - each has a text of its own
            pins._parse(content, "/pins")


def test_spool_requires_update() -> None:
    assert spool.SPOOL_VERSION == 1  # the bytes: test_reading.py


def test_bytes_count_only_while_they_are_held() -> None:
    assert RECORD.held_bytes == 4096
    assert dataclasses.replace(RECORD, state=CaptureState.COMMITTED).held_bytes == 0

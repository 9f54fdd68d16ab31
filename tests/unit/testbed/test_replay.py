"""Replaying a trace against a file."""

import dataclasses
import json
import pathlib

import pytest

from testbed import boot_trace, replay
from testbed.exception import ContentMismatchError, TestbedError
from tests.unit.testbed.test_boot_trace import DISK, GOLDEN, GOLDEN_TRACE


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "disk.raw"
    path.write_bytes(DISK)
    return path


def test_replay_reads_everything(disk: pathlib.Path) -> None:
    result = replay.replay(GOLDEN_TRACE, disk, think_scale=0, direct=False)
    assert result.read_count == len(GOLDEN_TRACE.reads)
    assert result.bytes_read == GOLDEN_TRACE.bytes_read
    assert 0 < result.waited_s <= result.elapsed_s
    assert result.latency_p50_us <= result.latency_p99_us <= result.latency_max_us


def test_replay_waits_the_think_time(disk: pathlib.Path) -> None:
    reads = [dataclasses.replace(one, think_us=20_000) for one in GOLDEN_TRACE.reads]
    trace = dataclasses.replace(GOLDEN_TRACE, reads=reads)
    assert replay.replay(trace, disk, direct=False).elapsed_s >= 0.020 * len(reads)
    assert replay.replay(trace, disk, think_scale=0.5, direct=False).elapsed_s >= 0.010 * len(reads)


def test_replay_of_one_wrong_byte_is_a_mismatch(disk: pathlib.Path) -> None:
    content = bytearray(DISK)
    content[65536 + 777] ^= 1
    disk.write_bytes(content)
    with pytest.raises(ContentMismatchError, match="65536 bytes at 65536"):
        replay.replay(GOLDEN_TRACE, disk, think_scale=0, direct=False)


def test_replay_of_a_short_disk_fails(disk: pathlib.Path) -> None:
    disk.write_bytes(DISK[:70000])
    with pytest.raises(TestbedError, match="4464 of 65536 bytes"):
        replay.replay(GOLDEN_TRACE, disk, think_scale=0, direct=False)


def test_program_prints_the_result(disk: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(GOLDEN), str(disk), "--buffered", "--think-scale", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["read_count"] == len(GOLDEN_TRACE.reads)


def test_program_with_a_bad_trace_says_why(
    disk: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay.main([str(disk), str(disk), "--buffered"]) != 0
    assert "no boot trace" in capsys.readouterr().err


def test_trace_of_the_golden_file_is_the_one_here() -> None:
    assert boot_trace.load(GOLDEN) == GOLDEN_TRACE

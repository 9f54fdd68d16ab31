"""The boot trace format: golden file, round trip, refusal of what is not one."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import boot_trace
from testbed.boot_trace import BootTrace, TraceRead
from testbed.exception import TraceFormatError

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "boot-trace-v1.jsonl"
DISK = b"".join(bytes([sector]) * 512 for sector in range(256))


def read(offset: int, length: int, think_us: int) -> TraceRead:
    content = DISK[offset : offset + length]
    return TraceRead(offset, length, think_us, boot_trace.content_digest(content))


GOLDEN_TRACE = BootTrace(
    len(DISK),
    "golden: sector i of 256 holds 512 times the byte i",
    [read(0, 512, 0), read(1024, 4096, 1500), read(65536, 65536, 0), read(512, 1024, 20_000_000)],
)


def test_golden_file_version_requires_update() -> None:
    lines = "".join(f"{line}\n" for line in boot_trace.dump(GOLDEN_TRACE))
    assert lines == GOLDEN.read_text(), "the format changed: raise FORMAT_VERSION"
    assert boot_trace.load(GOLDEN) == GOLDEN_TRACE


def test_save_then_load_returns_the_trace(tmp_path: pathlib.Path) -> None:
    boot_trace.save(GOLDEN_TRACE, tmp_path / "trace")
    assert boot_trace.load(tmp_path / "trace") == GOLDEN_TRACE
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.integers(1, 256), st.integers(0, 10**9)), max_size=20
    )
)
def test_any_reads_round_trip(reads: list[tuple[int, int, int]]) -> None:
    trace = BootTrace(
        len(DISK),
        "property",
        [read(512 * first, 512 * min(count, 256 - first), us) for first, count, us in reads],
    )
    assert boot_trace.parse(boot_trace.dump(trace), "property") == trace


def test_chunks_are_those_that_reads_touch() -> None:
    assert GOLDEN_TRACE.chunks(4096) == {0, 1, *range(16, 32)}
    assert GOLDEN_TRACE.bytes_read == 512 + 4096 + 65536 + 1024


Change = Callable[[list[Any]], object]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lines: lines.pop(), "cut short"),
        (lambda lines: lines.append(lines[-1]), "more than"),
        (lambda lines: lines.clear(), "no boot trace"),
        (lambda lines: lines[0].update(format="other"), "no boot trace"),
        (lambda lines: lines[0].update(version=2), "version 2"),
        (lambda lines: lines[0].update(digest="md5"), "digest"),
        (lambda lines: lines[0].update(disk_size_bytes="1"), "disk_size_bytes"),
        (lambda lines: lines[0].update(read_count=-1), "read_count"),
        (lambda lines: lines[0].update(read_count=True), "read_count"),
        (lambda lines: lines[1].append(0), "offset, length"),
        (lambda lines: lines[1].__setitem__(0, 131072), "no read of this disk"),
        (lambda lines: lines[1].__setitem__(0, 100), "no read of this disk"),
        (lambda lines: lines[1].__setitem__(1, 0), "no read of this disk"),
        (lambda lines: lines[1].__setitem__(1, 1 << 40), "length"),
        (lambda lines: lines[1].__setitem__(2, -1), "think time"),
        (lambda lines: lines[1].__setitem__(2, 1.5), "think time"),
        (lambda lines: lines[1].__setitem__(3, "00"), "digest"),
    ],
)
def test_malformed_trace_is_refused(change: Change, reason: str) -> None:
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    change(lines)
    with pytest.raises(TraceFormatError, match=reason):
        boot_trace.parse([json.dumps(line) for line in lines], "changed")


@given(st.lists(st.text(max_size=60), max_size=4))
def test_any_text_is_refused_clearly(lines: list[str]) -> None:
    with pytest.raises(TraceFormatError):
        boot_trace.parse(lines, "random")


def test_load_of_binary_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "trace").write_bytes(b"\xff\x00" * 100)
    with pytest.raises(TraceFormatError):
        boot_trace.load(tmp_path / "trace")

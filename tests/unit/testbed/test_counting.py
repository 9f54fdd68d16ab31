"""Counting: guests' reads, metrics, traces, nbdkit's statistics."""

import pathlib

import pytest

from testbed import guest_reads
from testbed.approaches import local_cache
from testbed.approaches.base import TierBytes
from testbed.approaches.collaborative import chunks_read, minus
from testbed.host_processes import MetricSample, parse_metrics, write_configuration

CHUNK = guest_reads.CHUNK_SIZE

QEMU_LOG = """\
blk_co_preadv blk 0x55 bs 0x56 offset 0 bytes 512 flags 0x0
blk_co_preadv blk 0x55 bs 0x56 offset 65024 bytes 1024 flags 0x0
blk_co_pwritev blk 0x55 bs 0x56 offset 262144 bytes 4096 flags 0x0
7@1.5:blk_co_preadv blk 0x55 bs 0x56 offset 131072 bytes 65536 flags 0x0
blk_co_preadv blk 0x55 bs 0x56 offset 0 bytes 0 flags 0x0
"""


def test_reads_are_those_of_the_log(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    log.write_text(QEMU_LOG)
    assert list(guest_reads.reads(log)) == [(0, 512), (65024, 1024), (131072, 65536)]
    assert list(guest_reads.reads(tmp_path / "none")) == []


def test_union_counts_each_content_once_and_no_zeros(tmp_path: pathlib.Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"a" * CHUNK + b"b" * CHUNK + bytes(CHUNK) + b"a" * CHUNK + b"c" * 512)

    def union(*reads: tuple[int, int]) -> int:
        lines = [f"blk_co_preadv blk 0 bs 0 offset {offset} bytes {size}" for offset, size in reads]
        (tmp_path / "log").write_text("\n".join(lines))
        return guest_reads.union_bytes([tmp_path / "log", tmp_path / "log"], disk)

    assert union((0, 512)) == CHUNK
    assert union((0, 512), (1024, 512)) == CHUNK
    assert union((0, CHUNK + 1)) == 2 * CHUNK
    assert union((2 * CHUNK, CHUNK)) == 0
    assert union((0, 512), (3 * CHUNK, 512)) == CHUNK
    assert union((0, 4 * CHUNK + 512)) == 3 * CHUNK


def test_metrics_are_parsed_with_labels() -> None:
    page = (
        "# HELP acstor_reads help\n# TYPE acstor_reads counter\n"
        'acstor_reads_total{result="ok",disk="a b"} 12\n'
        "acstor_up 1\nacstor_seconds_sum 1.5e-3\n# EOF\n"
    )
    assert parse_metrics(page) == [
        MetricSample("acstor_reads_total", {"result": "ok", "disk": "a b"}, 12.0),
        MetricSample("acstor_up", {}, 1.0),
        MetricSample("acstor_seconds_sum", {}, 0.0015),
    ]


def test_chunks_of_a_trace_leave_out_zeros() -> None:
    trace = (
        '{"kind":"lost","records":3}\n{"kind":"read","offset":0,"length":512}\n'
        '{"kind":"chunk","chunk":7,"tier":"peer"}\n{"kind":"chunk","chunk":7,"tier":"store"}\n'
        '{"kind":"chunk","chunk":9,"tier":"zero"}\n'
    )
    assert chunks_read(trace) == {7}


def test_tiers_add_up() -> None:
    assert TierBytes(1, None, 3) + TierBytes(None, None, 4) == TierBytes(1, None, 7)
    assert minus(TierBytes(5, 6, 7), TierBytes(1, 2, 3)) == TierBytes(4, 4, 4)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("total: 5 ops\nread: 812 ops, 0.001 s, 43.50 MiB, 32 GiB/s op, 9 MiB/s total\n", 45613056),
        ("read: 1 ops, 0.001 s, 512 bytes, 1 MiB/s\n", 512),
        ("write: 1 ops, 0.001 s, 512 bytes, 1 MiB/s\n", None),
    ],
)
def test_guest_bytes_of_nbdkits_statistics(text: str, count: int | None) -> None:
    assert local_cache.read_bytes(text) == count


def test_configuration_is_read_back(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    write_configuration(path, {"DEFAULT": {"host": "h0"}, "store": {"capacity": "1GiB"}})
    words = ["[DEFAULT]", "host", "=", "h0", "[store]", "capacity", "=", "1GiB"]
    assert path.read_text().split() == words

"""Turning nbdkit's log into a trace."""

import pathlib

import pytest

from testbed import boot_trace, trace_recorder
from testbed.exception import TraceFormatError

LOG = """\
2026-11-21 11:32:30.130911 Ready thread_model=3
2026-11-21 11:32:30.642757 connection=1 Connect export="" tls=0 size=0x80000000
2026-11-21 11:32:30.700000 connection=1 Read id=1 offset=0x0 count=0x200 ...
2026-11-21 11:32:30.700100 connection=1 ...Read id=1 return=0
2026-11-21 11:32:30.702600 connection=1 Read id=2 offset=0x1000 count=0x400 ...
2026-11-21 11:32:30.702700 connection=1 Read id=3 offset=0x400 count=0x200 ...
2026-11-21 11:32:30.702800 connection=1 ...Read id=2 return=0
2026-11-21 11:32:30.702900 connection=1 ...Read id=3 return=0
2026-11-21 11:32:31.702900 connection=1 Read id=4 offset=0x0 count=0x200 ...
2026-11-21 11:32:31.703000 connection=1 Disconnect transactions=4
"""


def test_timed_reads_have_the_time_between_them() -> None:
    assert list(trace_recorder.timed_reads(LOG.splitlines())) == [
        (0, 512, 0),
        (4096, 1024, 2500),
        (1024, 512, 0),
        (0, 512, 1_000_000),
    ]


def test_from_log_takes_digests_from_the_disk(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").write_text(LOG)
    content = bytes(range(256)) * 32
    (tmp_path / "disk").write_bytes(content)
    trace = trace_recorder.from_log(tmp_path / "log", tmp_path / "disk", "unit test")
    assert trace.disk_size_bytes == len(content)
    assert trace.reads[1].digest == boot_trace.content_digest(content[4096:5120])


def test_from_log_without_reads_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").write_text(LOG.splitlines()[0])
    (tmp_path / "disk").write_bytes(bytes(4096))
    with pytest.raises(TraceFormatError, match="no read"):
        trace_recorder.from_log(tmp_path / "log", tmp_path / "disk", "unit test")

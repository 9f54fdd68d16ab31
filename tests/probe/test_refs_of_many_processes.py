"""Many processes that change one ref at once: no change is lost."""

import pathlib
import subprocess
import sys

import pytest

from acstor.origin import posix, posix_refs
from testbed.fixtures import ref_counter

PROCESSES = 6
TIMES = 60


@pytest.mark.parametrize("is_former", [False, True])
def test_no_change_is_lost(tmp_path: pathlib.Path, is_former: bool) -> None:
    if is_former:
        (tmp_path / "refs").mkdir()
    command = [sys.executable, ref_counter.__file__, str(tmp_path), "counter", str(TIMES)]
    counters = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    doubts = 0
    for counter in counters:
        output, _ = counter.communicate()
        assert counter.returncode == 0
        doubts += int(output)
    present = posix.PosixOrigin(str(tmp_path)).get_ref("counter")
    assert present is not None
    assert 0 <= int(present.content) - PROCESSES * TIMES <= doubts
    if not is_former:
        files = list((tmp_path / ".refs" / "counter@").iterdir())
        assert len(files) == posix_refs.RETAINED_VERSIONS + 1

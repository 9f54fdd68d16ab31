"""Processes that read files, and whose API is killed in the middle of an archive."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
WAIT_MS = 120_000
API = """
import pathlib, signal, sys
from acstor.browsing.disk_files import DiskFiles
from acstor.browsing.session import Session

content, moment = pathlib.Path(sys.argv[1]).read_bytes(), sys.argv[2]

class Disk:
    size_bytes = len(content)
    is_silent = False

    def read(self, offset, size):
        if self.is_silent:
            stand()
        return content[offset : offset + size]

def stand():
    print(session._process.pid, flush=True)
    while True:
        signal.pause()

disk = Disk()
session = Session(disk, 3600)
archive = DiskFiles(session).archive(0, "/", 1 << 30)
next(archive)
if moment == "it waits for the client":
    stand()
disk.is_silent = True
for _ in archive:
    pass
"""
"""A program that begins an archive, and stands still in the middle of it."""


@pytest.mark.parametrize("moment", ["it waits for the client", "it waits for the origin"])
def test_process_ends_with_its_api(moment: str, ext4_disk: bytes, tmp_path: pathlib.Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(ext4_disk)
    command = [sys.executable, "-P", "-c", API, str(image), moment]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as api:
        try:
            assert api.stdout is not None
            child = os.pidfd_open(int(api.stdout.readline()))
        finally:
            api.kill()
    try:
        poll = select.poll()
        poll.register(child, select.POLLIN)
        assert poll.poll(WAIT_MS), "the process outlives its API"
    finally:
        # It may be there no more.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)

"""The commands of the backup guide, run as they are written, on an origin in use."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from acstor.origin.opening import open_origin
from acstor.repository.repository import Repository
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.states import VolumeRecordState, state_of
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import SOURCE, block
from testbed.fixtures.host_volumes import Volumes, call, content, open_volume, qemu_io
from testbed.fixtures.hosts import BIN, MIB, Cloud, Host, cloud_in
from testbed.fixtures.stamped_writers import StampedWriters

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

PAGE = SOURCE / "admin" / "backup.rst"
SIZE = 4 * MIB
WRITERS = 2
COPY = """
import itertools, signal, sys, threading
from acstor.cmd.cli import main
from acstor.origin.posix import PosixOrigin
store, packs, interrupted = PosixOrigin.put_if_absent, itertools.count(), threading.Event()
def put_if_absent(origin, key, *more):
    if key.startswith("packs/") and next(packs) == 1:
        interrupted.wait()
    return store(origin, key, *more)
def interrupt(*what):
    interrupted.set()
    signal.default_int_handler(*what)
PosixOrigin.put_if_absent = put_if_absent
signal.signal(signal.SIGINT, interrupt)
sys.exit(main(sys.argv[1:]))
"""
"""The command line, whose second pack waits until somebody interrupts it."""


def run_block(caption: str, **values: object) -> str:
    """Run a block with its example values replaced; every command must succeed."""
    text = block(PAGE, caption).text
    for name, value in values.items():
        text, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={value}", text)
        assert count == 1, name
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"{caption}: {result.stdout}{result.stderr}"
    return result.stdout


def configuration(host: Host, name: str, pattern: str, line: str) -> pathlib.Path:
    """Write a copy of a host's configuration in which one line is another, as the page says."""
    path = host.path / name
    text, count = re.subn(rf"(?m)^{pattern}$", line, host.config.read_text())
    assert count == 1
    path.write_text(text)
    return path


def write(host: Host, volume: str, pattern: int) -> None:
    """Open a volume on a host, write to it, and push that."""
    written = qemu_io(open_volume(host, volume), f"write -P {pattern} 1M 64k", "flush")
    assert written.returncode == 0, written.stdout
    call(host, "push", volume)


def copy_in_use(
    cloud: Cloud,
    host: Host,
    volume: str,
    reopened: str,
    writers: StampedWriters,
    backup: pathlib.Path,
) -> None:
    """Copy the origin twice while everything in it changes."""
    names = {"CONFIG": host.config, "BACKUP": backup}
    writers.wait_writes(100)
    call(host, "push", volume)
    run_block("copy the repository", **names)
    writers.wait_writes(100)
    call(host, "push", volume)
    assert call(host, "fold", volume)["is_folded"]
    write(host, reopened, 8)
    run_block("copy the repository", **names)
    # What comes too late; the epochs that it has are given out again, or would be.
    writers.wait_writes(50)
    call(host, "push", volume)
    cloud.register(2 * MIB)
    call(host, "close", reopened, force=False)
    write(host, reopened, 9)


def test_origin_is_copied_in_use_and_restored(tmp_path: pathlib.Path) -> None:
    with cloud_in(tmp_path) as cloud:
        host = cloud.add_host(agent=False, gc={"grace": 60})
        control = Volumes(cloud)
        image = cloud.register(8 * MIB)
        often = Durability(DurabilityClass.WRITE_BACK, period_s=0.2)
        volume = control.create(SIZE, host, durability=often)
        unused = control.create(8 * MIB, image_id=image.id)
        backup = tmp_path / "backup"
        backup.mkdir()
        orphan = control.create(SIZE, host, durability=often)
        reopened = control.create(SIZE, host, durability=often)
        for other in (orphan, reopened):
            write(host, other, 7)
        writers = StampedWriters(bytes(SIZE), WRITERS, seed=5)
        writers.start(open_volume(host, volume))
        copy_in_use(cloud, host, volume, reopened, writers, backup)
        writers.wait_writes(50)
        writers.cut()
        writers.join()
        host.stop()

        verified = configuration(host, "backup.conf", "url = .*", f"url = posix://{backup}")
        listed = run_block("verify the copy", CONFIG=verified)
        assert image.id in listed
        assert volume in listed
        run_block("put the local logs aside", STATE=host.path)
        run_block("put the old origin aside", ORIGIN=cloud.origin)
        run_block("restore the repository", CONFIG=verified, ORIGIN=cloud.origin)

        restored = Repository.open(open_origin(f"posix://{cloud.origin}", 5))
        assert list(restored.list_image_ids()) == [image.id], "the other one came too late"
        record = restored.get_image(image.id).record
        assert restored.load_manifest(record.manifest).content_name() == record.content
        result = host.command("repository", "verify", timeout=240)
        assert result.returncode == 0, result.stderr
        for one in control.store.list():
            assert state_of(one.record) is VolumeRecordState.AVAILABLE, "no host owns one"
        host.start_dataplane()
        writers.forget_what_is_durable()
        undone = writers.check(content(open_volume(host, volume), tmp_path / "restored"))
        assert undone > 0, "what was written after the copy is not in it"
        for other, pattern in ((orphan, b"\7"), (reopened, b"\10")):
            kept = content(open_volume(host, other), tmp_path / other)
            assert kept[MIB : MIB + (64 << 10)] == pattern * (64 << 10)
        write(host, reopened, 10)
        control.store.allow_host(unused, host.name)
        clone = content(open_volume(host, unused), tmp_path / "clone")
        assert clone == image.content


def test_copy_is_interrupted_and_gone_on_with(tmp_path: pathlib.Path) -> None:
    """Control-C in the middle of a large copy; its report as a program reads it."""
    with cloud_in(tmp_path) as cloud:
        host = cloud.add_host(agent=False)
        Volumes(cloud)
        image = cloud.register(256 * MIB)
        backup = tmp_path / "backup"
        backup.mkdir()
        command = ("repository", "copy", f"posix://{backup}", "--jobs", "1", "-f", "json")
        process = subprocess.Popen(
            [sys.executable, "-c", COPY, "--config-file", str(host.config), *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            wait_for("the first pack is copied", lambda: list(backup.glob("packs/*/*")), 60)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=240)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130, told
        assert not (backup / "format").exists()
        assert not list(cloud.origin.glob(".refs/gc/condemned/*")), "no hold is left"
        result = host.command(*command, timeout=240)
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert report["objects_present"] > 0
        assert (report["images"], report["is_complete"], report["damages"]) == (1, True, [])
        again = host.command("repository", "copy", cloud.origin_url, timeout=60)
        assert again.returncode == 3, again.stderr
        assert image.id in set(
            Repository.open(open_origin(f"posix://{backup}", 5)).list_image_ids()
        )

"""fio verifies what it reads of an image and of a volume while the data plane is killed.

``ACSTOR_FIO_SECONDS=3600 .venv/bin/python -m pytest -s --extended tests/probe/test_fio_verify.py``
"""

import json
import os
import pathlib
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from acstor.repository.volumes.durability import Durability, DurabilityClass
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import RECONNECT_DELAY, Volumes, open_volume
from testbed.fixtures.hosts import MIB, Cloud, Host, cloud_in

SECONDS = int(os.environ.get("ACSTOR_FIO_SECONDS", "60"))
VERIFIED = ("--verify=crc32c", "--verify_fatal=1", "--bs=4k", "--randseed=7")
IMAGE_SIZE = 64 * MIB
VOLUME_SIZE = 256 * MIB
WRITERS = 3
#: Of a writer: the origin keeps what was pushed for a day, and as fast as they can they push 2 GiB
#: a minute.
RATE = "--rate=2m"
PART = 64 * MIB
#: Whoever opens a log again pushes again what no checkpoint calls clean, here up to all of it: a
#: long run kills seldom enough for the origin's disk.
REQUESTS_BETWEEN_KILLS = range(1000 * max(1, SECONDS // 150), 8000 * max(1, SECONDS // 150))
#: Until the most of them are answered: a long run asks for more between two kills.
REQUESTS_TIMEOUT_S = 60.0 * max(1, SECONDS // 150)

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.extended,
    pytest.mark.timeout(600 + SECONDS),
]  # fmt: skip


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        yield cloud


def fio(name: str, path: pathlib.Path, *options: str) -> "subprocess.Popen[str]":
    command = ["fio", f"--name={name}", f"--filename={path}", "--output-format=json", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=path.parent.parent
    )


def result(job: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return what a job says, which must have found nothing wrong."""
    output, _ = job.communicate(timeout=600 + SECONDS)
    assert job.returncode == 0, output
    (found,) = json.loads(output[output.index("{\n") :])["jobs"]
    assert found["error"] == 0, output
    return dict(found)


class VolumeFile:
    """A volume as a file: QEMU's storage daemon takes lost connections up again.

    For one request at a time: while one waits, another one overwrites its data (QEMU 10.0).
    """

    def __init__(self, opened: dict[str, Any], path: pathlib.Path) -> None:
        self.path = path
        path.parent.mkdir(exist_ok=True)
        path.touch()
        server = f"server.type=unix,server.path={opened['socket']},export={opened['export']}"
        disk = f"driver=nbd,node-name=disk,{server},reconnect-delay={RECONNECT_DELAY}"
        export = f"type=fuse,id=disk,node-name=disk,mountpoint={path},writable=on"
        command = ["qemu-storage-daemon", "--blockdev", disk, "--export", export]
        self._process = subprocess.Popen(command)
        wait_for("the volume is a file", lambda: path.stat().st_size == VOLUME_SIZE)

    def close(self) -> None:
        """Take it away."""
        self._process.kill()
        self._process.wait(60)
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, timeout=60)


def kill_again_and_again(host: Host, jobs: "list[subprocess.Popen[str]]") -> int:
    """Kill the data plane under its clients until they are done; return how often."""
    rng, kills = random.Random(3), 0
    while all(job.poll() is None for job in jobs):
        requests = host.metric("acstor_nbd_requests") + rng.choice(REQUESTS_BETWEEN_KILLS)
        wait_for(
            "requests are answered",
            lambda: (
                host.metric("acstor_nbd_requests") >= requests  # noqa: B023
                or any(job.poll() is not None for job in jobs)
            ),
            REQUESTS_TIMEOUT_S,
        )
        killed = host.dataplane_pid()
        assert killed is not None
        host.kill_dataplane()
        host.wait_restarted(killed)
        kills += 1
    return kills


def test_fio_finds_nothing_wrong_while_the_data_plane_is_killed(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    disk = tmp_path / "source" / "image"
    disk.parent.mkdir()
    result(fio("fill", disk, "--rw=write", f"--size={IMAGE_SIZE}", "--do_verify=0", *VERIFIED))
    host = cloud.add_host(readpath={"read_deadline": 60})
    image = cloud.register_file(disk)
    cloud.wait_ready(image)
    often = Durability(DurabilityClass.WRITE_BACK, period_s=1.0)
    opened = open_volume(host, Volumes(cloud).create(VOLUME_SIZE, host, durability=often))
    timed = ("--time_based", f"--runtime={SECONDS}", "--direct=1", *VERIFIED)
    writing = ("--rw=randwrite", f"--size={PART}", "--verify_backlog=1024", "--fsync=256", RATE)
    reading = ("--rw=randread", "--readonly", f"--size={IMAGE_SIZE}", "--rate_iops=2000")
    files: list[VolumeFile] = []
    try:
        for number in range(WRITERS):
            files.append(VolumeFile(opened, tmp_path / "volume" / str(number)))
        jobs = [
            fio(f"part-{number}", file.path, f"--offset={number * PART}", *writing, *timed)
            for number, file in enumerate(files)
        ]
        jobs.append(fio("image", host.file(image), *reading, *timed))
        kills = kill_again_and_again(host, jobs)
        *parts, read = (result(job) for job in jobs)
    finally:
        for file in files:
            file.close()
    print(
        f"{SECONDS} s, {kills} kills: {read['read']['total_ios']} reads of the image, "
        f"{sum(part['write']['total_ios'] for part in parts)} writes and "
        f"{sum(part['read']['total_ios'] for part in parts)} reads of the volume, nothing wrong"
    )
    assert kills

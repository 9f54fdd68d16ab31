"""SIGKILL at random moments of registrations and collections on a POSIX origin.

After every kill what is published is whole, and doing it again completes.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import uuid

import pytest

from acstor.origin import posix
from acstor.repository.gc.garbage import Collector
from acstor.repository.images.image_index import INDEX_REF
from acstor.repository.repository import Repository
from acstor.repository.verification import Verifier
from testbed.fixtures.stored_chunks import read_chunk

KILLS = int(os.environ.get("ACSTOR_PROBE_KILLS", "20"))
IMAGE_SIZE = 24 << 20
SEED = int(os.environ.get("ACSTOR_PROBE_SEED", "1"))


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    (tmp_path / "origin").mkdir()
    return Repository.init(posix.PosixOrigin(str(tmp_path / "origin")), 4096)


def start(repository: Repository, path: pathlib.Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a worker and wait until it begins."""
    origin = repository.origin
    assert isinstance(origin, posix.PosixOrigin)
    action, *rest = arguments
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.probe.registration_worker",
            action,
            f"posix://{origin.root}",
            str(path / "cache"),
            *rest,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "started\n"
    return worker


def kill_after(worker: "subprocess.Popen[str]", seconds: float) -> bool:
    """Kill the worker after a while; return whether that was before its end."""
    try:
        worker.wait(seconds)
    except subprocess.TimeoutExpired:
        worker.send_signal(signal.SIGKILL)
    return rest_of(worker) != "done\n"


def finish(worker: "subprocess.Popen[str]") -> None:
    assert (rest_of(worker), worker.wait(60)) == ("done\n", 0)


def rest_of(worker: "subprocess.Popen[str]") -> str:
    """Return what a worker prints until its end.

    Not by communicate(), which passes over what the pipe's reader has read ahead: all that was
    printed when the first line was read.
    """
    assert worker.stdout is not None
    with worker.stdout:
        return worker.stdout.read()


def read_image(repository: Repository, image_id: str) -> bytes:
    image = repository.get_image(image_id)
    manifest = repository.load_manifest(image.record.manifest)
    parts = []
    for index in range(manifest.chunk_count):
        entry = manifest.entry(index)
        if entry is None:
            parts.append(bytes(manifest.chunk_size))
        else:
            parts.append(read_chunk(repository.origin, entry, manifest.chunk_size))
    return b"".join(parts)


def collect_after_days(repository: Repository) -> None:
    """Collect what was condemned, and what the killed ones left, as of long ago.

    A name of a ref that was being removed is listed until the file that tells of it is swept.
    """
    origin = repository.origin
    assert isinstance(origin, posix.PosixOrigin)
    for folder, _, names in os.walk(origin.root):
        for name in names:
            os.utime(os.path.join(folder, name), (0.0, 0.0))
    for _ in range(2):
        Collector(repository, "probe", 0.0).collect()


@pytest.mark.slow
def test_killed_registration_leaves_the_repository_sound(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    choice = random.Random(SEED)
    killed = 0
    for number in range(20 * KILLS):
        if number >= KILLS and killed >= KILLS // 4:
            break  # there are more where a busy machine lets signals come too late
        content = choice.randbytes(IMAGE_SIZE)
        (tmp_path / "image").write_bytes(content)
        image_id = str(uuid.UUID(int=number))
        arguments = ("register", str(tmp_path / "image"), image_id)
        killed += kill_after(start(repository, tmp_path, *arguments), choice.uniform(0, 0.25))
        assert Verifier(repository).verify().damages == []
        stored_before = len(list(repository.origin.list("packs/")))
        finish(start(repository, tmp_path, *arguments))
        stored = len(list(repository.origin.list("packs/"))) - stored_before
        packs = len(repository.load_manifest(
            repository.get_image(image_id).record.manifest).packs())  # fmt: skip
        assert stored <= packs
        assert read_image(repository, image_id) == content
        repository.remove_image(image_id)
    assert killed >= KILLS // 4, "the kills came too late to prove anything"
    collect_after_days(repository)
    assert list(repository.origin.list()) == ["format"]
    assert list(repository.origin.list_refs()) == [INDEX_REF]


@pytest.mark.slow
def test_killed_collections_beside_registrations_lose_nothing(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    choice = random.Random(SEED)
    contents: dict[str, bytes] = {}
    shared = [choice.randbytes(1 << 20) for _ in range(12)]
    for number in range(KILLS):
        image_id = str(uuid.UUID(int=number))
        content = b"".join(choice.sample(shared, 6)) + choice.randbytes(2 << 20)
        (tmp_path / "image").write_bytes(content)
        collector = start(repository, tmp_path, "collect")
        registrar = start(repository, tmp_path, "register", str(tmp_path / "image"), image_id)
        kill_after(collector, choice.uniform(0, 0.1))
        second = start(repository, tmp_path, "collect")
        finish(registrar)
        kill_after(second, choice.uniform(0, 0.1))
        contents[image_id] = content
        if len(contents) > 3:
            gone = choice.choice(sorted(contents))
            del contents[gone]
            repository.remove_image(gone)
        for known, expected in contents.items():
            assert read_image(repository, known) == expected
    assert Verifier(repository).verify().damages == []
    collect_after_days(repository)
    assert list(repository.origin.list_refs("gc/")) == []
    for known, expected in contents.items():
        assert read_image(repository, known) == expected

"""Volumes of repositories of version 6: folds make deltas, which every host reads."""

import functools
import pathlib
import random
import uuid
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin.opening import open_origin
from acstor.repository import disk_manifest, upgrade
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import COMPRESSED_VERSION, Repository
from acstor.repository.verification import Verifier
from acstor.repository.volumes.store import NewVolume
from testbed.fixtures.anonymous_memory import anonymous_bytes
from testbed.fixtures.host_volumes import Volumes, call, content, open_volume, qemu_io
from testbed.fixtures.hosts import Cloud, Host, cloud_in

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(600)]

CHUNK = 64 << 10
CHUNKS = 6000
"""Of the image: as many as it takes for a delta of a few to be worth it."""
SIZE = CHUNKS * CHUNK


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        upgrade.upgrade(open_origin(cloud.origin_url, 5), COMPRESSED_VERSION)
        yield cloud


def write_image(path: pathlib.Path) -> bytearray:
    """Write a sparse disk each of whose chunks is another; return its content."""
    disk = bytearray(SIZE)
    with path.open("wb") as file:
        file.truncate(SIZE)
        for index in range(CHUNKS):
            mark = b"chunk %d of the image" % index
            disk[index * CHUNK : index * CHUNK + len(mark)] = mark
            file.seek(index * CHUNK)
            file.write(mark)
    return disk


def collect_twice(repository: Repository) -> None:
    for day in (1, 2):
        Collector(repository, "test", 0.0, clock=functools.partial(float, day * 1e10)).collect()


def manifest_of(control: Volumes, volume: str) -> PagedManifest:
    """Return the manifest of a volume, which is of version 2."""
    name = control.store.get(volume).record.manifest
    assert name is not None
    manifest = control.repository.load_manifest(name)
    assert isinstance(manifest, PagedManifest)
    return manifest


def depth_of(repository: Repository, name: str | None) -> int:
    """Return how many manifests a reading of one looks into."""
    depth = 0
    while name is not None:
        path = repository.origin.get(f"manifests/{name[:2]}/{name}", 1 << 30)
        name = disk_manifest.base_of(name, path[:4096], len(path))
        depth += 1
    return depth


def test_deltas_are_read_wherever_the_volume_goes(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    first, second = cloud.add_host(agent=False), cloud.add_host(agent=False)
    expected = write_image(tmp_path / "disk")
    image = cloud.register_file(tmp_path / "disk")
    control = Volumes(cloud)
    volume = control.create(SIZE, first, image_id=image)
    opened = open_volume(first, volume)

    def write(at: int, pattern: int, chunks: int) -> None:
        done = qemu_io(opened, f"write -P {pattern} {at * CHUNK} {chunks * CHUNK}", "flush")
        assert done.returncode == 0, done.stdout + done.stderr
        expected[at * CHUNK : (at + chunks) * CHUNK] = bytes([pattern]) * (chunks * CHUNK)

    def depth() -> int:
        return depth_of(control.repository, control.store.get(volume).record.manifest)

    write(3, 1, 4)
    call(first, "push", volume)
    assert call(first, "fold", volume)["is_folded"]
    assert depth() == 2
    assert content(opened, tmp_path / "folded") == expected
    killed = first.dataplane_pid()
    assert killed is not None
    first.kill_dataplane()
    first.wait_restarted(killed)
    assert content(opened, tmp_path / "restarted") == expected
    for at, expected_depth in ((5000, 1), (40, 2)):  # all is taken in, and a delta is on that
        write(at, 0, 2)
        call(first, "push", volume)
        assert call(first, "fold", volume)["is_folded"]
        assert depth() == expected_depth
    call(first, "close", volume, force=False)

    # Nothing needs the manifests before these two.
    control.repository.remove_image(image)
    collect_twice(control.repository)
    assert len(list(control.repository.origin.list("manifests/"))) == 2
    assert Verifier(control.repository).verify().damages == []
    control.move(volume, first, second)
    opened = open_volume(second, volume)
    assert content(opened, tmp_path / "there") == expected
    below = control.store.get(volume).record.manifest
    assert below is not None
    copy = str(uuid.UUID(int=7))
    control.store.create_from_manifest(NewVolume(copy, SIZE), below)
    control.store.allow_host(copy, second.name)
    assert content(open_volume(second, copy), tmp_path / "copy") == expected
    write(10, 9, 1)
    call(second, "push", volume)
    assert call(second, "fold", volume)["is_folded"]
    assert content(opened, tmp_path / "folded there") == expected


def test_volume_made_empty_is_folded_collected_and_read_elsewhere(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    first, second = cloud.add_host(agent=False), cloud.add_host(agent=False)
    control = Volumes(cloud)
    volume = control.create(SIZE, first)
    opened = open_volume(first, volume)
    expected = bytearray(SIZE)

    def write(host: Host, at: int, pattern: int, chunks: int) -> None:
        command = f"write -P {pattern} {at * CHUNK} {chunks * CHUNK}"
        done = qemu_io(opened, command if pattern else command.replace("-P 0", "-z"), "flush")
        assert done.returncode == 0, done.stdout + done.stderr
        expected[at * CHUNK : (at + chunks) * CHUNK] = bytes([pattern]) * (chunks * CHUNK)
        call(host, "push", volume)
        assert call(host, "fold", volume)["is_folded"]

    write(first, 100, 7, 5000)
    (tmp_path / "random").write_bytes(random.Random(1).randbytes(3 * CHUNK))
    written = qemu_io(opened, f"write -s {tmp_path / 'random'} 0 {3 * CHUNK}", "flush")
    assert written.returncode == 0, written.stdout + written.stderr
    expected[: 3 * CHUNK] = (tmp_path / "random").read_bytes()
    whole = manifest_of(control, volume)
    assert depth_of(control.repository, whole.digest) == 1
    assert whole.chunk_count - whole.zero_count == 5000
    assert {entry.codec for _, entry in whole.entries()} == {"lz4"}
    write(first, 200, 0, 50)
    delta = manifest_of(control, volume)
    assert depth_of(control.repository, delta.digest) == 2
    codecs = {index: entry.codec for index, entry in delta.entries()}
    assert [codecs.get(index) for index in (0, 2, 100, 200, 250)] == [
        "plain", "plain", "lz4", None, "lz4",
    ]  # fmt: skip
    assert content(opened, tmp_path / "folded") == expected
    killed = first.dataplane_pid()
    assert killed is not None
    first.kill_dataplane()
    first.wait_restarted(killed)
    assert content(opened, tmp_path / "restarted") == expected
    write(first, 400, 9, 1)
    call(first, "close", volume, force=False)

    collect_twice(control.repository)
    kept = set(control.repository.origin.list("manifests/"))
    needed = set(manifest_of(control, volume).references().values())
    assert kept == {key for key in needed if key.startswith("manifests/")}
    assert Verifier(control.repository).verify().damages == []
    control.move(volume, first, second)
    opened = open_volume(second, volume)
    assert content(opened, tmp_path / "there") == expected
    write(second, 10, 3, 1)
    assert content(opened, tmp_path / "folded there") == expected


LARGEST = 64 << 40
"""Bytes of the largest volume."""
MEMORY_MAX = 64 << 20
"""Bytes by which the anonymous memory of a data plane may grow for it."""


def test_largest_volume_costs_what_was_written(cloud: Cloud) -> None:
    first, second = cloud.add_host(agent=False), cloud.add_host(agent=False)
    control = Volumes(cloud)
    with pytest.raises(exception.InvalidError, match=f"{LARGEST} at most"):
        control.create(LARGEST + 512, first)
    volume = control.create(LARGEST, first)
    with pytest.raises(exception.InvalidError, match=f"{LARGEST} at most"):
        control.store.resize(volume, LARGEST + 512)
    pid = first.dataplane_pid()
    assert pid is not None
    before = anonymous_bytes(pid)
    opened = open_volume(first, volume)
    places = [0, (3 << 40) + 4096, LARGEST - 4096]

    def run(*commands: str) -> None:
        done = qemu_io(opened, *commands)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Pattern verification failed" not in done.stdout

    def fold(host: Host) -> None:
        call(host, "push", volume)
        assert call(host, "fold", volume)["is_folded"]

    zeroed = [f"discard {at << 30} 1G" for at in range(100, 132)]
    run(*(f"write -P {n + 1} {at} 4096" for n, at in enumerate(places)), *zeroed, "flush")
    fold(first)
    manifest = manifest_of(control, volume)
    assert [index for index, _ in manifest.entries()] == [at // CHUNK for at in places]
    assert control.repository.origin.size(f"manifests/{manifest.digest[:2]}/{manifest.digest}") < (
        64 << 10
    )
    run(f"write -P 9 {1 << 45} 4096", f"discard {places[1] - 4096} {CHUNK}", "flush")
    fold(first)
    grown = anonymous_bytes(pid) - before
    print(f"RssAnon grew by {grown} bytes")
    assert grown < MEMORY_MAX
    call(first, "close", volume, force=False)
    collect_twice(control.repository)
    assert Verifier(control.repository).verify().damages == []
    control.move(volume, first, second)
    opened = open_volume(second, volume)
    run(
        f"read -P 1 {places[0]} 4096",
        f"read -P 0 {places[1]} 4096",
        f"read -P 3 {places[2]} 4096",
        f"read -P 9 {1 << 45} 4096",
        f"read -P 0 {1 << 44} 1M",
    )

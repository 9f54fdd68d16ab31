"""Volumes of repositories of version 6: folds make deltas, which every host reads."""

import functools
import pathlib
import uuid
from collections.abc import Iterator

import pytest

from acstor.origin.opening import open_origin
from acstor.repository import disk_manifest, upgrade
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import COMPRESSED_VERSION, Repository
from acstor.repository.verification import Verifier
from acstor.repository.volumes.store import NewVolume
from testbed.fixtures.host_volumes import Volumes, call, content, open_volume, qemu_io
from testbed.fixtures.hosts import Cloud, cloud_in

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
    for day in (1, 2):
        Collector(
            control.repository, "test", 0.0, clock=functools.partial(float, day * 1e10)
        ).collect()
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

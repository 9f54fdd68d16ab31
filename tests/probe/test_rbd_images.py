"""Images in a real RBD: their holes are not read, and every call ends with its deadline."""

import contextlib
import hashlib
import itertools
import pathlib
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.origin.rados import binding
from acstor.origin.rados.cluster import Cluster
from acstor.origin.rados.connection import Connection
from acstor.repository.checksum import Checksum
from acstor.repository.images import inspection, registration
from acstor.repository.repository import Repository
from acstor.repository.source.rbd.faulty import FaultySnapshot
from acstor.repository.source.rbd.librbd import LibrbdSnapshot
from acstor.repository.source.rbd.location import RbdLocation
from acstor.repository.source.rbd.opening import open_snapshot
from testbed import processes
from testbed.fixtures.ceph import CephNode
from testbed.fixtures.stored_chunks import read_chunk

POOL = "images"
READER = "glance-reader"
IMAGE_ID = "00000000-0000-4000-8000-000000000001"
CHUNK_SIZE = 64 << 10
SIZE = (256 << 20) + 1000
OBJECT = 4 << 20
DATA = ((0, 70000), (10 * OBJECT - 5000, 10000), (64 * OBJECT, 1000))
"""Ranges that are written, offset and length: at the beginning, over a border, at the end."""
DEADLINE_S = 2.0
HANGS_AFTER_S = 60.0
_numbers = itertools.count()

Change = Callable[[Any, Any, str], None]


@pytest.fixture(scope="module")
def rbd() -> Any:
    if binding.find(name=binding.RBD) is None:
        pytest.skip("needs python3-rbd")
    return binding.load(binding.RBD)


@pytest.fixture(scope="module")
def pool(ceph: CephNode, rbd: Any) -> CephNode:
    ceph.make_pool(POOL)
    ceph.run("rbd", "pool", "init", POOL)
    ceph.make_client(
        READER, mon="profile simple-rados-client", osd=f"profile rbd-read-only pool={POOL}"
    )
    return ceph


@contextlib.contextmanager
def pool_context(node: CephNode) -> Iterator[Any]:
    """Have the pool as an administrator has it."""
    cluster = Cluster(Connection(str(node.configuration), "admin", 30.0))
    try:
        yield cluster.context(POOL, "")
    finally:
        cluster.close()


def content_of() -> bytearray:
    content = bytearray(SIZE)
    for offset, length in DATA:
        content[offset : offset + length] = random.Random(offset).randbytes(length)
    return content


def make_image(node: CephNode, rbd: Any, features: int | None = None) -> RbdLocation:
    """Make an image as Glance does; return its location."""
    name, content = f"image-{next(_numbers)}", content_of()
    with pool_context(node) as context:
        rbd.RBD().create(context, name, SIZE, old_format=False, features=features)
        with rbd.Image(context, name) as image:
            for offset, length in DATA:
                image.write(bytes(content[offset : offset + length]), offset)
            image.create_snap("snap")
            image.protect_snap("snap")
    fsid = node.run("ceph", "fsid").strip()
    return RbdLocation(fsid, POOL, name, "snap")


def client(node: CephNode, timeout_seconds: float = 30.0) -> Connection:
    return Connection(str(node.configuration), READER, timeout_seconds)


def registered(repository: Repository, snapshot: FaultySnapshot) -> bytes:
    """Register a snapshot with the checksum that it has to have; return the disk's content."""
    declared = Checksum.parse(f"sha512:{hashlib.sha512(content_of()).hexdigest()}")
    with contextlib.closing(inspection.open_rbd_source(snapshot, 60.0)) as source:
        registration.Registrar(repository, registration.Settings(workers=1)).register(
            registration.Request(IMAGE_ID, "name", source, "raw", declared)
        )
    manifest = repository.load_manifest(repository.get_image(IMAGE_ID).record.manifest)
    entries = (manifest.entry(index) for index in range(manifest.chunk_count))
    parts = (
        bytes(CHUNK_SIZE) if entry is None else read_chunk(repository.origin, entry, CHUNK_SIZE)
        for entry in entries
    )
    return b"".join(parts)[:SIZE]


@pytest.fixture
def repository() -> Repository:
    return Repository.init(MemoryOrigin(), CHUNK_SIZE)


@pytest.mark.parametrize("is_mapped", [True, False], ids=["object-map", "objects"])
def test_image_with_holes_is_registered_without_reading_them(
    pool: CephNode, rbd: Any, repository: Repository, *, is_mapped: bool
) -> None:
    features = None if is_mapped else rbd.RBD_FEATURE_LAYERING
    location = make_image(pool, rbd, features)
    snapshot = FaultySnapshot(open_snapshot(client(pool), location))
    assert registered(repository, snapshot) == content_of()
    # Objects that have anything are read whole where the object map tells of them.
    assert snapshot.bytes_read <= 6 * OBJECT
    assert snapshot.bytes_read < SIZE // 10


def test_map_that_is_marked_invalid_is_not_believed(pool: CephNode, rbd: Any) -> None:
    location = make_image(pool, rbd)
    with contextlib.closing(LibrbdSnapshot(client(pool), location)) as snapshot:
        assert snapshot._has_sound_object_map()
    with pool_context(pool) as context, rbd.Image(context, location.image) as image:
        image.update_features(rbd.RBD_FEATURE_FAST_DIFF | rbd.RBD_FEATURE_OBJECT_MAP, False)
    with contextlib.closing(LibrbdSnapshot(client(pool), location)) as snapshot:
        assert not snapshot._has_sound_object_map()
        told = list(snapshot.list_data())
        for offset, length in DATA:
            assert any(start <= offset and offset + length <= end for start, end in told)


def test_what_a_clone_has_of_its_parent_is_read(
    pool: CephNode, rbd: Any, repository: Repository
) -> None:
    parent, child = make_image(pool, rbd), f"image-{next(_numbers)}"
    with pool_context(pool) as context:
        rbd.RBD().clone(context, parent.image, "snap", context, child, rbd.RBD_FEATURE_LAYERING)
        with rbd.Image(context, child) as image:
            image.create_snap("snap")
    location = RbdLocation(parent.fsid, POOL, child, "snap")
    snapshot = FaultySnapshot(open_snapshot(client(pool), location))
    assert registered(repository, snapshot) == content_of()


def test_removed_snapshot_is_noticed(pool: CephNode, rbd: Any) -> None:
    location = make_image(pool, rbd)
    with contextlib.closing(open_snapshot(client(pool), location)) as snapshot:
        assert snapshot.is_there()
        with pool_context(pool) as context, rbd.Image(context, location.image) as image:
            image.unprotect_snap("snap")
            image.remove_snap("snap")
            image.create_snap("snap")
        assert not snapshot.is_there()
    with pytest.raises(exception.NotFoundError):
        open_snapshot(client(pool), RbdLocation(location.fsid, POOL, location.image, "other"))


def test_other_cluster_and_other_pool_are_refused(pool: CephNode, rbd: Any) -> None:
    location = make_image(pool, rbd)
    with pytest.raises(exception.InvalidError, match="in the cluster"):
        open_snapshot(client(pool), RbdLocation("elsewhere", POOL, location.image, "snap"))
    with pytest.raises(exception.InvalidError):
        open_snapshot(client(pool), RbdLocation(location.fsid, "nowhere", location.image, "snap"))


def test_reader_may_not_write(pool: CephNode, rbd: Any) -> None:
    location = make_image(pool, rbd)
    cluster = Cluster(client(pool))
    with contextlib.closing(cluster):
        context = cluster.context(POOL, "")
        with pytest.raises(rbd.Error), rbd.Image(context, location.image) as image:
            image.write(b"x", 0)


def test_stopped_osd_ends_every_call_with_its_deadline(pool: CephNode, rbd: Any) -> None:
    # Without an object map, which librbd has in memory since it opened the image.
    location = make_image(pool, rbd, rbd.RBD_FEATURE_LAYERING)
    snapshot = LibrbdSnapshot(client(pool, DEADLINE_S), location)
    with contextlib.closing(snapshot):
        for osd in pool.osds:
            osd.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(exception.UnavailableError):
                snapshot.read(0, 4096)
            with pytest.raises(exception.UnavailableError):
                snapshot.list_data()
            with pytest.raises(exception.UnavailableError):
                snapshot.is_there()
        finally:
            for osd in pool.osds:
                osd.send_signal(signal.SIGCONT)

        def is_back() -> bool:
            try:
                return snapshot.read(0, 4096) == content_of()[:4096]
            except exception.UnavailableError:
                return False

        processes.wait_until(is_back, "the OSDs answer", timeout_s=HANGS_AFTER_S)


def test_no_cluster_ends_with_its_deadline(tmp_path: pathlib.Path, rbd: Any) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon host = [v2:127.0.0.1:1]\nauth client required = none\n")
    with pytest.raises(exception.UnavailableError):
        open_snapshot(
            Connection(str(conf), READER, DEADLINE_S), RbdLocation("f", POOL, "image", "snap")
        )

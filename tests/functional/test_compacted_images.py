"""An image that a running host reads through a compaction and the collections after it."""

import contextlib
import os
import pathlib
import random
import threading
from collections.abc import Iterator

import pytest

from acstor.origin.opening import open_origin
from acstor.repository import layout
from acstor.repository.gc.compaction import Compactor
from acstor.repository.gc.compaction_plan import Limits
from acstor.repository.gc.garbage import Collector
from acstor.repository.images import inspection, registration
from acstor.repository.moved_packs import list_moved
from acstor.repository.repository import Repository
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, TOOL_TIMEOUT, Cloud
from testbed.origin_server import OriginServer

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 16
"""Size of the image that is kept, MiB."""
REMOVED = "00000000-0000-4000-8000-000000000001"
KEPT = "00000000-0000-4000-8000-000000000002"


def register(repository: Repository, image_id: str, path: pathlib.Path, content: bytes) -> None:
    path.write_bytes(content)
    source = inspection.open_source(str(path), "raw", TOOL_TIMEOUT)
    request = registration.Request(image_id, path.name, source, "raw")
    try:
        registration.Registrar(repository, registration.Settings()).register(request)
    finally:
        source.close()


def fill(repository: Repository, path: pathlib.Path) -> bytes:
    """Register an image that needs every second MiB of what is stored; return its content."""
    source = random.Random(5)
    parts = [source.randbytes(MIB) for _ in range(2 * SIZE)]
    kept = b"".join(parts[::2])
    register(repository, REMOVED, path / "removed", b"".join(parts))
    register(repository, KEPT, path / "kept", kept)
    repository.remove_image(REMOVED)
    return kept


def packs(repository: Repository) -> set[str]:
    return set(repository.origin.list(layout.PACK_PREFIX))


@contextlib.contextmanager
def http_url(cloud: Cloud) -> Iterator[str]:
    """Serve the cloud's origin over HTTP, which data planes read through Python."""
    server = OriginServer(("127.0.0.1", 0), open_origin(cloud.origin_url, 5))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_host_reads_over_http_what_was_moved(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    repository = Repository.open(open_origin(cloud.origin_url, 5))
    content = fill(repository, tmp_path)
    Compactor(repository, "controller", Limits()).compact()
    for _ in range(3):
        Collector(repository, "controller", 0.0).collect()
    assert not any(
        repository.origin.exists(layout.pack_key(name)) for name in list_moved(repository.origin)
    )
    with http_url(cloud) as url:
        host = cloud.add_host(origin={"url": url})
        cloud.wait_ready(KEPT)
        assert host.file(KEPT).read_bytes() == content
        host.stop()


def test_host_reads_through_a_compaction_and_collections(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    repository = Repository.open(open_origin(cloud.origin_url, 5))
    content = fill(repository, tmp_path)
    before = packs(repository)
    host = cloud.add_host()
    cloud.wait_ready(KEPT)
    with open(host.file(KEPT), "rb", buffering=0) as file:

        def read(at: int) -> bytes:
            return os.pread(file.fileno(), MIB // 2, at * MIB)

        def expected(at: int) -> bytes:
            return content[at * MIB : at * MIB + MIB // 2]

        assert read(1) == expected(1)
        report = Compactor(repository, "controller", Limits()).compact()
        assert report.moved == len(before) > 0
        assert read(4) == expected(4)
        for _ in range(3):
            Collector(repository, "controller", 0.0).collect()
        assert packs(repository).isdisjoint(before)
        for at in (15, 7, 11, 9, 13):
            assert read(at) == expected(at)
    assert host.file(KEPT).read_bytes() == content
    # That host may have had the old packs open. A new one finds nothing but what was moved, neither
    # in files that it has open nor with its neighbour.
    host.stop()
    later = cloud.add_host()
    wait_for("the new host offers the image", later.file(KEPT).exists)
    assert later.file(KEPT).read_bytes() == content
    verified = later.command("repository", "verify", timeout=120)
    assert verified.returncode == 0, verified.stderr

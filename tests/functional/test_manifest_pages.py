"""Images whose manifests are long, on hosts that wait for parts of them, or have no origin."""

import os
import pathlib
import threading
from collections.abc import Iterator

import pytest

from acstor.origin import faulty
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.repository import layout, upgrade
from acstor.repository.repository import COMPRESSED_VERSION
from testbed.doubles.manifests import CHUNK_SIZE, dense_chunk, register_dense_disk
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import Cloud, Host, cloud_in
from testbed.origin_server import OriginServer

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
TIMES = 64
CHUNKS = TIMES * 1024
"""Of the image: a manifest of 3.2 MB."""
ENTRY_PAGES = -(-CHUNKS // 85)
"""Pages of entries, the last of the manifest."""
HELD = range(1 << 20, 2 << 20)
"""Bytes of the manifest, none of which the last chunk needs."""
READ = list(range(0, CHUNKS, 2047))
"""Chunks that a guest reads, anywhere."""


class HeldOrigin(faulty.FaultyOrigin):
    """An origin of which a part of each manifest comes when it may; faulty if wanted."""

    def __init__(self, inner: Origin) -> None:
        super().__init__(inner)
        self.may_come = threading.Event()
        self.may_come.set()

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        if key.startswith("manifests/") and offset in HELD:
            self.may_come.wait()
        return super().readinto(key, offset, buffer)


class Deployment:
    """A host whose link to the origin is as complete, and as sound, as a test wants."""

    def __init__(self, cloud: Cloud) -> None:
        self.plain = open_origin(cloud.origin_url, 5)
        upgrade.upgrade(self.plain, COMPRESSED_VERSION)
        self.content = b""
        """Of the image's manifest."""
        self.origin = HeldOrigin(self.plain)
        self.server = OriginServer(("127.0.0.1", 0), self.origin)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.host: Host = cloud.add_host(origin={"url": url})
        self.cloud = cloud

    def register(self) -> None:
        """Register the image, and wait until the host offers it."""
        name, length = register_dense_disk(self.plain, IMAGE, TIMES)
        self.content = self.plain.get(layout.manifest_key(name), length)
        self.cloud.wait_ready(IMAGE)

    def read(self, chunk: int) -> None:
        """Read a chunk past what the kernel remembers, and compare it."""
        with open(self.host.file(IMAGE), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            found = os.pread(file.fileno(), CHUNK_SIZE, chunk * CHUNK_SIZE)
        assert found == dense_chunk(chunk), chunk

    @property
    def is_partial(self) -> bool:
        return self.host.metric("acstor_manifests_partial") > 0

    def wait_whole(self) -> None:
        wait_for("the manifest is whole", lambda: not self.is_partial, 60)
        assert self.file.read_bytes() == self.content

    def restart(self) -> None:
        """Kill the data plane, and wait for the next one."""
        killed = self.host.dataplane_pid()
        assert killed is not None
        self.host.kill_dataplane()
        self.host.wait_restarted(killed)

    @property
    def file(self) -> pathlib.Path:
        """Manifest of the image, as the data plane keeps it."""
        return self.host.path / "dataplane" / "images" / f"{IMAGE}.manifest"


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Iterator[Deployment]:
    with cloud_in(tmp_path) as cloud:
        deployment = Deployment(cloud)
        yield deployment
        deployment.origin.may_come.set()
        deployment.server.shutdown()
        deployment.server.server_close()


def test_guest_reads_long_before_the_manifest_is_there(deployment: Deployment) -> None:
    host, origin = deployment.host, deployment.origin
    origin.may_come.clear()
    deployment.register()
    deployment.read(CHUNKS - 1)
    assert deployment.is_partial
    assert 0 < host.metric("acstor_manifest_pages_fetched", reason="demand") < 100
    deployment.restart()
    assert deployment.is_partial
    origin.may_come.set()
    deployment.wait_whole()
    for chunk in READ:
        deployment.read(chunk)


def test_what_is_cached_is_found_without_the_origin(deployment: Deployment) -> None:
    host, origin = deployment.host, deployment.origin
    deployment.register()
    for chunk in READ:
        deployment.read(chunk)
    deployment.wait_whole()
    origin.faults = [faulty.Fault(operation, faulty.Effect.ERROR) for operation in faulty.Operation]
    deployment.restart()
    for chunk in READ:
        deployment.read(chunk)
    assert host.metric("acstor_origin_calls", outcome="ok") == 0


def test_damaged_page_is_fetched_again(deployment: Deployment) -> None:
    deployment.register()
    deployment.read(0)
    deployment.wait_whole()
    deployment.restart()
    page = len(deployment.content) // 4096 - 5
    chunk = (ENTRY_PAGES - 5) * 85
    with deployment.file.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"damage")
    deployment.read(chunk)
    assert deployment.file.read_bytes() == deployment.content
    assert deployment.host.metric("acstor_manifest_pages_fetched", reason="demand") == 1

"""Working sets and preloads with real data planes, FUSE and an origin that goes away."""

import functools
import os
import pathlib
import time
import uuid
from typing import Any

import pytest

from acstor.control.chunk_set import ChunkSet
from acstor.control.client import AdminClient
from acstor.control.protocol import PreloadState
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

CHUNK = 64 << 10
LARGE = 5 << 40
"""Bytes of a disk of more chunks than one bitmap is made for."""
PINNED = MIB + CHUNK
"""Bytes of the head and the tail of each image, which an agent has pinned from the start."""


def call(host: Host, method: str, **params: Any) -> Any:
    """Call the data plane; its errors are the test's."""
    return AdminClient(str(host.path / "dataplane.sock")).call(method, **params)


def start(host: Host, image: Image, what: str = "full", rate: int = 0, pin: bool = False) -> None:
    call(host, "preload.start", image=image.id, what=what, rate_bytes_per_s=rate, pin=pin)


def job(host: Host, image: Image) -> dict[str, Any]:
    found = call(host, "preload.status")
    return next((one for one in found if one["image"] == image.id), {})


def wait_done(host: Host, image: Image) -> dict[str, Any]:
    """Wait until the preload has ended, as it should."""

    def ended() -> dict[str, Any] | None:
        found = job(host, image)
        return found if PreloadState(found["state"]).has_ended else None

    found = wait_for("the preload ends", ended, timeout=120)
    assert found["state"] == PreloadState.DONE, found
    assert found["remaining_bytes"] == 0
    return found


def read(host: Host, image: Image, offset: int, size: int) -> None:
    """Read and compare, past the page cache of the kernel."""
    with open(host.file(image), "rb", buffering=0) as source:
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(source.fileno(), size, offset) == image.content[offset : offset + size]


def set_working_set(host: Host, image: Image, chunks: set[int], path: pathlib.Path) -> None:
    path.write_bytes(ChunkSet.of(chunks, len(image.content) // CHUNK).to_bytes())
    call(host, "workingset.set", image=image.id, path=str(path))


def head_and_tail_bytes(host: Host) -> float:
    """Wait until what each image has pinned is there; return what the origin gave until then."""
    wait_for("pins", lambda: host.metric("acstor_store_pinned_bytes") == PINNED)
    wait_for("it is there", lambda: host.metric("acstor_store_inserted") * CHUNK == PINNED)
    return host.metric("acstor_origin_bytes")


def coverage(host: Host) -> tuple[int, int]:
    (found,) = call(host, "workingset.coverage")
    return found["wanted_chunks"], found["present_chunks"]


def has_ring_of_two(host: Host) -> bool:
    ring = host.ask("ring.show")
    return isinstance(ring, dict) and len(ring["hosts"]) == 2


def chunks_read(host: Host, image: Image) -> set[int]:
    told = call(host, "workingset.read", image=image.id)
    return set(ChunkSet.decode(told["bitmap"], told["chunk_count"]))


def test_preloaded_image_is_readable_without_origin_and_peers(cloud: Cloud) -> None:
    # A hedge to the origin would bring a chunk twice, and so would a peer that is late.
    patient = {"hedge_enabled": False, "load_aware": False}
    first, second = (cloud.add_host(readpath=patient) for _ in range(2))
    for host in cloud.hosts:
        wait_for("a ring of two", functools.partial(has_ring_of_two, host))
    image = cloud.register(32 * MIB)
    cloud.wait_ready(image)
    start(first, image)
    found = wait_done(first, image)
    # One MiB in eight is zero.
    assert found["total_bytes"] == 28 * MIB
    assert found["present_bytes"] + found["fetched_bytes"] == 28 * MIB
    assert second.metric("acstor_serves", outcome="origin") > 0, "its share went through the ring"
    out = sum(host.metric("acstor_origin_bytes") for host in cloud.hosts)
    assert out == pytest.approx(28 * MIB, rel=0.05), "nothing left the origin twice"
    second.vanish()
    (cloud.origin / "packs").rename(cloud.origin / "packs-away")
    first.kill_dataplane()
    wait_for("the data plane is back", lambda: first.metric("acstor_store_recovered") > 0)
    read(first, image, 0, 32 * MIB)


def test_boot_is_learnt_from_reads_and_brought_to_another_host(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    first, second = cloud.add_host(), cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    for offset in (0, 3 * MIB + 5, 16 * MIB - 10):
        read(first, image, offset, 10)
    told = call(first, "workingset.read", image=image.id)
    assert told["boots"] == 1
    learnt = chunks_read(first, image)
    # The kernel reads at least a page, and may read a little ahead.
    assert {0, 48, 255} <= learnt
    assert len(learnt) < 20
    assert chunks_read(second, image) == set()
    set_working_set(second, image, learnt, tmp_path / "bitmap")
    wanted, _ = coverage(second)
    start(second, image, "working-set", pin=True)
    wait_done(second, image)
    assert coverage(second) == (wanted, wanted)
    pid = wait_for("a data plane", second.dataplane_pid)
    second.kill_dataplane()
    second.wait_restarted(pid)
    # Working sets are given back once it serves: none of them is needed for that.
    wait_for("the working set is back", lambda: call(second, "workingset.coverage"))
    assert coverage(second) == (wanted, wanted), "kept over the restart, like the chunks"
    assert call(second, "preload.status") == []


def test_boot_of_a_large_disk_is_learnt_and_brought_by_what_was_read(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    first, second = cloud.add_host(), cloud.add_host()
    source = tmp_path / "large"
    offsets = (0, LARGE // 4, LARGE - CHUNK)
    with open(source, "wb") as file:
        file.truncate(LARGE)
        for offset in offsets:
            file.seek(offset)
            file.write(os.urandom(CHUNK))
    image = str(uuid.uuid4())
    for command in (
        ("repository", "init"),
        ("image", "register", "--id", image, "--name", "large", "--disk-format", "raw",
         "--disk-size-max", str(LARGE), str(source)),
    ):  # fmt: skip
        done = first.command(*command, timeout=100)
        assert done.returncode == 0, done.stderr
    cloud.wait_ready(image)
    with open(first.file(image), "rb", buffering=0) as disk:
        os.posix_fadvise(disk.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for offset in (*offsets, LARGE // 2):  # zeros, the last
            os.pread(disk.fileno(), 512, offset)
    told = call(first, "workingset.read", image=image)
    assert told["chunk_count"] == LARGE // CHUNK
    assert len(told["bitmap"]) < 1 << 10, "text by what was read"
    learnt = ChunkSet.decode(told["bitmap"], told["chunk_count"])
    read_chunks = {offset // CHUNK for offset in (*offsets, LARGE // 2)}
    assert read_chunks <= set(learnt)
    (tmp_path / "set").write_bytes(learnt.to_bytes())
    call(second, "workingset.set", image=image, path=str(tmp_path / "set"))
    assert coverage(second)[0] == len(offsets)
    params = {"what": "working-set", "rate_bytes_per_s": 0, "pin": False}
    call(second, "preload.start", image=image, **params)
    wait_for("it is all there", lambda: coverage(second) == (len(offsets), len(offsets)))


def test_rate_is_held_and_a_stopped_preload_goes_on_later(cloud: Cloud) -> None:
    host = cloud.add_host()
    image = cloud.register(64 * MIB)
    cloud.wait_ready(image)
    # A minute for all of it: nobody stands still for so long that nothing is left to be stopped.
    rate = MIB
    began = time.monotonic()
    start(host, image, rate=rate)
    wait_for("some of it", lambda: job(host, image)["fetched_bytes"] >= 4 * MIB)
    fetched = job(host, image)["fetched_bytes"]
    took = time.monotonic() - began
    # One batch of a quarter of a second may be ahead, and one more be in flight.
    assert fetched <= rate * (took + 0.6), (fetched, took)
    call(host, "preload.stop", image=image.id)
    assert job(host, image)["state"] == PreloadState.STOPPED
    start(host, image)
    assert wait_done(host, image)["present_bytes"] >= fetched


def test_touch_of_the_file_starts_the_preload_of_its_working_set(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    os.utime(host.file(image))
    wait_for("a hint", lambda: host.metric("acstor_preload_hints", outcome="unknown") == 1)
    assert call(host, "preload.status") == []
    set_working_set(host, image, set(range(20, 60)), tmp_path / "bitmap")
    os.utime(host.file(image))
    wait_for("a preload", lambda: job(host, image))
    assert wait_done(host, image)["is_hint"] is True
    assert coverage(host) == (40, 40)
    os.utime(host.file(image))
    wait_for("a hint", lambda: host.metric("acstor_preload_hints", outcome="complete") == 1)


def test_image_larger_than_the_store_is_refused_with_the_numbers(cloud: Cloud) -> None:
    host = cloud.add_host(store={"capacity": "64MiB"})
    image = cloud.register(96 * MIB)
    cloud.wait_ready(image)
    before = head_and_tail_bytes(host)
    start(host, image)
    found = wait_for("its end", lambda: job(host, image) if job(host, image)["error"] else None)
    assert found["state"] == PreloadState.FAILED
    assert f"{found['remaining_bytes']} bytes are missing" in found["error"]
    assert host.metric("acstor_origin_bytes") == before


def test_full_preload_replaces_what_is_cold_and_stays(cloud: Cloud) -> None:
    """A store full of another image's chunks that were read once; none of ours is lost."""
    host = cloud.add_host(store={"capacity": "64MiB"}, readpath={"keep": "always"})
    other, image = cloud.register(64 * MIB), cloud.register(48 * MIB)
    for one in (other, image):
        cloud.wait_ready(one)
    read(host, other, 0, 64 * MIB)
    estimate = call(host, "preload.estimate", image=image.id, what="full")
    assert estimate["total_bytes"] == 42 * MIB
    # Head and tail were pinned when the image was attached.
    assert estimate["missing_bytes"] > 36 * MIB
    assert estimate["free_bytes"] < 8 * MIB
    start(host, image)
    wait_done(host, image)
    estimate = call(host, "preload.estimate", image=image.id, what="full")
    assert estimate["missing_bytes"] == 0

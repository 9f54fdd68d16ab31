"""The files of the chunk store are damaged, or their disk is full."""

import os
import pathlib
import subprocess
import zlib

import pytest

from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]


def warm_host(cloud: Cloud) -> tuple[Host, Image]:
    """A host that has a whole image in its chunk store."""
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    assert host.file(image).read_bytes() == image.content
    expected = sum(
        1 for at in range(0, len(image.content), 65536) if any(image.content[at : at + 64])
    )
    wait_for("the chunks are kept", lambda: host.metric("acstor_store_inserted") >= expected)
    return host, image


def slots_file(host: Host) -> pathlib.Path:
    """Return the file of the slots."""
    (path,) = (host.path / "store").glob("*slots*")
    return path


def restart(host: Host) -> None:
    """Replace the data plane."""
    killed = wait_for("a data plane", host.dataplane_pid)
    host.kill_dataplane()
    host.wait_restarted(killed)


def test_store_corrupted_while_stopped_is_a_miss(cloud: Cloud) -> None:
    """Chunks that a restart finds are verified before they are served."""
    host, image = warm_host(cloud)
    content = bytearray(slots_file(host).read_bytes())
    for offset in range(4096, len(content), 32 << 10):
        content[offset] ^= 1
    with slots_file(host).open("r+b") as file:
        file.write(content)
    restart(host)
    with CheckedReader(host.file(image), image.content, seed=7) as reader:
        reader.wait_reads(300)
    assert reader.errors == []
    assert host.metric("acstor_store_corrupt") > 0


def test_store_truncated_under_readers_is_a_miss(cloud: Cloud) -> None:
    """A file cut under a running data plane crashes nothing, and no read is wrong or lost after it.

    The kernel ends a request itself whose answer it copies in that very moment; the reader has one.
    """
    host, image = warm_host(cloud)
    pid = host.dataplane_pid()
    with CheckedReader(host.file(image), image.content, seed=8) as reader:
        reader.wait_reads(50)
        with slots_file(host).open("r+b") as file:
            file.truncate(3 * MIB)
        reader.wait_reads(2)  # the one under way among them
        at_the_cut = list(reader.errors)
        reader.wait_reads(300)
    assert reader.errors == at_the_cut
    assert len(at_the_cut) <= host.metric("acstor_fuse_mapped_faults"), at_the_cut
    assert len(at_the_cut) <= 1
    assert all("Input/output" in error for error in at_the_cut)
    assert host.dataplane_pid() == pid


def test_two_data_planes_on_one_store_the_second_refuses(cloud: Cloud) -> None:
    """The refusal names the process that has the store."""
    host, _ = warm_host(cloud)
    other = cloud.path / "other"
    other.mkdir()
    (other / "images").mkdir()
    config = other / "acstor.conf"
    text = host.config.read_text()
    text = text.replace(str(host.path), str(other))
    text = text.replace("[store]", f"[store]\npath = {host.path}/store")
    config.write_text(text)
    program = pathlib.Path(host.cloud.path)
    result = subprocess.run(
        [str(executable("acstor-dataplane")), "--config-file", str(config)],
        cwd=program,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert str(host.dataplane_pid()) in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    assert host.status() is not None


def executable(name: str) -> pathlib.Path:
    """Return the path of an installed program."""
    from testbed.fixtures.hosts import BIN

    return BIN / name


def test_store_larger_than_its_disk_is_refused_clearly(cloud: Cloud) -> None:
    """A disk without room gives one line that says what to do."""
    host = cloud.add_host(agent=False)
    small = cloud.path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", str(small)], check=True)
    try:
        config = cloud.path / "full.conf"
        text = host.config.read_text().replace(str(host.path), str(cloud.path / "full"))
        text = text.replace("[store]", f"[store]\npath = {small}/store")
        (cloud.path / "full").mkdir()
        (cloud.path / "full/images").mkdir()
        config.write_text(text)
        result = subprocess.run(
            [str(executable("acstor-dataplane")), "--config-file", str(config)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode != 0
        assert "space" in result.stdout.lower()
        assert "Traceback" not in result.stdout + result.stderr
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_store_disk_filled_by_others_serves_on(cloud: Cloud) -> None:
    """Slots are allocated at the start: a disk that others fill later costs nothing."""
    small = cloud.path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(small)], check=True)
    try:
        host = cloud.add_host(store={"capacity": "128MiB", "path": f"{small}/store"})
        image = cloud.register(32 * MIB)
        cloud.wait_ready(image)
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={small}/filler", "bs=64k"], capture_output=True, check=False
        )
        assert os.statvfs(small).f_bavail == 0
        with CheckedReader(host.file(image), image.content, seed=9) as reader:
            reader.wait_reads(300)
        assert reader.errors == []
        host.stop()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_store_of_a_newer_version_is_refused(cloud: Cloud) -> None:
    """A downgrade says so instead of throwing the cache away."""
    host, _ = warm_host(cloud)
    host.stop()
    (superblock,) = (host.path / "store").glob("*superblock*")
    content = bytearray(superblock.read_bytes())
    content[8] = 99
    content[60:64] = zlib.crc32(content[:60]).to_bytes(4, "little")
    superblock.write_bytes(content)
    result = subprocess.run(
        [str(executable("acstor-dataplane")), "--config-file", str(host.config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert "version" in result.stdout

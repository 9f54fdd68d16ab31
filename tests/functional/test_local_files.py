"""Local files of a real host: data plane, mount and agent; Nova's directories beside them."""

import contextlib
import os
import pathlib
import shutil
import signal
from typing import Any

import pytest

from acstor.agent.reconcilers.local_files import known_files
from acstor.agent.reconcilers.local_files.known_files import KnownFile, KnownFiles
from acstor.control import bitmap
from acstor.drivers.nova.image_links.local_directory import local_path, partial_name
from acstor.origin.opening import open_origin
from acstor.repository.images.image_registry import Entry, EntryState, ImageRegistry
from testbed.fixtures.conditions import PATIENCE, wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image
from testbed.fixtures.nova_host import NovaHost

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing"),
]

SIZE = 16 * MIB
LARGE = 48 * MIB
"""Bytes of an image of which the slowest host makes no file before a test has done its part."""


class LocalFilesHost:
    """One host with a nova-compute's directories, and local files turned on."""

    def __init__(self, cloud: Cloud, **options: Any) -> None:
        self.cloud = cloud
        self.nova = NovaHost(cloud.path / "nova")
        os.chown(self.nova.instances, 0, 0)
        self.host: Host = cloud.add_host(
            image_links={
                "enabled": True,
                "nova_config_file": self.nova.config,
                "scan_interval": 0.2,
            },
            # The disk of whoever tests may be nearly full.
            local_files={"enabled": True, "reserve_percent": 1, **options},
        )

    def pinned(self, size: int = SIZE) -> Image:
        """Register an image that hosts are to keep whole."""
        image = self.cloud.register(size)
        registry = ImageRegistry(open_origin(f"posix://{self.cloud.origin}", 5))
        registry.replace(image.id, None, Entry(EntryState.REGISTERED, pin=True))
        return image

    def file(self, image: Image) -> pathlib.Path:
        return pathlib.Path(local_path(str(self.nova.base), image.id))

    def known(self, image: Image) -> KnownFile | None:
        found = known_files.load(known_files.path_in(str(self.host.path))) or KnownFiles()
        return found.files.get(image.id)

    def wait_linked(self, image: Image) -> None:
        link, file = self.nova.link(image.id), str(self.file(image))
        wait_for(
            f"a link to the local file\n{self.host.log()}",
            lambda: link.is_symlink() and os.readlink(link) == file,
            timeout=120,
        )


@pytest.fixture
def local(cloud: Cloud) -> LocalFilesHost:
    return LocalFilesHost(cloud)


def test_whole_image_becomes_a_local_file(local: LocalFilesHost) -> None:
    image = local.pinned()
    wait_for("a link", local.nova.link(image.id).is_symlink, timeout=60)
    running = os.open(local.host.file(image), os.O_RDONLY)
    try:
        local.wait_linked(image)
        assert local.nova.link(image.id).read_bytes() == image.content
        assert local.file(image).stat().st_blocks * 512 < SIZE, "its holes are holes"
        # A guest that runs stays where it is.
        assert os.pread(running, MIB, 0) == image.content[:MIB]
    finally:
        os.close(running)
    wait_for("it says so", lambda: getattr(local.known(image), "state", None) == "linked")
    assert local.host.file(image).read_bytes() == image.content, "the mount offers it still"


def test_making_a_file_is_no_boot(local: LocalFilesHost) -> None:
    """Else what boots read of an image would be all of it."""
    image = local.pinned()
    local.wait_linked(image)
    seen = local.host.ask("workingset.read", image=image.id)
    assert seen["boots"] == 0
    assert not any(bitmap.inflate(seen["bitmap"], MIB))


def test_data_plane_that_dies_is_not_noticed(local: LocalFilesHost) -> None:
    image = local.pinned()
    local.wait_linked(image)
    pid = local.host.dataplane_pid()
    assert pid is not None
    local.host.kill_dataplane()
    assert local.nova.link(image.id).read_bytes() == image.content
    local.host.wait_restarted(pid)
    local.host.kill("holder")
    local.host.kill("agent")
    assert local.nova.link(image.id).read_bytes() == image.content
    assert os.readlink(local.nova.link(image.id)) == str(local.file(image))


def test_data_plane_that_hangs_while_a_file_is_made_hangs_no_agent(cloud: Cloud) -> None:
    """A reader of a file system that hangs cannot be killed: it is a child, and left behind."""
    local = LocalFilesHost(cloud, rate="1MiB")
    image = local.pinned(LARGE)
    partial = local.file(image).with_name(partial_name(image.id))
    wait_for(f"half a file\n{local.host.log()}", partial.exists, timeout=120)
    pid = local.host.dataplane_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        agent = local.host._processes["agent"]
        agent.terminate()
        assert agent.wait(60 * PATIENCE) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):  # on a busy machine the holder was quicker
            os.kill(pid, signal.SIGCONT)
    assert os.readlink(local.nova.link(image.id)) == str(local.host.file(image))
    config = local.host.config
    config.write_text(config.read_text().replace("rate = 1MiB\n", "rate = 1GiB\n"))
    local.host.start_agent()
    local.wait_linked(image)
    assert local.nova.link(image.id).read_bytes() == image.content


def test_withdrawn_image_is_moved_back_first(local: LocalFilesHost) -> None:
    image = local.pinned()
    local.wait_linked(image)
    local.nova.add_overlay(image.id)
    assert local.host.command("image", "remove", image.id, "--force").returncode == 0
    wait_for("the file is gone", lambda: not local.file(image).exists(), timeout=60)
    assert os.readlink(local.nova.link(image.id)) == str(local.host.file(image))
    assert local.nova.link(image.id).read_bytes() == image.content
    local.nova.remove_instances()
    wait_for("no link", lambda: not os.path.lexists(local.nova.link(image.id)), timeout=60)


def test_damaged_file_is_made_again(cloud: Cloud) -> None:
    local = LocalFilesHost(cloud, verify_interval=1)
    image = local.pinned()
    local.wait_linked(image)
    known = local.known(image)
    if known is not None and known.is_sealed:
        pytest.skip("fs-verity lets nobody damage it")
    with local.file(image).open("r+b") as file:
        file.write(b"damage")
        os.fsync(file.fileno())

    def is_made_again() -> bool:
        # Not by its number: the file system may give the new one that of the former.
        try:
            return local.file(image).read_bytes() == image.content
        except FileNotFoundError:
            return False

    wait_for(f"another file\n{local.host.log()}", is_made_again, timeout=120)
    local.wait_linked(image)


def test_links_are_removed_with_their_files(local: LocalFilesHost) -> None:
    image = local.pinned()
    local.wait_linked(image)
    local.host.kill("agent")
    assert local.host.command("links", "remove", "--all").returncode == 0
    assert not os.path.lexists(local.nova.link(image.id))
    assert not local.file(image).exists()

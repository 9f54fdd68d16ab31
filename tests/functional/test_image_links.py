"""Links to a real mount: data plane, agent and command line of a host, Nova's code beside them."""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from acstor.drivers.nova.image_links import known_links
from acstor.drivers.nova.image_links.known_links import KnownLinks
from acstor.origin.opening import open_origin
from acstor.repository.images.usage import read_usage
from testbed.fixtures.conditions import PATIENCE, wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image
from testbed.fixtures.nova_harness import NovaHarness
from testbed.fixtures.nova_host import NovaHost

pytest.importorskip("nova", reason="nova is not installed")
pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing"),
]

INSTANCE = str(uuid.UUID(int=100))
SIZE = 16 * MIB


class LinkedHost:
    """One host with a nova-compute's directories."""

    def __init__(self, cloud: Cloud, harness: NovaHarness, **options: Any) -> None:
        self.cloud = cloud
        self.nova = NovaHost(cloud.path / "nova")
        os.chown(self.nova.instances, 0, 0)  # Nova's code runs as root here
        links = {"enabled": True, "nova_config_file": self.nova.config, "scan_interval": 0.2}
        self.host: Host = cloud.add_host(image_links={**links, **options})
        self.harness = harness
        harness.use(self.nova, cloud.path / "glance")

    def register(self, size: int = SIZE) -> Image:
        image = self.cloud.register(size)
        self.harness.upload(image.id, image.content)
        return image

    def links(self) -> dict[str, str]:
        """Return the states of the links, by image."""
        known = known_links.load(known_links.path_in(str(self.host.path))) or KnownLinks()
        return {image_id: link.state.value for image_id, link in known.links.items()}

    def wait_state(self, image: Image, state: str | None) -> None:
        wait_for(
            f"link is {state}\n{self.host.log()}",
            lambda: self.links().get(image.id) == state,
            timeout=60,
        )

    def wait_planted(self, image: Image) -> None:
        link = self.nova.link(image.id)
        wait_for(f"a link\n{self.host.log()}", link.is_symlink, timeout=60)

    def make_disk(self, image: Image, instance: str = INSTANCE, **options: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.harness.call(
            "make_disk", image_id=image.id, instance=instance, size=2 * SIZE, **options
        )
        return made

    def used(self) -> set[str] | None:
        """Return the images that the host says are in use; None: it has not spoken."""
        usage = read_usage(open_origin(f"posix://{self.cloud.origin}", 5), self.host.name)
        return None if usage is None else set(usage.images)


@pytest.fixture(scope="module")
def harness() -> Iterator[NovaHarness]:
    harness = NovaHarness()
    yield harness
    harness.stop()


@pytest.fixture
def linked(cloud: Cloud, harness: NovaHarness) -> LinkedHost:
    return LinkedHost(cloud, harness)


def test_nova_starts_from_a_link_that_needs_nobody_else(linked: LinkedHost) -> None:
    """Section 1.2: all that Nova and QEMU read before the guest runs is pinned here already."""
    image = linked.register()
    linked.wait_planted(image)
    linked.cloud.origin.rename(linked.cloud.path / "away")
    try:
        made = linked.make_disk(image)
    finally:
        (linked.cloud.path / "away").rename(linked.cloud.origin)
    assert made["downloads"] == 0
    assert linked.harness.call("cache_image", image_id=image.id) is False
    path = linked.nova.link(image.id)
    assert linked.harness.call("inspect", path=str(path)) == "raw"
    converted = linked.cloud.path / "converted"
    command = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", made["path"], str(converted)]
    subprocess.run(command, check=True, timeout=60 * PATIENCE)
    assert converted.read_bytes()[:SIZE] == image.content


def test_cache_manager_leaves_unused_and_used_images_alone(linked: LinkedHost) -> None:
    """Hazards 1 and 2: utime succeeds, mtime is fresh."""
    unused, used = linked.register(), linked.register()
    linked.wait_planted(unused)
    linked.wait_planted(used)
    linked.make_disk(used)
    linked.harness.call("manage_cache", used=[used.id], instances=[INSTANCE])
    assert linked.nova.link(unused.id).is_symlink()
    assert linked.nova.link(used.id).is_symlink()
    usage = linked.harness.call("disk_usage")
    assert 0 < usage < 2 * SIZE, "what is cached, not the images' sizes"


def test_link_that_somebody_removes_is_planted_again(linked: LinkedHost) -> None:
    image = linked.register()
    linked.wait_planted(image)
    linked.nova.link(image.id).unlink()
    linked.wait_planted(image)


def test_withdrawn_image_goes_when_its_last_instance_does(linked: LinkedHost) -> None:
    """Hazard 6."""
    image = linked.register()
    linked.wait_planted(image)
    linked.make_disk(image)
    wait_for("usage", lambda: linked.used() == {image.id})
    refused = linked.host.command("image", "remove", image.id)
    assert refused.returncode == 8
    assert f"in use on {linked.host.name} (instances " in refused.stderr
    assert linked.host.command("image", "remove", image.id, "--force").returncode == 0
    linked.wait_state(image, "kept")
    (row,) = json.loads(linked.host.command("links", "list", "-f", "json").stdout)
    assert row == {
        "Image": image.id,
        "Link": str(linked.nova.link(image.id)),
        "State": "kept",
        "Reason": "in use by instances of this host",
    }
    assert linked.host.file(image).exists(), "neither hidden nor detached"
    # A stopped instance is started, another one is rescued: both need the name.
    assert linked.make_disk(image, name="disk.rescue")["downloads"] == 0
    linked.nova.remove_instances()
    wait_for("the image is detached", lambda: linked.host.ask("image.list") == [], timeout=60)
    assert not os.path.lexists(linked.nova.link(image.id))
    linked.wait_state(image, None)
    wait_for("no usage", lambda: linked.used() == set())


def test_withdrawn_image_without_instances_goes_at_once(linked: LinkedHost) -> None:
    image = linked.register()
    linked.wait_planted(image)
    assert linked.host.command("image", "remove", image.id).returncode == 0
    wait_for("the image is detached", lambda: linked.host.ask("image.list") == [], timeout=60)
    assert not os.path.lexists(linked.nova.link(image.id))


def test_agent_that_starts_detaches_nothing_that_is_in_use(linked: LinkedHost) -> None:
    image = linked.register()
    linked.wait_planted(image)
    linked.make_disk(image)
    linked.host.kill("agent")
    assert linked.host.command("image", "remove", image.id, "--force").returncode == 0
    linked.host.start_agent()
    linked.wait_state(image, "kept")
    assert linked.host.file(image).exists()


def test_dead_data_plane_makes_nova_download_and_nobody_touches_that(linked: LinkedHost) -> None:
    """Section 1.5: not connected, so no base file; Nova's file replaces the link for good."""
    image = linked.register()
    linked.wait_planted(image)
    linked.host.kill("holder")
    pid = wait_for("its pid", lambda: (linked.host.status() or {}).get("pid"))
    os.kill(pid, signal.SIGKILL)
    wait_for("a dead mount", lambda: not os.path.exists(linked.nova.link(image.id)))
    assert linked.nova.link(image.id).is_symlink()
    assert linked.make_disk(image)["downloads"] == 1
    assert linked.nova.link(image.id).read_bytes() == image.content
    linked.host.start_dataplane()
    linked.wait_state(image, "nova_downloaded")
    assert not linked.nova.link(image.id).is_symlink()
    wait_for("the instance needs no image of ours", lambda: linked.used() == set())


def test_data_plane_that_restarts_keeps_its_links(linked: LinkedHost) -> None:
    image = linked.register()
    linked.wait_planted(image)
    pid = linked.host.dataplane_pid()
    assert pid is not None
    linked.host.kill_dataplane()
    linked.host.wait_restarted(pid)
    assert linked.make_disk(image)["downloads"] == 0


def test_data_plane_that_hangs_hangs_neither_agent_nor_removal(linked: LinkedHost) -> None:
    """Nothing of ours ever follows a link into the mount."""
    image = linked.register()
    linked.wait_planted(image)
    pid = linked.host.dataplane_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        agent = linked.host._processes["agent"]
        agent.terminate()
        assert agent.wait(60 * PATIENCE) == 0
        assert linked.host.command("links", "list").returncode == 0
        assert linked.host.command("links", "remove", "--all").returncode == 0
    finally:
        with contextlib.suppress(ProcessLookupError):  # on a busy machine the holder was quicker
            os.kill(pid, signal.SIGCONT)
    assert not os.path.lexists(linked.nova.link(image.id))


def test_host_is_left_without_links(linked: LinkedHost) -> None:
    used, unused = linked.register(), linked.register()
    linked.wait_planted(used)
    linked.wait_planted(unused)
    linked.make_disk(used)
    refused = linked.host.command("links", "remove", "--all")
    assert refused.returncode == 8
    assert "stop acstor-agent first" in refused.stderr
    linked.host.kill("agent")
    result = linked.host.command("links", "remove", "--all", "-f", "json")
    assert result.returncode == 8
    states = {row["Image"]: row["State"] for row in json.loads(result.stdout)}
    assert states == {used.id: "kept", unused.id: "removed"}
    linked.nova.remove_instances()
    assert linked.host.command("links", "remove", "--all").returncode == 0
    assert list(linked.nova.base.iterdir()) == []
    assert linked.make_disk(unused)["downloads"] == 1, "the same host without ACStor"


def test_other_back_end_gets_no_links(cloud: Cloud, harness: NovaHarness) -> None:
    """Hazard 10."""
    linked = LinkedHost(cloud, harness)
    linked.nova.configure(libvirt={"images_type": "raw"})
    image = linked.register()
    linked.wait_state(image, "refused")
    assert os.listdir(linked.nova.instances) == [] or not os.path.lexists(
        linked.nova.link(image.id)
    )
    linked.nova.configure()
    linked.wait_planted(image)


def test_agent_killed_again_and_again_leaves_nova_able_to_work(linked: LinkedHost) -> None:
    images = [linked.register(MIB) for _ in range(6)]
    stopped = threading.Event()

    def kill() -> None:
        delay = 0.0
        while not stopped.is_set():
            linked.host.kill("agent")
            linked.host.start_agent()
            delay = (delay + 0.37) % 2.5
            stopped.wait(delay)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for number, image in enumerate(images):
            made = linked.make_disk(image, instance=str(uuid.UUID(int=number)))
            assert os.path.exists(made["path"])
    finally:
        stopped.set()
        killer.join()
    for image in images:
        link = linked.nova.link(image.id)
        wait_for(f"a base file\n{linked.host.log()}", functools.partial(is_base, link), 60)


def is_base(path: pathlib.Path) -> bool:
    return path.is_symlink() or path.is_file()

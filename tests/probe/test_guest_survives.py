"""A real guest boots while its data plane is killed, and finds its disk as it was registered."""

import functools
import pathlib
import shutil

import pytest

from testbed import accelerator, cleanup, processes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import Cloud, Host
from testbed.guest import build
from testbed.guest.machine import BackingDisk, GuestMachine, GuestRequest, GuestState
from testbed.guest.recipe import GuestRecipe
from testbed.run_directory import DEFAULT_ROOT, RunDirectory

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 5
GUESTS = DEFAULT_ROOT / "guests"


@pytest.fixture(scope="module")
def guest_image() -> build.GuestImage:
    for tool in ("qemu-system-x86_64", "qemu-img", "mmdebstrap"):
        assert shutil.which(tool), f"{tool} is missing: install what bindep.txt names"
    return build.build_guest(GuestRecipe(), GUESTS)


def boot_with_kills(host: Host, guest: GuestMachine) -> int:
    """Boot until the guest has checked its files; kill the data plane now and then."""
    for kills in range(KILLS):
        # The counters of each new process start at zero.
        wait_for("the guest reads", functools.partial(has_read, host, guest, 100), timeout=400)
        if has_settled(guest):
            return kills
        killed = wait_for("a data plane", host.dataplane_pid)
        host.kill_dataplane()
        host.wait_restarted(killed)
    wait_for("the guest is settled", functools.partial(has_settled, guest), timeout=400)
    return KILLS


def has_settled(guest: GuestMachine) -> bool:
    """Let the guest go on; return whether nothing more is awaited from it."""
    guest.poll()
    return guest.is_settled


def has_read(host: Host, guest: GuestMachine, count: int) -> bool:
    """Return whether the data plane's process has served ``count`` reads, or the boot is over."""
    status = host.status()
    return has_settled(guest) or (status is not None and status["reads"]["total"] > count)


def test_guest_boots_through_killed_data_planes(
    cloud: Cloud, guest_image: build.GuestImage, tmp_path: pathlib.Path
) -> None:
    """Every file that the guest hashes is as in the image; QEMU saw no error."""
    host = cloud.add_host(store={"capacity": "1GiB"})
    image_id = cloud.register_file(guest_image.disk)
    cloud.wait_ready(image_id)
    run = RunDirectory.create(tmp_path / "run")
    chosen = accelerator.choose(guest_image.kernel, GUESTS)
    disk = BackingDisk(str(host.file(image_id)))
    request = GuestRequest(
        "guest", guest_image, disk, chosen, None, run.directory("guest"), check_content=True
    )
    guest = GuestMachine(request, processes.ProcessTable(run))
    try:
        kills = boot_with_kills(host, guest)
    finally:
        seen = guest.serial_tail(20)
        guest.stop()
        cleanup.remove(run)
    assert guest.failure is None, seen
    assert guest.state is GuestState.CHECKED
    assert guest.boot_time_s is not None
    assert guest.overlay_time_s is not None
    assert guest.overlay_time_s < guest.boot_time_s
    assert kills >= 2

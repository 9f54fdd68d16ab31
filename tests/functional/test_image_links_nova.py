"""Links against Nova's own code: plain files stand for the mount, so neither root nor FUSE."""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.drivers.nova.image_links import nova_settings
from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.link_states import LinkEvent
from acstor.drivers.nova.image_links.overlay_scan import scan
from acstor.drivers.nova.image_links.planting import Planter
from acstor.repository.images import inspection
from testbed.fixtures.nova_harness import NovaError, NovaHarness
from testbed.fixtures.nova_host import NovaHost
from tests.unit.drivers.nova.conftest import IMAGE, OTHER, make_planter
from tests.unit.repository.test_inspection import disk, iso, master_boot_record

pytest.importorskip("nova", reason="nova is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing"),
]

MIB = 1 << 20
CONTENT = os.urandom(MIB)
INSTANCE = str(uuid.UUID(int=100))


@pytest.fixture
def nova(tmp_path: pathlib.Path) -> NovaHost:
    host = NovaHost(tmp_path / "nova")
    if os.geteuid() == 0:
        os.chown(host.instances, 0, 0)
    return host


@pytest.fixture
def mount(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "images"
    path.mkdir()
    (path / f"{IMAGE}.raw").write_bytes(CONTENT)
    return path


@pytest.fixture
def planter(nova: NovaHost, mount: pathlib.Path) -> Planter:
    planter = make_planter(nova, mount)
    planter.prepare()
    return planter


@pytest.fixture(scope="module")
def process() -> Iterator[NovaHarness]:
    harness = NovaHarness()
    yield harness
    harness.stop()


@pytest.fixture
def harness(process: NovaHarness, nova: NovaHost, tmp_path: pathlib.Path) -> NovaHarness:
    process.use(nova, tmp_path / "glance")
    process.upload(IMAGE, CONTENT)
    return process


def test_names_and_paths_are_those_that_nova_uses(nova: NovaHost, harness: NovaHarness) -> None:
    assert harness.call("base_name", image_id=IMAGE) == base_name(IMAGE)
    found = harness.call("settings")
    assert found["instances_path"] == nova.settings.instances_path
    assert found["base_directory"] == nova.settings.base_directory
    assert found["lock_directory"] == nova.settings.lock_directory
    assert found["backend"] == "Qcow2"


@pytest.mark.parametrize(
    ("images_type", "use_cow_images"),
    list(itertools.product(["default", "qcow2", "raw", "flat", "lvm", "rbd"], ["true", "false"])),
)
def test_links_are_refused_for_exactly_novas_other_back_ends(
    nova: NovaHost, harness: NovaHarness, images_type: str, use_cow_images: str
) -> None:
    """Hazard 10."""
    nova.configure(
        DEFAULT={"use_cow_images": use_cow_images, "instances_path": "$state_path/i_$my_ip"},
        libvirt={"images_type": images_type},
        image_cache={"subdirectory_name": "_base_$my_ip"},
    )
    harness.use(nova, harness.glance)
    found = harness.call("settings")
    ours = nova_settings.read([str(nova.config)], [])
    assert (found["backend"] == "Qcow2") is (ours.refusal is None)
    assert found["instances_path"] == ours.instances_path
    assert found["base_directory"] == ours.base_directory


def test_nova_makes_an_overlay_of_the_link_and_downloads_nothing(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    planter.plant(IMAGE)
    made = harness.call("make_disk", image_id=IMAGE, instance=INSTANCE, size=2 * MIB)
    assert made["downloads"] == 0
    assert nova.link(IMAGE).is_symlink()
    assert scan(nova.settings).used_names == {base_name(IMAGE)}
    rescue = harness.call("make_disk", image_id=IMAGE, instance=INSTANCE, name="disk.rescue")
    assert rescue["downloads"] == 0


def test_preallocation_concerns_the_overlay_only(
    nova: NovaHost, mount: pathlib.Path, harness: NovaHarness
) -> None:
    nova.configure(DEFAULT={"preallocate_images": "space"})
    harness.use(nova, harness.glance)
    assert nova.settings.refusal is None
    planter = make_planter(nova, mount)
    planter.prepare()
    planter.plant(IMAGE)
    made = harness.call("make_disk", image_id=IMAGE, instance=INSTANCE, size=2 * MIB)
    assert made["downloads"] == 0
    assert os.stat(made["path"]).st_blocks * 512 >= 2 * MIB
    assert (mount / f"{IMAGE}.raw").read_bytes() == CONTENT


def test_flat_back_end_would_copy_the_link_itself(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    """Hazard 10, and why: the instance's disk would be the image."""
    planter.plant(IMAGE)
    made = harness.call(
        "make_disk", image_id=IMAGE, instance=INSTANCE, name="kernel", backend="raw"
    )
    assert os.path.islink(made["path"])


def test_nova_downloads_over_a_link_that_leads_nowhere(
    nova: NovaHost, mount: pathlib.Path, planter: Planter, harness: NovaHarness
) -> None:
    """Section 1.5: the data plane is gone; and it leaves Nova's file alone when it is back."""
    (mount / f"{IMAGE}.raw").rename(mount / "away")
    planter.plant(IMAGE)
    made = harness.call("make_disk", image_id=IMAGE, instance=INSTANCE, size=2 * MIB)
    assert made["downloads"] == 1
    assert not nova.link(IMAGE).is_symlink()
    assert nova.link(IMAGE).read_bytes() == CONTENT
    (mount / "away").rename(mount / f"{IMAGE}.raw")
    assert planter.plant(IMAGE).event is LinkEvent.FILE_FOUND
    assert nova.link(IMAGE).read_bytes() == CONTENT
    assert scan(nova.settings).used_names == frozenset(), "it needs no image of ours"


def test_no_link_is_planted_while_nova_downloads(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    """Hazard 2: under Nova's own lock."""
    harness.close_gate(IMAGE)
    download = harness.start("make_disk", image_id=IMAGE, instance=INSTANCE, size=2 * MIB)
    harness.wait_at_gate(IMAGE)
    assert planter.plant(IMAGE).event is LinkEvent.LOCKED
    harness.open_gate(IMAGE)
    assert harness.wait(download)["downloads"] == 1
    assert planter.plant(IMAGE).event is LinkEvent.FILE_FOUND
    assert nova.link(IMAGE).read_bytes() == CONTENT


def test_download_without_a_lock_takes_the_place_of_a_link(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    """cache_image holds no lock while it downloads."""
    harness.close_gate(IMAGE)
    download = harness.start("cache_image", image_id=IMAGE)
    harness.wait_at_gate(IMAGE)
    assert planter.plant(IMAGE).event is LinkEvent.PLANT
    harness.open_gate(IMAGE)
    assert harness.wait(download) is True
    assert nova.link(IMAGE).read_bytes() == CONTENT
    assert not nova.link(IMAGE).is_symlink()
    assert planter.plant(IMAGE).event is LinkEvent.FILE_FOUND


def test_aggregate_cache_finds_the_image_there(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    planter.plant(IMAGE)
    assert harness.call("cache_image", image_id=IMAGE) is False


def test_cache_manager_removes_only_the_link_and_it_comes_back(
    nova: NovaHost, mount: pathlib.Path, planter: Planter, harness: NovaHarness
) -> None:
    """Hazard 2, were the mtime old: link and lock file go, the image does not."""
    planter.plant(IMAGE)
    os.utime(mount / f"{IMAGE}.raw", (0, 0))
    lock = pathlib.Path(nova.settings.lock_directory, f"nova-{base_name(IMAGE)}")
    assert lock.exists()
    harness.call("manage_cache", used=[], instances=[])
    assert not os.path.lexists(nova.link(IMAGE))
    assert not lock.exists()
    assert (mount / f"{IMAGE}.raw").read_bytes() == CONTENT
    assert planter.plant(IMAGE).event is LinkEvent.PLANT
    assert lock.exists()


def test_cache_manager_leaves_a_fresh_image_alone(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    """Hazard 2: the data plane reports an mtime of now."""
    planter.plant(IMAGE)
    harness.call("manage_cache", used=[], instances=[])
    assert nova.link(IMAGE).is_symlink()


def test_cache_manager_keeps_what_is_in_use(
    nova: NovaHost, mount: pathlib.Path, planter: Planter, harness: NovaHarness
) -> None:
    planter.plant(IMAGE)
    harness.call("make_disk", image_id=IMAGE, instance=INSTANCE, size=2 * MIB)
    os.utime(mount / f"{IMAGE}.raw", (0, 0))
    harness.call("manage_cache", used=[IMAGE], instances=[INSTANCE])
    assert nova.link(IMAGE).is_symlink()
    os.utime(mount / f"{IMAGE}.raw", (0, 0))
    harness.call("manage_cache", used=[], instances=[INSTANCE])
    assert nova.link(IMAGE).is_symlink()


def test_withdrawn_image_that_nova_still_wants_is_downloaded(
    nova: NovaHost, planter: Planter, harness: NovaHarness
) -> None:
    planter.plant(IMAGE)
    assert planter.remove(IMAGE, lambda: None).event is LinkEvent.REMOVE
    assert harness.call("make_disk", image_id=IMAGE, instance=INSTANCE)["downloads"] == 1


@pytest.mark.parametrize("declared", ["raw", "iso"])
@pytest.mark.parametrize(
    "content",
    [
        disk(b"plain"),
        disk(master_boot_record(0x83)),
        disk(master_boot_record(0xEE)),
        disk(master_boot_record()),
        disk(master_boot_record(0xEE, 0x83)),
        disk(bytes(446) + b"garbage, and more." * 3 + bytes(10) + b"\x55\xaa"),
        iso(),
        master_boot_record(0xEE) + iso()[512:],
    ],
    ids=["plain", "MBR", "GPT", "no partition", "hybrid", "garbage", "ISO", "ISO and GPT"],
)
def test_registration_accepts_nothing_that_nova_refuses_to_boot(
    harness: NovaHarness, tmp_path: pathlib.Path, content: bytes, declared: str
) -> None:
    """Hazard 3: a link is inspected at each boot, so a refusal comes too late there."""
    path = tmp_path / "image"
    path.write_bytes(content)
    try:
        verdict = harness.call("inspect", path=str(path))
    except NovaError as error:
        verdict = error.kind
    try:
        inspection.open_source(str(path), declared, 30).close()
        is_accepted = True
    except exception.ImageRefusedError:
        is_accepted = False
    assert verdict in ("raw", "gpt", "iso", "SafetyCheckFailed")
    assert is_accepted is (verdict in {"raw": ("raw", "gpt"), "iso": ("iso",)}[declared])


def test_unknown_image_fails_as_it_does_without_links(
    planter: Planter, harness: NovaHarness
) -> None:
    with pytest.raises(NovaError) as failure:
        harness.call("make_disk", image_id=OTHER, instance=INSTANCE)
    assert failure.value.kind == "ImageNotFound"


ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_nova_works_on_after_an_agent_that_was_killed_anywhere(
    nova: NovaHost, mount: pathlib.Path, harness: NovaHarness, when: str
) -> None:
    """Each of the changes, in a process of its own; first Nova alone, then the next agent."""
    step = 0
    while True:
        program = [sys.executable, "-m", "tests.functional.programs.killed_planter"]
        arguments = [str(nova.config), str(mount), IMAGE, str(step), when]
        killed = subprocess.run([*program, *arguments], cwd=ROOT, timeout=60, check=False)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL
        harness.call("make_disk", image_id=IMAGE, instance=f"{uuid.UUID(int=step)}", size=2 * MIB)
        planter = make_planter(nova, mount)
        planter.prepare()
        # The image is there for Nova now: by the link, or because it has downloaded it.
        assert planter.plant(IMAGE).event in (LinkEvent.PLANT, LinkEvent.FILE_FOUND)
        assert [path for path in nova.instances.rglob("*") if path.name.startswith(".")] == []
        for path in (nova.base, nova.instances / "locks"):
            shutil.rmtree(path)
        step += 1
    assert step >= 8

"""Volumes out of images, images out of volumes, servers that boot from them, backups."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.guest_console import MIB
from testbed.fixtures.instances import FLAVOR, Instances, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volumes import Volumes, volumes_of

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

COPIED_MAX = 4 * MIB
"""Bytes by which the origin may grow where nothing is copied: refs, and what guests wrote."""


def origin_bytes(box: RunningBox) -> int:
    """Return how much there is in the origin."""
    files = (box.directory.shared / "origin").rglob("*")
    return sum(size_of(path) for path in files)


def size_of(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # temporary
        return 0


@pytest.fixture(scope="module")
def in_use(whole_box: RunningBox, tiny: Template) -> Iterator[str]:
    """A volume of an image that ACStor has, from which a server has booted and runs; its id."""
    before = origin_bytes(whole_box)
    with volumes_of(whole_box) as volumes:
        volume_id = volumes.create(imageRef=tiny.id)
        assert origin_bytes(whole_box) - before < COPIED_MAX
        assert volumes.api.show("volumes", volume_id)["bootable"] == "true"
        with instances_of(whole_box) as instances:
            server = instances.boot(volume_id, tiny)
            first = server.checked(boot=1)
            yield volume_id
            server.checked(after=first)
            assert not server.could_not_read()


def test_server_that_boots_from_a_volume_typed_by_a_user(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """``--boot-from-volume``: Nova has Cinder make the volume out of the image, without a copy."""
    before = origin_bytes(box)
    text = box.openstack(
        "server", "create", "--image", tiny.id, "--boot-from-volume", "1", "--flavor", FLAVOR,
        "--nic", "none", "--wait", "typed", "-f", "json",
    )  # fmt: skip
    server = instances.adopt(json.loads(text)["id"], tiny)
    server.checked(boot=1)
    assert origin_bytes(box) - before < COPIED_MAX
    assert not box.nova_downloads(tiny.id)
    (attached,) = box.api.compute.volume_attachments(server.id)
    volumes.adopt("volumes", attached.volume_id)


def test_clone_of_a_volume_in_use_boots_and_becomes_an_image_that_does(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances, in_use: str
) -> None:
    """Each has what the guests of its source wrote, and goes on by itself."""
    clone = volumes.create(source_volid=in_use)
    instances.boot(clone, tiny).checked(boot=2)
    box.api.wait_deleted(instances.delete())
    volumes.api.wait("volumes", clone)
    answer = volumes.api.act(
        clone, "os-volume_upload_image", image_name=box.test_name, disk_format="raw",
        container_format="bare",
    )  # fmt: skip
    image_id = answer["os-volume_upload_image"]["image_id"]
    box.delete_later(image_id)
    box.wait_image_active(image_id)
    volumes.api.wait("volumes", clone)
    instances.create(box.as_template(image_id, tiny)).checked(boot=3)


def test_volume_comes_back_out_of_its_backup(
    tiny: Template, volumes: Volumes, instances: Instances, in_use: str
) -> None:
    """Taken while a guest uses it; restored into a new volume it boots, with what was written."""
    backup_id = volumes.make("backups", volume_id=in_use, force=True)
    restored = volumes.create()
    volumes.api.call("POST", f"/backups/{backup_id}/restore", {"restore": {"volume_id": restored}})
    volumes.api.wait("backups", backup_id)
    volumes.api.wait("volumes", restored)
    volumes.api.act(restored, "os-set_bootable", bootable=True)
    volumes.api.act(restored, "os-set_image_metadata", metadata=tiny.properties)
    instances.boot(restored, tiny).checked(boot=2)


def test_image_without_acstor_becomes_a_volume_by_download(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """An image that ACStor leaves out is downloaded and written, as with any backend."""
    image = box.fresh(tiny, acstor_cache="false")
    box.wait_registry(image.id, {"left"})
    volume_id = volumes.create(imageRef=image.id)
    instances.boot(volume_id, image).checked(boot=1)

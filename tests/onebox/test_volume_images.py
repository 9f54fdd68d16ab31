"""Volumes out of images, images out of volumes, servers that boot from them, backups."""

import json
import pathlib

import pytest

from tests.fixtures.cloud_api import Template
from tests.fixtures.guest_console import MIB
from tests.fixtures.instances import FLAVOR, Instance, Instances
from tests.fixtures.one_box import RunningBox
from tests.fixtures.volumes import Volumes

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


def boot(box: RunningBox, instances: Instances, template: Template, volume_id: str) -> Instance:
    """Boot a server from a volume."""
    text = box.openstack(
        "server", "create", "--volume", volume_id, "--flavor", FLAVOR, "--nic", "none", "--wait",
        box.test_name, "-f", "json",
    )  # fmt: skip
    return instances.adopt(json.loads(text)["id"], template)


def test_volume_of_an_image_is_there_at_once_and_boots(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """Nothing is copied; what the guest writes is in a clone of the volume, not in its image."""
    before = origin_bytes(box)
    volume_id = volumes.create(imageRef=tiny.id)
    assert origin_bytes(box) - before < COPIED_MAX
    assert volumes.api.show("volumes", volume_id)["bootable"] == "true"
    server = boot(box, instances, tiny, volume_id)
    server.checked(boot=1)
    clone = volumes.create(source_volid=volume_id)
    box.api.compute.stop_server(server.id)
    server.wait("SHUTOFF")
    box.api.compute.start_server(server.id)
    server.wait()
    server.checked(boot=2)
    copy = boot(box, instances, tiny, clone)
    copy.checked(boot=2)
    assert not box.nova_downloads(tiny.id)


def test_server_that_boots_from_a_volume_typed_by_a_user(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """``--boot-from-volume``: Nova has Cinder make the volume out of the image."""
    before = origin_bytes(box)
    text = box.openstack(
        "server", "create", "--image", tiny.id, "--boot-from-volume", "1", "--flavor", FLAVOR,
        "--nic", "none", "--wait", "typed", "-f", "json",
    )  # fmt: skip
    server = instances.adopt(json.loads(text)["id"], tiny)
    server.checked(boot=1)
    assert origin_bytes(box) - before < COPIED_MAX
    (attached,) = box.api.compute.volume_attachments(server.id)
    volumes.adopt("volumes", attached.volume_id)
    server.host.run("virsh", "-c", "qemu:///system", "domblkinfo", server.id, "vda")


def test_image_of_a_volume_boots(
    box: RunningBox, tiny: Template, volumes: Volumes, instances: Instances
) -> None:
    """A volume that was booted becomes an image with what its guest wrote."""
    volume_id = volumes.create(imageRef=tiny.id)
    server = boot(box, instances, tiny, volume_id)
    server.checked(boot=1)
    box.api.wait_deleted(instances.delete())
    volumes.api.wait("volumes", volume_id)
    answer = volumes.api.act(
        volume_id, "os-volume_upload_image", image_name=box.test_name, disk_format="raw",
        container_format="bare",
    )  # fmt: skip
    image_id = answer["os-volume_upload_image"]["image_id"]
    box.delete_later(image_id)
    box.wait_image_active(image_id)
    volumes.api.wait("volumes", volume_id)
    instances.create(box.as_template(image_id, tiny)).checked(boot=2)

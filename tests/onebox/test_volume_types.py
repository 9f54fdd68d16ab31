"""Properties that volume types give: encryption, limits, several servers, back-ends."""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Iterator

import pytest

from acstor.drivers.brick.volume_file import VolumeFile
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.guest_console import MIB
from testbed.fixtures.instances import Instance, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volume_api import VolumeApi
from testbed.fixtures.volume_types import VolumeTypes, volume_types_of
from testbed.fixtures.volumes import ACSTOR, GIB, STOCK, Volumes, volumes_of

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

ANYWHERE, ENCRYPTED, SHARED = "anywhere", "encrypted", "shared"
HERE = "controller@acstor#acstor"
SECOND = "controller@acstor-second#acstor-second"
ELSEWHERE = f"controller@{STOCK}#{STOCK}"
OF_ACSTOR = {"volume_backend_name": "acstor", "acstor:durability": "write-through"}
RATE = MIB
"""Bytes per second of the types that limit."""
READ_MIB = 4
READ_S_MIN = 0.6 * READ_MIB * MIB / RATE
"""Limits may let a second's worth pass at once."""


@pytest.fixture(scope="module")
def guests(whole_box: RunningBox, tiny: Template) -> Iterator[list[Instance]]:
    """Two guests on the first host and one on the second, for all tests of this module."""
    first, second = whole_box.hosts
    with instances_of(whole_box) as made:
        found = [made.request(tiny, host=host)[0] for host in (first, first, second)]
        for server in found:
            server.wait()
        for server in found:
            server.checked(boot=1)
        yield found


@pytest.fixture(scope="module")
def types(whole_box: RunningBox) -> Iterator[VolumeTypes]:
    """Types that an operator adds."""
    with volume_types_of(VolumeApi(whole_box.api.connection)) as made:
        made.make(ANYWHERE, {})
        made.make(ENCRYPTED, OF_ACSTOR, luks="luks")
        made.make(SHARED, {**OF_ACSTOR, "multiattach": "<is> True"})
        yield made


@pytest.fixture
def ordinary(box: RunningBox) -> Iterator[Volumes]:
    """Volumes of a user who is no administrator."""
    with box.ordinary_user("alice") as api, volumes_of(box, VolumeApi(api.connection)) as made:
        yield made


def raw_content(host: ComputeHost, volume_id: str, size: int) -> bytes:
    """Return the first bytes of a volume as its data plane has them, below what QEMU decrypts."""
    (found,) = [one for one in host.ask("volume.list") if one["volume"] == volume_id]
    opened = host.ask("volume.open", volume=volume_id, role="owner")
    assert opened is not None, f"{found} is not served"
    with VolumeFile(str(host.path(opened["socket"])), opened["export"], is_read_only=True) as file:
        return file.read(size)


def is_in_origin(box: RunningBox, text: bytes) -> bool:
    """Return whether any object of the origin holds a text."""
    for folder, _, names in os.walk(box.directory.shared / "origin"):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # temporary
                if text in pathlib.Path(folder, name).read_bytes():
                    return True
    return False


def test_encrypted_volume_is_plain_to_its_guests_only(
    box: RunningBox, ordinary: Volumes, guests: list[Instance], types: VolumeTypes
) -> None:
    """Written on one host, read on the other; neither data plane nor origin sees what was."""
    first, _, second = guests
    volume_id = ordinary.create(volume_type=ENCRYPTED)
    plain = ordinary.create(volume_type=ACSTOR)
    assert ordinary.api.show("volumes", volume_id)["encrypted"]
    with ordinary.attached(first, volume_id) as disk, ordinary.attached(first, plain) as control:
        assert disk.size_bytes() == GIB
        disk.write("Kc7-hidden-Qz3", count_mib=4)
        disk.write("at-the-end", at_mib=1023)
        control.write("Wp9-shown-Lm5")
        raw = raw_content(first.host, volume_id, 16 * MIB)
        assert raw.startswith(b"LUKS\xba\xbe\0\x01")
        assert b"Kc7-hidden-Qz3" not in raw
    assert is_in_origin(box, b"Wp9-shown-Lm5"), "the origin's objects cannot be looked into so"
    assert not is_in_origin(box, b"Kc7-hidden-Qz3")
    with ordinary.attached(second, volume_id) as disk:
        assert disk.holds("Kc7-hidden-Qz3", count_mib=4)
        assert disk.holds("at-the-end", at_mib=1023)


def test_what_encryption_cannot_do_is_refused(
    box: RunningBox, volumes: Volumes, guests: list[Instance], types: VolumeTypes
) -> None:
    """Growing under a guest, another LUKS, a copy into another type: each says what to do."""
    server = guests[0]
    volume_id = volumes.create(volume_type=ENCRYPTED)
    log_start = box.controller.log_size("cinder-volume")
    with volumes.attached(server, volume_id) as disk:
        disk.write("undisturbed", count_mib=2)
        volumes.api.act(volume_id, "os-extend", new_size=2)
        volumes.api.wait("volumes", volume_id, "error_extending")
        assert volumes.api.messages(volume_id), "the user is told nothing"
        volumes.api.act(volume_id, "os-reset_status", status="in-use")
        assert disk.holds("undisturbed", count_mib=2)
    volumes.api.act(volume_id, "os-extend", new_size=2)
    volumes.api.wait_volume(volume_id, "has 2 GiB", lambda found: found["size"] == 2)
    volumes.api.wait("volumes", volume_id)
    plain = volumes.create()
    volumes.api.act(plain, "os-retype", new_type=ENCRYPTED, migration_policy="on-demand")
    name = types.make("luks-2", OF_ACSTOR, luks="luks2")
    refused = volumes.adopt(
        "volumes", volumes.api.create("volumes", name="luks-2", size=1, volume_type=name)
    )
    volumes.api.wait("volumes", refused, "error")
    volumes.api.wait_volume(
        plain,
        "is given up",
        lambda found: found["status"] == "available" and found["migration_status"] == "error",
    )
    assert volumes.api.show("volumes", plain)["volume_type"] == ACSTOR
    said = box.controller.log("cinder-volume", log_start)
    for hint in (
        "detach it, extend it, attach it again",
        "give the volume type the provider luks",
        "attach both to an instance and copy there",
    ):
        assert hint in said
    with volumes.attached(server, volume_id) as disk:
        assert disk.size_bytes() == 2 * GIB
        assert disk.holds("undisturbed", count_mib=2)
        disk.write("grown", at_mib=2047)


def test_limits_of_qos_specs_and_of_types_take_effect(
    ordinary: Volumes, volumes: Volumes, guests: list[Instance], types: VolumeTypes
) -> None:
    """QEMU throttles by front-end specs, the data plane by ours; a retype in use lifts ours."""
    server = guests[0]
    in_front = types.make(
        "front", OF_ACSTOR, qos={"consumer": "front-end", "total_bytes_sec": str(RATE)}
    )
    behind = types.make("behind", OF_ACSTOR, qos={"consumer": "back-end", "bytes_per_s": str(RATE)})
    first, second = ordinary.create(volume_type=in_front), ordinary.create(volume_type=behind)
    with ordinary.attached(server, first) as disk, ordinary.attached(server, second) as other:
        tuned = server.host.run("virsh", "-c", "qemu:///system", "dumpxml", server.id)
        assert len(re.findall(f"<total_bytes_sec>{RATE}</total_bytes_sec>", tuned)) == 1
        assert disk.seconds_to_read(READ_MIB) > READ_S_MIN
        assert other.seconds_to_read(READ_MIB) > READ_S_MIN
        volumes.api.act(second, "os-retype", new_type=ACSTOR, migration_policy="never")
        volumes.api.wait("volumes", second, "in-use")
        assert volumes.api.show("volumes", second)["volume_type"] == ACSTOR
        assert other.seconds_to_read(READ_MIB) < READ_S_MIN / 2


def test_shared_volume_is_shared_on_one_host_only(
    box: RunningBox, volumes: Volumes, guests: list[Instance], types: VolumeTypes
) -> None:
    """Two servers of a host see each other's writes; one of another host is refused."""
    first, neighbour, far = guests
    volume_id = volumes.create(volume_type=SHARED)
    with volumes.attached(first, volume_id) as disk:
        with volumes.attached(neighbour, volume_id) as too:
            disk.write("of-the-first")
            assert too.holds("of-the-first")
            too.write("of-the-second", at_mib=1)
            assert disk.holds("of-the-second", at_mib=1)
            log_start = box.controller.log_size("cinder-volume")
            volumes.api.attach_refused(far.id, volume_id)
            said = box.controller.log("cinder-volume", log_start)
            assert "can be attached to several instances of one host only" in said
        # The one that goes does not close it under the other.
        disk.write("still-there", at_mib=2)
        assert disk.holds("still-there", at_mib=2)
    with volumes.attached(far, volume_id) as disk:
        assert disk.holds("of-the-second", at_mib=1)


def test_volume_lands_where_the_chunks_of_its_image_are(
    box: RunningBox, volumes: Volumes, tiny: Template, types: VolumeTypes
) -> None:
    """By room alone another back-end is preferred; there goes what ACStor does not have."""

    def where(image: Template | None = None) -> str:
        fields = {} if image is None else {"imageRef": image.id}
        volume_id = volumes.make("volumes", size=1, volume_type=ANYWHERE, **fields)
        found = volumes.api.show("volumes", volume_id)
        return str(found["os-vol-host-attr:host"])

    left = box.fresh(tiny, acstor_cache="false")
    box.wait_registry(left.id, {"left"})
    volumes.api.wait_pool(HERE, lambda has: tiny.id in has["acstor_images"])
    assert where() == ELSEWHERE
    assert where(tiny) in (HERE, SECOND)
    assert where(left) == ELSEWHERE


def test_volume_moves_between_back_ends(
    box: RunningBox, volumes: Volumes, guests: list[Instance], types: VolumeTypes
) -> None:
    """From a file, under a guest, by QEMU's copy; within a repository by none; back by Cinder's."""
    server = guests[0]
    volume_id = volumes.create(volume_type=ANYWHERE)
    assert volumes.api.show("volumes", volume_id)["os-vol-host-attr:host"] == ELSEWHERE
    with volumes.attached(server, volume_id) as disk:
        disk.write("moved", count_mib=2)
        volumes.api.migrate(volume_id, HERE)
        assert disk.holds("moved", count_mib=2)
        disk.write("under-way", at_mib=2)
    name = volumes.record_of(volume_id)
    before = volumes.api.show("volumes", volume_id)
    volumes.api.migrate(volume_id, SECOND)
    after = volumes.api.show("volumes", volume_id)
    assert volumes.record_of(volume_id) == name, "it was copied"
    assert before["id"] == after["id"]
    with volumes.attached(server, volume_id) as disk:
        assert disk.holds("moved", count_mib=2)
        disk.write("here", at_mib=1)
    volumes.api.migrate(volume_id, ELSEWHERE)
    assert name not in {row["id"] for row in box.controller.acstor("volume", "list")}
    with volumes.attached(server, volume_id) as disk:
        assert disk.holds("moved")
        assert disk.holds("here", at_mib=1)
        assert disk.holds("under-way", at_mib=2)


def test_volume_and_snapshot_go_and_come_back(
    box: RunningBox, volumes: Volumes, guests: list[Instance]
) -> None:
    """Let go of and taken over again, a volume and its snapshot have what they had."""
    first, _, second = guests
    volume_id = volumes.create()
    with volumes.attached(first, volume_id) as disk:
        disk.write("then", count_mib=2)
        snapshot_id = volumes.snapshot(volume_id)
        disk.write("now")
    volumes.api.call("POST", f"/snapshots/{snapshot_id}/action", {"os-unmanage": {}})
    volumes.api.wait_gone("snapshots", snapshot_id)
    volumes.api.act(volume_id, "os-unmanage")
    volumes.api.wait_gone("volumes", volume_id)
    listed = {one["reference"]["source-name"]: one for one in volumes.api.manageable(HERE)}
    assert listed[volume_id]["safe_to_manage"]
    taken = volumes.manage(HERE, volume_id, ACSTOR)
    snapshot = volumes.manage_snapshot(taken, snapshot_id)
    with volumes.attached(second, taken) as disk:
        assert disk.holds("now")
        assert disk.holds("then", at_mib=1)
    of_snapshot = volumes.create(snapshot_id=snapshot)
    with volumes.attached(second, of_snapshot) as disk:
        assert disk.holds("then", count_mib=2)
    text = box.openstack("volume", "show", taken, "-f", "json")
    assert json.loads(text)["status"] == "available"

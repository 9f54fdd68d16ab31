"""Volumes: made, attached, copied, changed and deleted as users do, with what guests wrote."""

import json
from collections.abc import Iterator

import openstack.exceptions
import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.guest_console import MIB
from testbed.fixtures.instances import Instance, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volume_api import VolumeApi
from testbed.fixtures.volumes import (  # fmt: skip
    ACSTOR,
    GIB,
    NONE,
    STOCK,
    THROUGH,
    Volumes,
    console,
    volumes_of,
)

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

CONSISTENT = "consistent"
USER = "ursula"


@pytest.fixture(scope="module")
def guests(whole_box: RunningBox, tiny: Template) -> Iterator[list[Instance]]:
    """A guest on each host, for all tests of this module: each attaches its own volumes."""
    with instances_of(whole_box) as made:
        found = [made.request(tiny, host=host)[0] for host in whole_box.hosts]
        for server in found:
            server.wait()
        for server in found:
            server.checked(boot=1)
        yield found


def owner(box: RunningBox, volume_id: str) -> str | None:
    """Return the host whose data plane serves a volume."""
    found = [host.name for host in box.hosts if serves_volume(host, volume_id)]
    assert len(found) <= 1, f"several hosts serve {volume_id}: {found}"
    return found[0] if found else None


def serves_volume(host: ComputeHost, volume_id: str) -> bool:
    return any(each["volume"] == volume_id for each in host.ask("volume.list") or [])


def test_volume_typed_by_a_user_is_listed_and_deleted(box: RunningBox, volumes: Volumes) -> None:
    """Without a type it is one of ACStor."""
    text = box.openstack("volume", "create", "--size", "2", "typed", "-f", "json")
    volume_id = volumes.adopt("volumes", json.loads(text)["id"])
    found = volumes.api.wait("volumes", volume_id)
    assert (found["volume_type"], found["size"]) == (ACSTOR, 2)
    assert found["os-vol-host-attr:host"].startswith("controller@acstor")
    listed = json.loads(box.openstack("volume", "list", "-f", "json"))
    assert volume_id in {row["ID"] for row in listed}
    box.openstack("volume", "delete", volume_id)
    volumes.api.wait_gone("volumes", volume_id)


def test_user_lists_the_volumes_of_a_name_only(box: RunningBox) -> None:
    """Cinder filters for him by what ``resource_filters.json`` names, else it lists all."""
    with box.ordinary_user(USER) as api, volumes_of(box, VolumeApi(api.connection)) as made:
        wanted, _ = made.create(), made.create()
        name = made.api.show("volumes", wanted)["name"]
        text = box.openstack("volume", "list", "--name", name, "-f", "json", user=USER)
        assert [row["ID"] for row in json.loads(text)] == [wanted]


@pytest.mark.parametrize("volume_type", [ACSTOR, pytest.param(THROUGH, marks=pytest.mark.extended)])
def test_content_goes_with_the_volume_to_another_host(
    box: RunningBox, volumes: Volumes, guests: list[Instance], volume_type: str
) -> None:
    """Written on one host and detached: all of it is there when it is attached on the other."""
    first, second = guests
    volume_id = volumes.create(volume_type=volume_type)
    with volumes.attached(first, volume_id) as disk:
        assert disk.size_bytes() == GIB
        assert disk.is_zero(count_mib=4)
        disk.write("first", count_mib=8)
        disk.write("end", at_mib=1023)
        assert disk.holds("first", count_mib=8)
        assert owner(box, volume_id) == first.host.name
    assert owner(box, volume_id) is None
    with volumes.attached(second, volume_id) as disk:
        assert owner(box, volume_id) == second.host.name
        assert disk.holds("first", count_mib=8)
        assert disk.holds("end", at_mib=1023)
        assert disk.is_zero(at_mib=8, count_mib=4)
        disk.write("second", at_mib=2)
    with volumes.attached(first, volume_id) as disk:
        assert disk.holds("first", count_mib=2)
        assert disk.holds("second", at_mib=2)


def test_volume_without_durability_serves_its_guest(
    volumes: Volumes, guests: list[Instance], box: RunningBox
) -> None:
    """Written content can be read, and nothing of it goes to the origin."""
    volume_id = volumes.create(volume_type=NONE)
    server = guests[0]
    with volumes.attached(server, volume_id) as disk:
        disk.write("kept-here", count_mib=4)
        assert disk.holds("kept-here", count_mib=4)
        pushed = server.host.ask("volume.push", volume=volume_id)
        assert pushed["manifest"] is None
        status = server.host.ask("volume.status", volume=volume_id)
        assert status["origin_log_bytes"] < MIB


def test_second_attachment_is_refused(volumes: Volumes, guests: list[Instance]) -> None:
    """By the cloud; and a data plane that is asked nevertheless does not open it."""
    first, second = guests
    volume_id = volumes.create()
    with volumes.attached(first, volume_id) as disk:
        disk.write("mine")
        with pytest.raises(openstack.exceptions.BadRequestException, match="already attached"):
            volumes.api.attach(second.id, volume_id)
        assert second.host.ask("volume.open", volume=volume_id, role="owner") is None
        disk.write("mine-still", at_mib=1)
        assert disk.holds("mine")
        assert disk.holds("mine-still", at_mib=1)


def test_snapshot_of_an_attached_volume_keeps_what_was_there(
    volumes: Volumes, guests: list[Instance]
) -> None:
    """Volume out of the snapshot, volume out of the volume, and back to the snapshot."""
    first, second = guests
    volume_id = volumes.create()
    with volumes.attached(first, volume_id) as disk:
        disk.write("before", count_mib=4)
        snapshot_id = volumes.snapshot(volume_id)
        disk.write("after", at_mib=1)
        of_snapshot = volumes.create(snapshot_id=snapshot_id)
        with volumes.attached(second, of_snapshot) as other:
            assert other.holds("before", count_mib=4)
            other.write("its-own", at_mib=2)
        clone = volumes.create(source_volid=volume_id)
        with volumes.attached(second, clone) as other:
            assert other.holds("before")
            assert other.holds("after", at_mib=1)
        assert disk.holds("before", at_mib=2, count_mib=2)
    volumes.api.act(volume_id, "revert", snapshot_id=snapshot_id)
    volumes.api.wait("volumes", volume_id)
    with volumes.attached(first, volume_id) as disk:
        assert disk.holds("before", count_mib=4)
    # A clone outlives what it was made of.
    volumes.api.delete("volumes", volume_id)
    volumes.api.wait_gone("volumes", volume_id)
    with volumes.attached(first, of_snapshot) as disk:
        assert disk.holds("before", count_mib=2)
        assert disk.holds("its-own", at_mib=2)


def test_volume_is_extended_free_and_in_use(volumes: Volumes, guests: list[Instance]) -> None:
    """The guest sees the new size without a detach, and writes there."""
    server = guests[0]
    volume_id = volumes.create()
    volumes.api.act(volume_id, "os-extend", new_size=2)
    volumes.api.wait_volume(volume_id, "has 2 GiB", lambda found: found["size"] == 2)
    volumes.api.wait("volumes", volume_id)
    with volumes.attached(server, volume_id) as disk:
        assert disk.size_bytes() == 2 * GIB
        disk.write("old-end", at_mib=2047)
        volumes.api.act(volume_id, "os-extend", new_size=3)
        disk.wait_size(3 * GIB)
        disk.write("new-end", at_mib=3071)
        assert disk.holds("new-end", at_mib=3071)
        assert disk.holds("old-end", at_mib=2047)
        assert disk.is_zero(at_mib=2048, count_mib=2)


def test_volume_is_retyped_in_place_and_out_of_another_backend(
    volumes: Volumes, guests: list[Instance]
) -> None:
    """A change of durability copies nothing; a volume of another backend is migrated."""
    server = guests[0]
    stock = volumes.create(volume_type=STOCK)
    with volumes.attached(server, stock) as disk:
        disk.write("from-elsewhere", count_mib=2)
    volumes.api.act(stock, "os-retype", new_type=ACSTOR, migration_policy="on-demand")
    volumes.api.wait_volume(stock, "is of ACStor", lambda found: found["volume_type"] == ACSTOR)
    volumes.api.wait("volumes", stock)
    volumes.api.act(stock, "os-retype", new_type=THROUGH, migration_policy="never")
    volumes.api.wait_volume(stock, "is retyped", lambda found: found["volume_type"] == THROUGH)
    volumes.api.wait("volumes", stock)
    with volumes.attached(server, stock) as disk:
        assert disk.holds("from-elsewhere", count_mib=2)
        status = server.host.ask("volume.status", volume=volumes.record_of(stock))
        assert status["durability"]["default"] == "write-through"
        volumes.api.act(stock, "os-retype", new_type=ACSTOR, migration_policy="never")
        volumes.api.wait_volume(stock, "is ACStor's", lambda found: found["volume_type"] == ACSTOR)
        status = server.host.ask("volume.status", volume=volumes.record_of(stock))
        assert status["durability"]["default"] == "write-back"
        assert disk.holds("from-elsewhere", count_mib=2)


@pytest.fixture(scope="module")
def consistent(whole_box: RunningBox) -> Iterator[str]:
    """A group type whose snapshots are of one moment; its id."""
    api = Volumes(whole_box).api
    made = api.call("POST", "/group_types", {"group_type": {"name": CONSISTENT}})["group_type"]
    specs = {"group_specs": {"consistent_group_snapshot_enabled": "<is> True"}}
    api.call("POST", f"/group_types/{made['id']}/group_specs", specs)
    yield made["id"]
    api.call("DELETE", f"/group_types/{made['id']}")


def test_group_snapshot_is_of_one_moment(
    volumes: Volumes, guests: list[Instance], consistent: str
) -> None:
    """Two attached volumes, one after the other written: the second never leads the first."""
    server = guests[0]
    types = {each["name"]: each["id"] for each in volumes.api.call("GET", "/types")["volume_types"]}
    group_id = volumes.make("groups", group_type=consistent, volume_types=[types[ACSTOR]])
    first, second = (volumes.create(group_id=group_id) for _ in range(2))
    with volumes.attached(server, first) as one, volumes.attached(server, second) as two:
        one.write("before")
        two.write("before")
        snapshot_id = volumes.make("group_snapshots", group_id=group_id)
        one.write("after")
        two.write("after")
    copy_id = volumes.group_from_snapshot(snapshot_id)
    copies = [
        each["id"]
        for each in volumes.api.call("GET", "/volumes/detail")["volumes"]
        if each["group_id"] == copy_id
    ]
    assert len(copies) == 2
    for copy in copies:
        with volumes.attached(server, copy) as disk:
            assert disk.holds("before")


def test_commands_in_the_guest_tell_when_they_fail(guests: list[Instance]) -> None:
    """The other tests of volumes lean on it."""
    assert console(guests[0]).run("echo one; echo two") == "one\ntwo"
    with pytest.raises(AssertionError, match="ended with 3"):
        console(guests[0]).run("exit 3")

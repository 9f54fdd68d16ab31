"""Taking over volumes and snapshots, and letting go of them."""

import uuid
from typing import Any

import pytest
from cinder import exception as cinder_exception
from cinder import objects

from acstor.repository.volumes.store import NewVolume
from testbed.fixtures.cinder_driver import GIB, H1, DriverHarness

PAGE: tuple[Any, ...] = (None, 1000, 0, ["size"], ["asc"])


def _foreign(harness: DriverHarness, size_bytes: int = 2 * GIB) -> str:
    """Make a volume that Cinder does not know."""
    disk = str(uuid.uuid4())
    harness.volumes.create(NewVolume(disk, size_bytes, name="made by hand"))
    return disk


def _managed(harness: DriverHarness, disk: str) -> Any:
    volume = harness.volume(size=2)
    update = harness.driver.manage_existing(volume, {"source-name": disk})
    volume._name_id = update["_name_id"]
    return volume


@pytest.mark.parametrize("key", ["source-name", "source-id"])
def test_volume_is_taken_over_under_its_name(harness: DriverHarness, key: str) -> None:
    disk = _foreign(harness)
    volume = harness.volume()
    assert harness.driver.manage_existing_get_size(volume, {key: disk}) == 2
    update = {"_name_id": disk, "shared_targets": False}
    assert harness.driver.manage_existing(volume, {key: disk}) == update
    assert harness.volumes.get(disk).record.metadata["cinder_volume"] == volume.id


def test_size_is_rounded_up_to_what_cinder_can_count(harness: DriverHarness) -> None:
    disk = _foreign(harness, 512)
    volume = harness.volume()
    assert harness.driver.manage_existing_get_size(volume, {"source-name": disk}) == 1
    harness.driver.manage_existing(volume, {"source-name": disk})
    assert harness.volumes.get(disk).record.size_bytes == GIB


def test_volume_that_has_the_id_of_cinder_keeps_no_second_name(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.driver.unmanage(volume)
    update = harness.driver.manage_existing(volume, {"source-name": volume.id})
    assert update["_name_id"] is None


@pytest.mark.parametrize(
    "reference",
    [{}, {"source-name": ""}, {"source-name": "../x"}, {"source-name": str(uuid.UUID(int=9))}],
)
def test_bad_reference_is_refused(harness: DriverHarness, reference: dict[str, str]) -> None:
    with pytest.raises(cinder_exception.ManageExistingInvalidReference):
        harness.driver.manage_existing_get_size(harness.volume(), reference)


def test_volume_that_cinder_has_is_refused(harness: DriverHarness) -> None:
    volume = harness.created()
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="of Cinder"):
        harness.driver.manage_existing(harness.volume(), {"source-name": volume.id})


def test_volume_in_use_is_refused(harness: DriverHarness) -> None:
    disk = _foreign(harness)
    harness.volumes.allow_host(disk, "h9")
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="in use on h9"):
        harness.driver.manage_existing(harness.volume(), {"source-name": disk})


def test_volume_that_was_let_go_stays_and_can_be_taken_again(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.driver.unmanage(volume)
    assert harness.record(volume).size_bytes == GIB
    other = harness.volume()
    update = harness.driver.manage_existing(other, {"source-name": volume.id})
    assert update["_name_id"] == volume.id


def test_managed_volume_works_under_its_name(harness: DriverHarness) -> None:
    volume = _managed(harness, _foreign(harness))
    data = harness.attach(volume, H1)["data"]
    assert data["name_id"] == volume.name_id != volume.id
    snapshot = harness.snapshot(volume)
    harness.driver.create_snapshot(snapshot)
    harness.detach(volume, H1)
    harness.driver.revert_to_snapshot(harness.context, volume, snapshot)
    harness.driver.extend_volume(volume, 3)
    harness.driver.delete_volume(volume)
    assert harness.volumes.find(volume.name_id) is None


def test_listing_says_what_may_be_taken_over(harness: DriverHarness) -> None:
    free, managed = _foreign(harness, 3 * GIB), harness.created(size=1)
    of_another_back_end, used = harness.created(size=4), _foreign(harness, 5 * GIB)
    harness.volumes.allow_host(used, "h9")
    listed = harness.driver.get_manageable_volumes([managed], *PAGE)
    assert [
        (one["reference"]["source-name"], one["safe_to_manage"], one["cinder_id"]) for one in listed
    ] == [
        (managed.id, False, managed.id),
        (free, True, None),
        (of_another_back_end.id, False, None),
        (used, False, None),
    ]
    assert [one["reason_not_safe"] for one in listed] == [
        "already managed",
        None,
        f"it is volume {of_another_back_end.id} of Cinder",
        "it is in use on h9",
    ]
    assert listed[1]["size"] == 3
    sent = objects.ManageableVolumeList.from_primitives(harness.context, listed)
    assert sent[1].extra_info == {"name": "made by hand"}


def test_listing_has_pages(harness: DriverHarness) -> None:
    for size in (3, 1, 2):
        _foreign(harness, size * GIB)
    listed = harness.driver.get_manageable_volumes([], None, 2, 1, ["size"], ["desc"])
    assert [one["size"] for one in listed] == [2, 1]


def test_snapshot_is_taken_over(harness: DriverHarness) -> None:
    disk = _foreign(harness)
    name = str(uuid.uuid4())
    harness.volumes.snapshot(disk, name)
    volume = _managed(harness, disk)
    snapshot = harness.snapshot(volume)
    reference = {"source-name": name}
    assert harness.driver.manage_existing_snapshot_get_size(snapshot, reference) == 2
    harness.driver.manage_existing_snapshot(snapshot, reference)
    assert harness.volumes.get_snapshot(snapshot.id).record.volume == disk
    assert harness.volumes.find_snapshot(name) is None
    harness.driver.revert_to_snapshot(harness.context, volume, snapshot)


def test_snapshot_of_another_volume_is_refused(harness: DriverHarness) -> None:
    disk, name = _foreign(harness), str(uuid.uuid4())
    harness.volumes.snapshot(disk, name)
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="of volume"):
        harness.driver.manage_existing_snapshot(
            harness.snapshot(harness.created()), {"source-name": name}
        )


def test_snapshot_that_is_not_there_is_refused(harness: DriverHarness) -> None:
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="no such snapshot"):
        harness.driver.manage_existing_snapshot(
            harness.snapshot(harness.created()), {"source-name": str(uuid.uuid4())}
        )


def test_snapshot_that_was_let_go_stays(harness: DriverHarness) -> None:
    snapshot = harness.snapshot(harness.created())
    harness.driver.create_snapshot(snapshot)
    harness.driver.unmanage_snapshot(snapshot)
    assert harness.volumes.find_snapshot(snapshot.id) is not None


def test_listing_of_snapshots_says_what_may_be_taken_over(harness: DriverHarness) -> None:
    volume, foreign = harness.created(size=2), _foreign(harness, 3 * GIB)
    known = harness.snapshot(volume)
    harness.driver.create_snapshot(known)
    free, homeless = str(uuid.UUID(int=5)), str(uuid.UUID(int=6))
    harness.volumes.snapshot(volume.id, free)
    harness.volumes.snapshot(foreign, homeless)
    listed = harness.driver.get_manageable_snapshots([known], *PAGE)
    found = {one["reference"]["source-name"]: one for one in listed}
    assert found[known.id]["reason_not_safe"] == "already managed"
    assert found[free]["safe_to_manage"] is True
    assert found[free]["source_reference"] == {"source-name": volume.id}
    assert found[homeless]["reason_not_safe"] == "its volume is not managed"
    sent = objects.ManageableSnapshotList.from_primitives(harness.context, listed)
    assert all(one.extra_info["created_at"] for one in sent)

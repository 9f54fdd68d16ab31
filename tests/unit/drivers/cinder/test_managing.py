"""Taking over volumes and snapshots, and letting go of them."""

import uuid
from typing import Any

import pytest
from cinder import exception as cinder_exception
from cinder import objects

from acstor.repository.volumes.store import NewVolume
from testbed.fixtures.cinder_party import GIB, H1, Party

PAGE: tuple[Any, ...] = (None, 1000, 0, ["size"], ["asc"])


def _foreign(party: Party, size_bytes: int = 2 * GIB) -> str:
    """Make a volume that Cinder does not know."""
    disk = str(uuid.uuid4())
    party.volumes.create(NewVolume(disk, size_bytes, name="made by hand"))
    return disk


def _managed(party: Party, disk: str) -> Any:
    volume = party.volume(size=2)
    update = party.driver.manage_existing(volume, {"source-name": disk})
    volume._name_id = update["_name_id"]
    return volume


@pytest.mark.parametrize("key", ["source-name", "source-id"])
def test_volume_is_taken_over_under_its_name(party: Party, key: str) -> None:
    disk = _foreign(party)
    volume = party.volume()
    assert party.driver.manage_existing_get_size(volume, {key: disk}) == 2
    update = {"_name_id": disk, "shared_targets": False}
    assert party.driver.manage_existing(volume, {key: disk}) == update
    assert party.volumes.get(disk).record.metadata["cinder_volume"] == volume.id


def test_size_is_rounded_up_to_what_cinder_can_count(party: Party) -> None:
    disk = _foreign(party, 512)
    volume = party.volume()
    assert party.driver.manage_existing_get_size(volume, {"source-name": disk}) == 1
    party.driver.manage_existing(volume, {"source-name": disk})
    assert party.volumes.get(disk).record.size_bytes == GIB


def test_volume_that_has_the_id_of_cinder_keeps_no_second_name(party: Party) -> None:
    volume = party.created()
    party.driver.unmanage(volume)
    update = party.driver.manage_existing(volume, {"source-name": volume.id})
    assert update["_name_id"] is None


@pytest.mark.parametrize(
    "reference",
    [{}, {"source-name": ""}, {"source-name": "../x"}, {"source-name": str(uuid.UUID(int=9))}],
)
def test_bad_reference_is_refused(party: Party, reference: dict[str, str]) -> None:
    with pytest.raises(cinder_exception.ManageExistingInvalidReference):
        party.driver.manage_existing_get_size(party.volume(), reference)


def test_volume_that_cinder_has_is_refused(party: Party) -> None:
    volume = party.created()
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="of Cinder"):
        party.driver.manage_existing(party.volume(), {"source-name": volume.id})


def test_volume_in_use_is_refused(party: Party) -> None:
    disk = _foreign(party)
    party.volumes.allow_host(disk, "h9")
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="in use on h9"):
        party.driver.manage_existing(party.volume(), {"source-name": disk})


def test_volume_that_was_let_go_stays_and_can_be_taken_again(party: Party) -> None:
    volume = party.created()
    party.driver.unmanage(volume)
    assert party.record(volume).size_bytes == GIB
    other = party.volume()
    update = party.driver.manage_existing(other, {"source-name": volume.id})
    assert update["_name_id"] == volume.id


def test_managed_volume_works_under_its_name(party: Party) -> None:
    volume = _managed(party, _foreign(party))
    data = party.attach(volume, H1)["data"]
    assert data["name_id"] == volume.name_id != volume.id
    snapshot = party.snapshot(volume)
    party.driver.create_snapshot(snapshot)
    party.detach(volume, H1)
    party.driver.revert_to_snapshot(party.context, volume, snapshot)
    party.driver.extend_volume(volume, 3)
    party.driver.delete_volume(volume)
    assert party.volumes.find(volume.name_id) is None


def test_listing_says_what_may_be_taken_over(party: Party) -> None:
    free, managed = _foreign(party, 3 * GIB), party.created(size=1)
    of_another_back_end, used = party.created(size=4), _foreign(party, 5 * GIB)
    party.volumes.allow_host(used, "h9")
    listed = party.driver.get_manageable_volumes([managed], *PAGE)
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
    sent = objects.ManageableVolumeList.from_primitives(party.context, listed)
    assert sent[1].extra_info == {"name": "made by hand"}


def test_listing_has_pages(party: Party) -> None:
    for size in (3, 1, 2):
        _foreign(party, size * GIB)
    listed = party.driver.get_manageable_volumes([], None, 2, 1, ["size"], ["desc"])
    assert [one["size"] for one in listed] == [2, 1]


def test_snapshot_is_taken_over(party: Party) -> None:
    disk = _foreign(party)
    name = str(uuid.uuid4())
    party.volumes.snapshot(disk, name)
    volume = _managed(party, disk)
    snapshot = party.snapshot(volume)
    reference = {"source-name": name}
    assert party.driver.manage_existing_snapshot_get_size(snapshot, reference) == 2
    party.driver.manage_existing_snapshot(snapshot, reference)
    assert party.volumes.get_snapshot(snapshot.id).record.volume == disk
    assert party.volumes.find_snapshot(name) is None
    party.driver.revert_to_snapshot(party.context, volume, snapshot)


def test_snapshot_of_another_volume_is_refused(party: Party) -> None:
    disk, name = _foreign(party), str(uuid.uuid4())
    party.volumes.snapshot(disk, name)
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="of volume"):
        party.driver.manage_existing_snapshot(
            party.snapshot(party.created()), {"source-name": name}
        )


def test_snapshot_that_is_not_there_is_refused(party: Party) -> None:
    with pytest.raises(cinder_exception.ManageExistingInvalidReference, match="no such snapshot"):
        party.driver.manage_existing_snapshot(
            party.snapshot(party.created()), {"source-name": str(uuid.uuid4())}
        )


def test_snapshot_that_was_let_go_stays(party: Party) -> None:
    snapshot = party.snapshot(party.created())
    party.driver.create_snapshot(snapshot)
    party.driver.unmanage_snapshot(snapshot)
    assert party.volumes.find_snapshot(snapshot.id) is not None


def test_listing_of_snapshots_says_what_may_be_taken_over(party: Party) -> None:
    volume, foreign = party.created(size=2), _foreign(party, 3 * GIB)
    known = party.snapshot(volume)
    party.driver.create_snapshot(known)
    free, homeless = str(uuid.UUID(int=5)), str(uuid.UUID(int=6))
    party.volumes.snapshot(volume.id, free)
    party.volumes.snapshot(foreign, homeless)
    listed = party.driver.get_manageable_snapshots([known], *PAGE)
    found = {one["reference"]["source-name"]: one for one in listed}
    assert found[known.id]["reason_not_safe"] == "already managed"
    assert found[free]["safe_to_manage"] is True
    assert found[free]["source_reference"] == {"source-name": volume.id}
    assert found[homeless]["reason_not_safe"] == "its volume is not managed"
    sent = objects.ManageableSnapshotList.from_primitives(party.context, listed)
    assert all(one.extra_info["created_at"] for one in sent)

"""Groups, and snapshots of all their volumes at one moment."""

import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils

from acstor import exception
from acstor.drivers.cinder import consistent_states as consistency
from testbed.fixtures.cinder_driver import H1, H2, DriverHarness

CONSISTENT = str(uuid.UUID(int=1))
PLAIN = str(uuid.UUID(int=2))


@pytest.fixture(autouse=True)
def group_types() -> Iterator[None]:
    """Two group types: one asks for consistent snapshots."""

    def specs(group_type_id: str, key: str) -> str | None:
        return "<is> True" if group_type_id == CONSISTENT else None

    with mock.patch.object(volume_utils.group_types, "get_group_type_specs", specs):
        yield


def group(group_type: str = CONSISTENT) -> Any:
    return objects.Group(id=str(uuid.uuid4()), group_type_id=group_type)


def group_snapshot(group_type: str = CONSISTENT) -> Any:
    return objects.GroupSnapshot(id=str(uuid.uuid4()), group_type_id=group_type)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("create_group", (group(PLAIN),)),
        ("delete_group", (group(PLAIN), [])),
        ("update_group", (group(PLAIN),)),
        ("create_group_from_src", (group(PLAIN), [])),
        ("create_group_snapshot", (group_snapshot(PLAIN), [])),
        ("delete_group_snapshot", (group_snapshot(PLAIN), [])),
    ],
)
def test_group_of_another_type_is_left_to_cinder(
    harness: DriverHarness, method: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(NotImplementedError):
        getattr(harness.driver, method)(harness.context, *arguments)


def test_group_is_made_and_changed_in_cinder_only(harness: DriverHarness) -> None:
    assert harness.driver.create_group(harness.context, group()) == {"status": "available"}
    changed = harness.driver.update_group(harness.context, group(), [harness.volume()], [])
    assert changed == (None, None, None)
    assert list(harness.volumes.list()) == []


def test_delete_group_deletes_what_it_can(harness: DriverHarness) -> None:
    free, used = harness.created(), harness.created()
    harness.attach(used, H1)
    update, updates = harness.driver.delete_group(harness.context, group(), [used, free])
    assert update == {"status": "error_deleting"}
    assert updates == [
        {"id": used.id, "status": "error_deleting"},
        {"id": free.id, "status": "deleted"},
    ]
    assert harness.volumes.find(free.id) is None
    harness.detach(used, H1)
    assert harness.driver.delete_group(harness.context, group(), [used])[0] == {"status": "deleted"}


def _used(harness: DriverHarness) -> list[Any]:
    """Return volumes on two hosts and one that nobody has open."""
    volumes = [harness.created() for _ in range(3)]
    harness.in_use(volumes[0], H1)
    harness.in_use(volumes[1], H2)
    return volumes


def test_group_snapshot_is_of_one_moment(harness: DriverHarness) -> None:
    volumes = _used(harness)
    harness.hosts.write(volumes[0].id, 2)
    harness.hosts.write(volumes[1].id, 3)
    held: list[set[str]] = []

    def watch(method: str, volume: str) -> None:
        if method == "volume_push":
            frozen = {one for one, opened in harness.hosts.open_volumes.items() if opened.is_frozen}
            held.append(frozen)

    harness.hosts.on_call = watch
    snapshots = [harness.snapshot(volume) for volume in volumes]
    of_group = group_snapshot()
    update, updates = harness.driver.create_group_snapshot(harness.context, of_group, snapshots)
    assert update == {"status": "available"}
    assert updates == [{"id": one.id, "status": "available"} for one in snapshots]
    assert held[2:] == [{volumes[0].id, volumes[1].id}] * 2
    assert not any(opened.is_frozen for opened in harness.hosts.open_volumes.values())
    records = [harness.volumes.get_snapshot(one.id).record for one in snapshots]
    assert [sum(map(len, record.logs)) for record in records] == [2, 3, 0]
    assert {record.group for record in records} == {of_group.id}


def test_group_snapshot_with_a_host_down_leaves_nothing_held_or_taken(
    harness: DriverHarness,
) -> None:
    volumes = _used(harness)

    def die(method: str, volume: str) -> None:
        if method == "volume_freeze" and volume == volumes[1].id:
            raise exception.UnavailableError("no agent listens on host h2", hint="look there")

    harness.hosts.on_call = die
    snapshots = [harness.snapshot(volume) for volume in volumes]
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="h2; look there"):
        harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    assert list(harness.volumes.list_snapshots()) == []
    assert not harness.hosts.open_volumes[volumes[0].id].is_frozen
    assert harness.hosts.methods().count("volume_thaw") == 2


def test_group_snapshot_that_takes_too_long_is_refused(harness: DriverHarness) -> None:
    volumes = _used(harness)
    now = iter([0.0, 100.0])
    with pytest.raises(exception.DeadlineError, match="longer than 20 s"):
        consistency.consistent_states(
            harness.back_end, [one.id for one in volumes], 20.0, 150.0, clock=lambda: next(now)
        )
    assert not any(opened.is_frozen for opened in harness.hosts.open_volumes.values())


def test_group_snapshots_that_share_a_volume_hold_it_each_for_itself(
    harness: DriverHarness,
) -> None:
    """The second group begins while the first holds the volume, and is noted after it."""
    volumes = _used(harness)
    shared = volumes[0].id
    first, second = [shared], [shared, volumes[1].id]
    held: list[bool] = []

    def overlap(method: str, volume: str) -> None:
        if method != "volume_push" or not harness.hosts.open_volumes[shared].is_frozen:
            return
        harness.hosts.on_call = lambda method, volume: None
        consistency.consistent_states(harness.back_end, second, 20.0, 150.0)
        held.append(harness.hosts.open_volumes[shared].is_frozen)

    harness.hosts.on_call = overlap
    consistency.consistent_states(harness.back_end, first, 20.0, 150.0)
    assert held == [True], "the thaw of the second is not that of the first"
    assert not any(opened.is_frozen for opened in harness.hosts.open_volumes.values())


def test_group_snapshot_whose_freeze_ended_early_is_refused(harness: DriverHarness) -> None:
    """The data plane of one host is restarted while the volumes of the group are held."""
    volumes = _used(harness)

    def restart(method: str, volume: str) -> None:
        opened = harness.hosts.open_volumes[volumes[1].id]
        if method == "volume_push" and opened.is_frozen:
            opened.holders.clear()

    harness.hosts.on_call = restart
    snapshots = [harness.snapshot(volume) for volume in volumes]
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="were not held"):
        harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    assert list(harness.volumes.list_snapshots()) == []


def test_group_snapshot_during_which_a_volume_is_opened_is_refused(harness: DriverHarness) -> None:
    volumes = _used(harness)
    harness.attach(volumes[2], H1)

    def open_it(method: str, volume: str) -> None:
        if method == "volume_freeze" and volumes[2].id not in harness.hosts.open_volumes:
            harness.hosts.open(volumes[2].id, "h1")

    harness.hosts.on_call = open_it
    snapshots = [harness.snapshot(volume) for volume in volumes]
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="opened or closed"):
        harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    assert list(harness.volumes.list_snapshots()) == []


def test_group_snapshot_that_fails_in_the_middle_leaves_nothing(harness: DriverHarness) -> None:
    volumes = _used(harness)
    snapshots = [harness.snapshot(volume) for volume in volumes]
    harness.volumes.snapshot(volumes[2].id, snapshots[2].id)  # the third is there already
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="exists already"):
        harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    assert [one.id for one in harness.volumes.list_snapshots()] == [snapshots[2].id]


def test_delete_group_snapshot_deletes_all(harness: DriverHarness) -> None:
    volumes = _used(harness)
    snapshots = [harness.snapshot(volume) for volume in volumes]
    harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    update, updates = harness.driver.delete_group_snapshot(
        harness.context, group_snapshot(), snapshots
    )
    assert update == {"status": "deleted"}
    assert [one["status"] for one in updates] == ["deleted"] * 3
    assert list(harness.volumes.list_snapshots()) == []


def test_group_from_group_snapshot(harness: DriverHarness) -> None:
    volumes = _used(harness)
    harness.hosts.write(volumes[0].id, 2)
    snapshots = [harness.snapshot(volume) for volume in volumes]
    harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    made = [harness.volume() for _ in volumes]
    update, updates = harness.driver.create_group_from_src(
        harness.context, group(), made, group_snapshot(), snapshots, None, None
    )
    assert update == {"status": "available"}
    assert [one["id"] for one in updates] == [one.id for one in made]
    # Nova would take a lock whose name Cinder does not set for them.
    assert not any(one["shared_targets"] for one in updates)
    assert [sum(map(len, harness.record(one).logs)) for one in made] == [2, 0, 0]


def test_group_from_group_is_of_one_moment(harness: DriverHarness) -> None:
    volumes = _used(harness)
    harness.hosts.write(volumes[1].id, 3)
    made = [harness.volume() for _ in volumes]
    harness.driver.create_group_from_src(
        harness.context, group(), made, None, None, group(), volumes
    )
    assert [sum(map(len, harness.record(one).logs)) for one in made] == [0, 3, 0]
    assert harness.hosts.methods().count("volume_freeze") == 2


def test_group_from_source_that_fails_leaves_no_volume(harness: DriverHarness) -> None:
    volumes = _used(harness)
    snapshots = [harness.snapshot(volume) for volume in volumes]
    harness.driver.create_group_snapshot(harness.context, group_snapshot(), snapshots)
    harness.driver.delete_snapshot(snapshots[2])
    made = [harness.volume() for _ in volumes]
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not exist"):
        harness.driver.create_group_from_src(
            harness.context, group(), made, group_snapshot(), snapshots
        )
    assert all(harness.volumes.find(one.id) is None for one in made)

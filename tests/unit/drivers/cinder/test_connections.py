"""Attaching and detaching: who may open a volume."""

import threading
import uuid
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from oslo_serialization import jsonutils

from acstor import exception
from testbed.fixtures.cinder_driver import GIB, H1, H2, DriverHarness

H3 = {"host": "h3", "acstor_host": "h3"}


def test_host_without_data_plane_is_refused(harness: DriverHarness) -> None:
    with pytest.raises(cinder_exception.InvalidConnectorException, match="acstor_host"):
        harness.driver.validate_connector({"host": "h1"})


def test_attachment_lets_the_host_open_the_volume(harness: DriverHarness) -> None:
    volume = harness.created(size=2)
    connection = harness.attach(volume, H1)
    assert connection["driver_volume_type"] == "acstor"
    assert connection["data"] == {
        "volume_id": volume.id,
        "name_id": volume.id,
        "size": 2 * GIB,
        "role": "owner",
        "discard": True,
        "access_mode": "rw",
        "qos_specs": None,
        "encrypted": False,
        "admin_socket": None,
        "limits": {"iops": 0, "bytes_per_s": 0},
    }
    assert jsonutils.loads(jsonutils.dumps(connection)) == connection
    assert harness.record(volume).hosts == ("h1",)


def test_connection_tells_limits_and_the_name_of_the_record(harness: DriverHarness) -> None:
    name = str(uuid.uuid4())
    volume = harness.created(_name_id=name, volume_type=harness.volume_type({"acstor:iops": "500"}))
    data = harness.attach(volume, H1)["data"]
    assert (data["volume_id"], data["name_id"]) == (volume.id, name)
    assert data["limits"] == {"iops": 500, "bytes_per_s": 0}


def test_attachment_of_volume_that_is_not_there_says_so(harness: DriverHarness) -> None:
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not exist"):
        harness.attach(harness.volume(), H1)


def test_detachment_lets_the_host_open_it_no_more(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.attach(volume, H1)
    assert harness.detach(volume, H1) is False
    assert harness.record(volume).hosts == ()


def test_detachment_of_volume_that_is_not_there_is_no_error(harness: DriverHarness) -> None:
    assert harness.driver.terminate_connection(harness.volume(), H1) is False


def test_second_attachment_on_another_host_is_refused(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.attach(volume, H1)
    with pytest.raises(
        cinder_exception.VolumeBackendAPIException,
        match="is attached on host h1 and cannot be attached on h2 too; detach it there first",
    ):
        harness.attach(volume, H2)
    assert harness.record(volume).hosts == ("h1",)


def _race(harness: DriverHarness, volume: Any) -> list[Any]:
    """Attach on two hosts at once; return the name of each host that got it, or the error."""
    outcomes: list[Any] = []
    gate = threading.Barrier(2)

    def attach(connector: dict[str, Any]) -> None:
        gate.wait(10)
        try:
            harness.attach(volume, connector)
            outcomes.append(connector["host"])
        except cinder_exception.VolumeBackendAPIException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attach, args=(connector,)) for connector in (H1, H2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def test_two_hosts_that_attach_at_once_get_it_once(harness: DriverHarness) -> None:
    for _ in range(5):
        volume = harness.created()
        outcomes = _race(harness, volume)
        winners = [one for one in outcomes if isinstance(one, str)]
        assert len(outcomes) == 2
        assert len(winners) == 1
        assert harness.record(volume).hosts == tuple(winners)


def test_attachment_again_on_the_same_host_is_the_same(harness: DriverHarness) -> None:
    volume = harness.created()
    first = harness.attach(volume, H1)
    assert harness.driver.initialize_connection(volume, H1) == first


def test_live_migration_gives_the_destination_a_standby(harness: DriverHarness) -> None:
    volume, instance = harness.created(), str(uuid.uuid4())
    harness.attach(volume, H1, instance)
    harness.hosts.open(volume.id, "h1")
    data = harness.attach(volume, H2, instance)["data"]
    assert data["role"] == "standby"
    assert harness.record(volume).hosts == ("h1", "h2")
    assert harness.record(volume).is_standby_allowed
    assert harness.record(volume).owner == "h1"


def test_live_migration_ends_with_the_destination_alone(harness: DriverHarness) -> None:
    volume, instance = harness.created(), str(uuid.uuid4())
    harness.attach(volume, H1, instance)
    harness.hosts.open(volume.id, "h1")
    harness.attach(volume, H2, instance)
    harness.hosts.release(volume.id)
    harness.hosts.open(volume.id, "h2")
    harness.detach(volume, H1)
    record = harness.record(volume)
    assert (record.hosts, record.owner, record.is_standby_allowed) == (("h2",), "h2", False)
    assert harness.driver.initialize_connection(volume, H2)["data"]["role"] == "owner"


def test_live_migration_that_is_rolled_back_leaves_the_source(harness: DriverHarness) -> None:
    volume, instance = harness.created(), str(uuid.uuid4())
    harness.attach(volume, H1, instance)
    harness.hosts.open(volume.id, "h1")
    harness.attach(volume, H2, instance)
    harness.detach(volume, H2)
    record = harness.record(volume)
    assert (record.hosts, record.owner, record.is_standby_allowed) == (("h1",), "h1", False)


def test_third_host_during_live_migration_is_refused(harness: DriverHarness) -> None:
    volume, instance = harness.created(), str(uuid.uuid4())
    harness.attach(volume, H1, instance)
    harness.attach(volume, H2, instance)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="cannot be attached"):
        harness.attach(volume, H3, instance)


def test_another_instance_during_live_migration_is_refused(harness: DriverHarness) -> None:
    volume = harness.created(multiattach=True)
    harness.attach(volume, H1)
    harness.attach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="of one host only"):
        harness.attach(volume, H2)


def test_multiattach_on_one_host_is_shared_until_the_last_goes(harness: DriverHarness) -> None:
    volume = harness.created(multiattach=True)
    harness.attach(volume, H1)
    assert harness.attach(volume, H1)["data"]["role"] == "owner"
    assert harness.detach(volume, H1) is True
    assert harness.record(volume).hosts == ("h1",)
    assert harness.detach(volume, H1) is False
    assert harness.record(volume).hosts == ()


def test_forced_detachment_without_connector_forgets_all_hosts(harness: DriverHarness) -> None:
    volume, instance = harness.created(), str(uuid.uuid4())
    harness.attach(volume, H1, instance)
    harness.attach(volume, H2, instance)
    harness.driver.terminate_connection(volume, None, force=True)
    record = harness.record(volume)
    assert (record.hosts, record.is_standby_allowed) == ((), False)


def test_evacuated_volume_can_be_attached_elsewhere(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.down.add("h1")
    harness.detach(volume, H1)
    harness.attach(volume, H2)
    harness.hosts.open(volume.id, "h2")
    assert harness.record(volume).owner == "h2"


def test_start_forgets_hosts_of_a_volume_that_nobody_has(harness: DriverHarness) -> None:
    volume = harness.created(status="available")
    harness.driver.initialize_connection(volume, H1)  # and then the process was killed
    harness.driver.update_provider_info([volume], [])
    assert harness.record(volume).hosts == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "in-use"},
        {"status": "backing-up"},
        {"status": "available", "migration_status": "migrating"},
    ],
)
def test_start_keeps_hosts_of_a_volume_that_is_being_used(
    harness: DriverHarness, fields: dict[str, str]
) -> None:
    volume = harness.created(**fields)
    harness.driver.initialize_connection(volume, H1)
    harness.driver.update_provider_info([volume], [])
    assert harness.record(volume).hosts == ("h1",)


def test_start_goes_on_when_the_origin_is_away(harness: DriverHarness) -> None:
    volume = harness.created(status="available")
    down = exception.UnavailableError("the origin is away", hint="mount it")
    with mock.patch.object(harness.back_end.repository.origin, "get_ref", side_effect=down):
        assert harness.driver.update_provider_info([volume], []) == (None, None)


def test_start_keeps_hosts_of_attached_volume(harness: DriverHarness) -> None:
    volume = harness.created(status="available")
    harness.attach(volume, H1)
    harness.driver.update_provider_info([volume], [])
    assert harness.record(volume).hosts == ("h1",)


def test_exports_are_nothing_to_make_or_remove(harness: DriverHarness) -> None:
    volume = harness.created()
    before = harness.record(volume)
    harness.driver.create_export(harness.context, volume, H1)
    harness.driver.remove_export(harness.context, volume)
    harness.driver.ensure_export(harness.context, volume)
    assert harness.record(volume) == before

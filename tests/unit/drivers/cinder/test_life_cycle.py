"""Volumes come, grow and go."""

import uuid
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from cinder import objects
from cinder.context import RequestContext

from acstor.repository.volumes.durability import DurabilityClass
from testbed.fixtures.cinder_driver import GIB, H1, H2, DriverHarness


def test_create_volume_records_size_durability_and_whose_it_is(harness: DriverHarness) -> None:
    volume = harness.created(
        size=3, volume_type=harness.volume_type({"acstor:durability": "write-back"})
    )
    record = harness.record(volume)
    assert record.size_bytes == 3 * GIB
    assert record.manifest is None
    assert record.durability.default is DurabilityClass.WRITE_BACK
    assert record.metadata["cinder_volume"] == volume.id
    assert record.name == "a volume"
    assert record.hosts == ()


def test_create_volume_with_bad_extra_spec_says_which(harness: DriverHarness) -> None:
    volume = harness.volume(volume_type=harness.volume_type({"acstor:durability": "always"}))
    with pytest.raises(cinder_exception.VolumeDriverException, match="'always' is no durability"):
        harness.driver.create_volume(volume)
    assert harness.volumes.find(volume.id) is None


def test_create_volume_keeps_limits_of_type_and_back_end_qos(harness: DriverHarness) -> None:
    qos = {"consumer": "back-end", "specs": {"iops": "700"}}
    specs = {"acstor:iops": "500", "acstor:bytes_per_s": "1000000"}
    volume = harness.created(volume_type=harness.volume_type(specs, qos))
    metadata = harness.record(volume).metadata
    assert metadata["iops"] == "700"
    assert metadata["bytes_per_s"] == "1000000"


def test_qos_of_a_type_is_read_whoever_makes_the_volume(harness: DriverHarness) -> None:
    user = RequestContext("user", "project", is_admin=False)
    specs = harness.volume_type(qos={"consumer": "back-end", "specs": {"iops": "700"}}).qos_specs

    def read(context: Any, specs_id: str) -> Any:
        assert context.is_admin, "Cinder lets administrators read QoS specs only"
        assert specs_id == specs.id
        return specs

    volume_type = objects.VolumeType(
        user, id=str(uuid.uuid4()), extra_specs={}, qos_specs_id=specs.id
    )
    with mock.patch.object(objects.QualityOfServiceSpecs, "get_by_id", read):
        volume = harness.created(volume_type=volume_type)
    assert harness.record(volume).metadata["iops"] == "700"
    assert not user.is_admin


def test_create_volume_ignores_front_end_qos(harness: DriverHarness) -> None:
    qos = {"consumer": "front-end", "specs": {"iops": "700"}}
    volume = harness.created(volume_type=harness.volume_type({}, qos))
    assert "iops" not in harness.record(volume).metadata


def test_create_volume_again_replaces_what_an_attempt_left(harness: DriverHarness) -> None:
    volume = harness.created(size=1)
    volume.size = 2
    harness.driver.create_volume(volume)
    assert harness.record(volume).size_bytes == 2 * GIB


def test_create_volume_does_not_replace_one_that_was_used(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.release(volume.id)
    harness.detach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="exists already"):
        harness.driver.create_volume(volume)


def test_name_that_is_not_printable_is_left_out(harness: DriverHarness) -> None:
    assert harness.record(harness.created(display_name="a\nb")).name == ""
    assert harness.record(harness.created(display_name=None)).name == ""
    assert len(harness.record(harness.created(display_name="x" * 255)).name) == 255


def test_delete_volume_removes_the_record(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.driver.delete_volume(volume)
    assert harness.volumes.find(volume.id) is None


def test_delete_volume_that_is_not_there_is_no_error(harness: DriverHarness) -> None:
    harness.driver.delete_volume(harness.volume())


def test_delete_volume_in_use_is_refused(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    with pytest.raises(cinder_exception.VolumeIsBusy):
        harness.driver.delete_volume(volume)
    assert harness.volumes.find(volume.id) is not None


def test_delete_volume_whose_owner_was_lost_succeeds(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.down.add("h1")
    harness.detach(volume, H1)
    harness.driver.delete_volume(volume)
    assert harness.volumes.find(volume.id) is None


def test_clone_of_available_volume_shares_everything(harness: DriverHarness) -> None:
    source = harness.created()
    harness.in_use(source)
    harness.hosts.write(source.id, 3)
    harness.hosts.release(source.id)
    harness.detach(source, H1)
    clone = harness.volume(size=2)
    update = harness.driver.create_cloned_volume(clone, source)
    assert update == {"shared_targets": False}  # for groups that are made volume by volume
    assert harness.record(clone).logs == harness.record(source).logs
    assert harness.record(clone).size_bytes == 2 * GIB
    assert "volume_push" not in harness.hosts.methods()


def test_clone_of_volume_in_use_has_what_its_guest_wrote(harness: DriverHarness) -> None:
    source = harness.created()
    harness.in_use(source)
    harness.hosts.write(source.id, 3)
    clone = harness.volume()
    harness.driver.create_cloned_volume(clone, source)
    assert sum(map(len, harness.record(clone).logs)) == 3
    assert harness.record(source).owner == "h1"


def test_clone_is_never_smaller_than_its_source(harness: DriverHarness) -> None:
    source = harness.created(size=3)
    clone = harness.volume(size=1)
    harness.driver.create_cloned_volume(clone, source)
    assert harness.record(clone).size_bytes == 3 * GIB


def test_clone_with_agent_down_says_which_host_and_what_to_do(harness: DriverHarness) -> None:
    source = harness.created()
    harness.in_use(source)
    harness.hosts.down.add("h1")
    with pytest.raises(
        cinder_exception.VolumeBackendAPIException, match=r"host h1.*check acstor-agent"
    ):
        harness.driver.create_cloned_volume(harness.volume(), source)


def test_clone_of_volume_that_its_owner_does_not_have_open_says_so(harness: DriverHarness) -> None:
    source = harness.created()
    harness.in_use(source)
    harness.hosts.open_volumes.clear()
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not have it open"):
        harness.driver.create_cloned_volume(harness.volume(), source)


def test_clone_goes_on_when_the_volume_is_closed_meanwhile(harness: DriverHarness) -> None:
    source = harness.created()
    harness.in_use(source)
    harness.hosts.write(source.id, 2)

    def close(method: str, volume: str) -> None:
        if volume in harness.hosts.open_volumes:
            harness.hosts.release(volume)

    harness.hosts.on_call = close
    clone = harness.volume()
    harness.driver.create_cloned_volume(clone, source)
    assert harness.record(clone).logs == harness.record(source).logs


def test_extend_of_available_volume_asks_no_host(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.driver.extend_volume(volume, 5)
    assert harness.record(volume).size_bytes == 5 * GIB
    assert harness.hosts.calls == []


def test_extend_of_volume_in_use_is_shown_by_its_host(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.driver.extend_volume(volume, 5)
    assert harness.record(volume).size_bytes == 5 * GIB
    assert harness.hosts.open_volumes[volume.id].size_bytes == 5 * GIB


def test_extend_with_agent_down_fails_and_succeeds_later(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.in_use(volume)
    harness.hosts.down.add("h1")
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="h1"):
        harness.driver.extend_volume(volume, 5)
    harness.hosts.down.clear()
    harness.driver.extend_volume(volume, 5)
    assert harness.hosts.open_volumes[volume.id].size_bytes == 5 * GIB


def test_extend_never_shrinks(harness: DriverHarness) -> None:
    volume = harness.created(size=5)
    with pytest.raises(cinder_exception.VolumeDriverException, match="cannot shrink"):
        harness.driver.extend_volume(volume, 1)


def test_volumes_are_not_larger_than_their_manifests_describe(harness: DriverHarness) -> None:
    limit = 64 << 10
    largest = harness.created(size=limit)
    error = f"version 2 describes in chunks of 65536 bytes, {limit * GIB} at most"
    with pytest.raises(cinder_exception.VolumeDriverException, match=error):
        harness.driver.extend_volume(largest, limit + 1)
    assert harness.record(largest).size_bytes == limit * GIB
    larger = harness.volume(size=limit + 1)
    with pytest.raises(cinder_exception.VolumeDriverException, match=error):
        harness.driver.create_volume(larger)
    with pytest.raises(cinder_exception.VolumeDriverException, match=error):
        harness.driver.create_cloned_volume(larger, largest)
    assert harness.volumes.find(larger.id) is None


def test_extend_of_volume_with_another_name_changes_that_record(harness: DriverHarness) -> None:
    volume = harness.created(_name_id=str(uuid.uuid4()))
    harness.driver.extend_volume(volume, 2)
    assert harness.volumes.get(volume.name_id).record.size_bytes == 2 * GIB
    assert harness.volumes.find(volume.id) is None


def test_volume_that_another_host_took_over_can_be_cloned(harness: DriverHarness) -> None:
    source = harness.created()
    harness.in_use(source)
    harness.hosts.write(source.id, 2)
    harness.hosts.down.add("h1")
    harness.detach(source, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="evacuate"):
        harness.driver.create_cloned_volume(harness.volume(), source)
    harness.attach(source, H2)
    harness.hosts.open(source.id, "h2")
    clone = harness.volume()
    harness.driver.create_cloned_volume(clone, source)
    assert harness.record(clone).size_bytes == GIB

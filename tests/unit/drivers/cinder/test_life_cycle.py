"""Volumes come, grow and go."""

import uuid
from typing import Any
from unittest import mock

import pytest
from cinder import exception as cinder_exception
from cinder import objects
from cinder.context import RequestContext

from acstor.repository.volumes.durability import DurabilityClass
from testbed.fixtures.cinder_party import GIB, H1, H2, Party


def test_create_volume_records_size_durability_and_whose_it_is(party: Party) -> None:
    volume = party.created(
        size=3, volume_type=party.volume_type({"acstor:durability": "write-back"})
    )
    record = party.record(volume)
    assert record.size_bytes == 3 * GIB
    assert record.manifest is None
    assert record.durability.default is DurabilityClass.WRITE_BACK
    assert record.metadata["cinder_volume"] == volume.id
    assert record.name == "a volume"
    assert record.hosts == ()


def test_create_volume_with_bad_extra_spec_says_which(party: Party) -> None:
    volume = party.volume(volume_type=party.volume_type({"acstor:durability": "always"}))
    with pytest.raises(cinder_exception.VolumeDriverException, match="'always' is no durability"):
        party.driver.create_volume(volume)
    assert party.volumes.find(volume.id) is None


def test_create_volume_keeps_limits_of_type_and_back_end_qos(party: Party) -> None:
    qos = {"consumer": "back-end", "specs": {"iops": "700"}}
    specs = {"acstor:iops": "500", "acstor:bytes_per_s": "1000000"}
    volume = party.created(volume_type=party.volume_type(specs, qos))
    metadata = party.record(volume).metadata
    assert metadata["iops"] == "700"
    assert metadata["bytes_per_s"] == "1000000"


def test_qos_of_a_type_is_read_whoever_makes_the_volume(party: Party) -> None:
    user = RequestContext("user", "project", is_admin=False)
    specs = party.volume_type(qos={"consumer": "back-end", "specs": {"iops": "700"}}).qos_specs

    def read(context: Any, specs_id: str) -> Any:
        assert context.is_admin, "Cinder lets administrators read QoS specs only"
        assert specs_id == specs.id
        return specs

    volume_type = objects.VolumeType(
        user, id=str(uuid.uuid4()), extra_specs={}, qos_specs_id=specs.id
    )
    with mock.patch.object(objects.QualityOfServiceSpecs, "get_by_id", read):
        volume = party.created(volume_type=volume_type)
    assert party.record(volume).metadata["iops"] == "700"
    assert not user.is_admin


def test_create_volume_ignores_front_end_qos(party: Party) -> None:
    qos = {"consumer": "front-end", "specs": {"iops": "700"}}
    volume = party.created(volume_type=party.volume_type({}, qos))
    assert "iops" not in party.record(volume).metadata


def test_create_volume_again_replaces_what_an_attempt_left(party: Party) -> None:
    volume = party.created(size=1)
    volume.size = 2
    party.driver.create_volume(volume)
    assert party.record(volume).size_bytes == 2 * GIB


def test_create_volume_does_not_replace_one_that_was_used(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.release(volume.id)
    party.detach(volume, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="exists already"):
        party.driver.create_volume(volume)


def test_name_that_is_not_printable_is_left_out(party: Party) -> None:
    assert party.record(party.created(display_name="a\nb")).name == ""
    assert party.record(party.created(display_name=None)).name == ""
    assert len(party.record(party.created(display_name="x" * 255)).name) == 255


def test_delete_volume_removes_the_record(party: Party) -> None:
    volume = party.created()
    party.driver.delete_volume(volume)
    assert party.volumes.find(volume.id) is None


def test_delete_volume_that_is_not_there_is_no_error(party: Party) -> None:
    party.driver.delete_volume(party.volume())


def test_delete_volume_in_use_is_refused(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    with pytest.raises(cinder_exception.VolumeIsBusy):
        party.driver.delete_volume(volume)
    assert party.volumes.find(volume.id) is not None


def test_delete_volume_whose_owner_was_lost_succeeds(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.down.add("h1")
    party.detach(volume, H1)
    party.driver.delete_volume(volume)
    assert party.volumes.find(volume.id) is None


def test_clone_of_available_volume_shares_everything(party: Party) -> None:
    source = party.created()
    party.in_use(source)
    party.hosts.write(source.id, 3)
    party.hosts.release(source.id)
    party.detach(source, H1)
    clone = party.volume(size=2)
    update = party.driver.create_cloned_volume(clone, source)
    assert update == {"shared_targets": False}  # for groups that are made volume by volume
    assert party.record(clone).logs == party.record(source).logs
    assert party.record(clone).size_bytes == 2 * GIB
    assert "volume_push" not in party.hosts.methods()


def test_clone_of_volume_in_use_has_what_its_guest_wrote(party: Party) -> None:
    source = party.created()
    party.in_use(source)
    party.hosts.write(source.id, 3)
    clone = party.volume()
    party.driver.create_cloned_volume(clone, source)
    assert sum(map(len, party.record(clone).logs)) == 3
    assert party.record(source).owner == "h1"


def test_clone_is_never_smaller_than_its_source(party: Party) -> None:
    source = party.created(size=3)
    clone = party.volume(size=1)
    party.driver.create_cloned_volume(clone, source)
    assert party.record(clone).size_bytes == 3 * GIB


def test_clone_with_agent_down_says_which_host_and_what_to_do(party: Party) -> None:
    source = party.created()
    party.in_use(source)
    party.hosts.down.add("h1")
    with pytest.raises(
        cinder_exception.VolumeBackendAPIException, match=r"host h1.*check acstor-agent"
    ):
        party.driver.create_cloned_volume(party.volume(), source)


def test_clone_of_volume_that_its_owner_does_not_have_open_says_so(party: Party) -> None:
    source = party.created()
    party.in_use(source)
    party.hosts.open_volumes.clear()
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="does not have it open"):
        party.driver.create_cloned_volume(party.volume(), source)


def test_clone_goes_on_when_the_volume_is_closed_meanwhile(party: Party) -> None:
    source = party.created()
    party.in_use(source)
    party.hosts.write(source.id, 2)

    def close(method: str, volume: str) -> None:
        if volume in party.hosts.open_volumes:
            party.hosts.release(volume)

    party.hosts.on_call = close
    clone = party.volume()
    party.driver.create_cloned_volume(clone, source)
    assert party.record(clone).logs == party.record(source).logs


def test_extend_of_available_volume_asks_no_host(party: Party) -> None:
    volume = party.created()
    party.driver.extend_volume(volume, 5)
    assert party.record(volume).size_bytes == 5 * GIB
    assert party.hosts.calls == []


def test_extend_of_volume_in_use_is_shown_by_its_host(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.driver.extend_volume(volume, 5)
    assert party.record(volume).size_bytes == 5 * GIB
    assert party.hosts.open_volumes[volume.id].size_bytes == 5 * GIB


def test_extend_with_agent_down_fails_and_succeeds_later(party: Party) -> None:
    volume = party.created()
    party.in_use(volume)
    party.hosts.down.add("h1")
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="h1"):
        party.driver.extend_volume(volume, 5)
    party.hosts.down.clear()
    party.driver.extend_volume(volume, 5)
    assert party.hosts.open_volumes[volume.id].size_bytes == 5 * GIB


def test_extend_never_shrinks(party: Party) -> None:
    volume = party.created(size=5)
    with pytest.raises(cinder_exception.VolumeDriverException, match="cannot shrink"):
        party.driver.extend_volume(volume, 1)


def test_extend_of_volume_with_another_name_changes_that_record(party: Party) -> None:
    volume = party.created(_name_id=str(uuid.uuid4()))
    party.driver.extend_volume(volume, 2)
    assert party.volumes.get(volume.name_id).record.size_bytes == 2 * GIB
    assert party.volumes.find(volume.id) is None


def test_volume_that_another_host_took_over_can_be_cloned(party: Party) -> None:
    source = party.created()
    party.in_use(source)
    party.hosts.write(source.id, 2)
    party.hosts.down.add("h1")
    party.detach(source, H1)
    with pytest.raises(cinder_exception.VolumeBackendAPIException, match="evacuate"):
        party.driver.create_cloned_volume(party.volume(), source)
    party.attach(source, H2)
    party.hosts.open(source.id, "h2")
    clone = party.volume()
    party.driver.create_cloned_volume(clone, source)
    assert party.record(clone).size_bytes == GIB

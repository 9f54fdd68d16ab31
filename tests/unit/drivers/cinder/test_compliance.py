"""Demands of Cinder on a driver, and assumptions of the driver about Cinder.

When a test here fails after an upgrade of Cinder, its docstring says what to look at.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from cinder import exception as cinder_exception
from cinder import interface, objects
from cinder.image import image_utils
from cinder.interface import (
    util,
    volume_driver,
    volume_group_driver,
    volume_manageable_driver,
    volume_snapshot_revert,
    volume_snapshotmanagement_driver,
)
from cinder.objects import fields
from cinder.volume import driver as cinder_driver
from cinder.volume import volume_utils

from acstor.drivers.cinder.driver import AcstorVolumeDriver
from acstor.drivers.cinder.locks import one_at_a_time
from testbed.fixtures.cinder_driver import DriverHarness

INTERFACES = [
    volume_driver.VolumeDriverCore,
    volume_group_driver.VolumeGroupDriver,
    volume_manageable_driver.VolumeListManageableDriver,
    volume_snapshot_revert.VolumeSnapshotRevertDriver,
    volume_snapshotmanagement_driver.VolumeSnapshotManagementDriver,
]

OVERRIDDEN = """
create_volume delete_volume create_snapshot delete_snapshot create_volume_from_snapshot
create_cloned_volume extend_volume clone_image copy_image_to_volume
copy_image_to_encrypted_volume copy_volume_to_image initialize_connection terminate_connection
validate_connector create_export remove_export ensure_export revert_to_snapshot
snapshot_revert_use_temp_snapshot retype migrate_volume update_migrated_volume manage_existing
manage_existing_get_size unmanage get_manageable_volumes manage_existing_snapshot
manage_existing_snapshot_get_size unmanage_snapshot get_manageable_snapshots create_group
delete_group update_group create_group_from_src create_group_snapshot delete_group_snapshot
update_provider_info backup_use_temp_snapshot before_volume_copy do_setup check_for_setup_error
_update_volume_stats _init_vendor_properties get_driver_options clean_volume_file_locks
"""
"""Methods that must not be what Cinder's base class does when a driver cannot."""


def _methods() -> Iterator[Any]:
    for wanted in INTERFACES:
        for name, method in inspect.getmembers(wanted, inspect.isfunction):
            if not name.startswith("_") or name == "_init_vendor_properties":
                yield pytest.param(method, id=f"{wanted.__name__}.{name}")


@pytest.mark.parametrize("wanted", INTERFACES)
def test_driver_is_what_cinder_calls_compliant(wanted: type) -> None:
    """Cinder's own check; in Python 3 it looks at class methods only."""
    assert issubclass(AcstorVolumeDriver, wanted)


def test_interfaces_have_the_methods_that_are_compared_below() -> None:
    assert len(list(_methods())) > 35


@pytest.mark.parametrize("method", list(_methods()))
def test_driver_has_the_method_with_every_parameter(method: Any) -> None:
    """Every parameter of Cinder's interface is taken, at its place or by its name."""
    own = getattr(AcstorVolumeDriver, method.__name__)
    if isinstance(own, property):
        return
    assert callable(own)
    parameters = inspect.signature(own).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    wanted = inspect.signature(method).parameters.values()
    required = [one.name for one in wanted if one.default is inspect.Parameter.empty]
    # Cinder calls with positions; the first names its interface gives must come in that order,
    # by whatever name (its own drivers say "ctxt" and "context").
    positional = [
        one
        for one in parameters.values()
        if one.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    ]
    assert len(positional) >= len(required)
    for one in wanted:
        if one.default is not inspect.Parameter.empty:
            assert one.name in parameters or takes_any
    own_required = [one.name for one in positional if one.default is inspect.Parameter.empty]
    assert len(own_required) <= len(list(wanted))


def test_driver_overrides_what_it_claims_to_do() -> None:
    for name in OVERRIDDEN.split():
        owner = next(cls for cls in AcstorVolumeDriver.__mro__ if name in vars(cls))
        assert owner.__module__.startswith("acstor."), name


def test_driver_is_registered_and_described() -> None:
    assert AcstorVolumeDriver in interface._volume_register
    described = util.DriverInfo(AcstorVolumeDriver)
    assert described.version == "1.0.0"
    assert described.ci_wiki_name
    assert described.supported is True
    assert {option.name for option in described.driver_options} >= {
        "acstor_origin_url",
        "acstor_conf",
        "reserved_percentage",
    }
    assert AcstorVolumeDriver.SUPPORTS_ACTIVE_ACTIVE is True
    assert not AcstorVolumeDriver.supports_replication_feature("v2.1")


def test_nothing_is_kept_in_the_driver_between_calls(harness: DriverHarness) -> None:
    """Active-active: another service of the cluster sees the same."""
    volume = harness.volume()
    before = set(vars(harness.driver))
    harness.driver.create_volume(volume)
    harness.attach(volume, {"host": "h1", "acstor_host": "h1"})
    assert set(vars(harness.driver)) == before


def test_base_driver_has_what_the_driver_uses() -> None:
    """BaseVD's private methods that mixins call."""
    for name in (
        "_set_property",
        "_get_oslo_driver_opts",
        "get_filter_function",
        "get_goodness_function",
        "get_volume_stats",
        "_create_temp_cloned_volume",
    ):
        assert callable(getattr(cinder_driver.BaseVD, name)), name
    assert "execute" in inspect.signature(cinder_driver.BaseVD.__init__).parameters


def test_functions_of_cinder_take_what_they_are_given() -> None:
    """Functions of image_utils, volume_utils and objects that are called with these arguments."""
    inspect.signature(image_utils.fetch_to_raw).bind(
        "context", "service", "id", "path", "1M", size=1, disable_sparse=False
    )
    inspect.signature(image_utils.convert_image).bind(
        "a", "b", "luks", src_format="raw", cipher_spec={}, passphrase_file="c"
    )
    inspect.signature(volume_utils.upload_volume).bind(
        "context", "service", {}, None, "volume", volume_fd="file"
    )
    inspect.signature(volume_utils.brick_get_connector).bind("acstor")
    inspect.signature(volume_utils.brick_get_connector_properties).bind()
    inspect.signature(volume_utils.check_encryption_provider).bind("volume", "context")
    inspect.signature(volume_utils.paginate_entries_list).bind([], None, 1, 0, [], [])
    inspect.signature(objects.VolumeAttachmentList.get_all_by_volume_id).bind("context", "id")
    assert set(image_utils.decode_cipher("aes-xts-plain64", 256)) == {
        "cipher_alg",
        "cipher_mode",
        "ivgen_alg",
    }


def test_locks_of_cinder_name_parameters_in_braces(cinder_settings: object) -> None:
    """coordination.synchronized formats lock names with the method's parameters."""
    ran = []

    class Thing:
        name_id = "x"

        @one_at_a_time("{volume.name_id}")
        def act(self, volume: Any) -> None:
            ran.append(volume.name_id)

    Thing().act(Thing())
    assert ran == ["x"]


def test_volumes_of_cinder_have_the_fields_that_are_read(harness: DriverHarness) -> None:
    """Fields of Cinder's objects; ``name_id`` is ``_name_id`` or the id."""
    volume = harness.volume()
    assert volume.name_id == volume.id
    volume._name_id = "00000000-0000-0000-0000-000000000001"
    assert volume.name_id == volume._name_id
    assert {"multiattach", "encryption_key_id", "migration_status", "display_name"} <= set(
        objects.Volume.fields
    )
    assert {"instance_uuid", "connector", "attach_status"} <= set(objects.VolumeAttachment.fields)
    assert {"consumer", "specs"} <= set(objects.QualityOfServiceSpecs.fields)


def test_exceptions_of_cinder_have_the_arguments_that_are_given() -> None:
    """Exceptions with their text in ``data`` or ``message``."""
    assert "why" in str(cinder_exception.VolumeBackendAPIException(data="why"))
    assert "why" in str(cinder_exception.VolumeDriverException(message="why"))
    assert "why" in str(
        cinder_exception.ManageExistingInvalidReference(existing_ref="x", reason="why")
    )
    assert "acstor_host" in str(cinder_exception.InvalidConnectorException(missing="acstor_host"))
    assert "why" in str(cinder_exception.ImageUnacceptable(image_id="x", reason="why"))
    assert fields.GroupStatus.AVAILABLE == "available"
    assert fields.SnapshotStatus.ERROR_DELETING == "error_deleting"

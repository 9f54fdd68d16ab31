"""Base class of the driver's features, and readers of the properties of Cinder's volumes."""

from typing import Any

from acstor import exception
from acstor.drivers.cinder import limits
from acstor.drivers.cinder.back_end import BackEnd
from acstor.drivers.cinder.limits import Limits
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.volumes.durability import Durability

GIB = 1 << 30
CINDER_ID = "cinder_volume"
"""Key in the metadata of a volume's record: the id under which Cinder knows it; absent when it
does not."""

NO_SHARED_TARGET = {"shared_targets": False}
"""Goes into Cinder's record of volumes that it takes over or makes with a group. Cinder forgets it
there, and Nova, where iSCSI scans by itself, would take a lock whose name nobody has set."""


class Feature:
    """Base of the parts of the driver."""

    configuration: Any
    host: str
    _back_end: BackEnd | None = None

    @property
    def back_end(self) -> BackEnd:
        """The repository.

        :raises UnavailableError: before :meth:`do_setup` succeeded.
        """
        if self._back_end is None:
            raise exception.UnavailableError(
                "the driver is not set up",
                hint="see the log of cinder-volume at its start, correct what it says, restart it",
            )
        return self._back_end

    def dedup_scope_of(self, volume: Any) -> str | None:
        """Return the scope of the names of chunks that are written to a volume."""
        scope = self.back_end.settings.dedup_scope
        if scope is DedupScope.CLOUD:
            return None
        return scope.of_project(str(volume.project_id or ""), disk_of(volume))


def disk_of(volume: Any) -> str:
    """Return the name of a volume's record.

    It is the id of the volume, but for volumes that Cinder migrated generically or took over.
    """
    return str(volume.name_id)


def extra_specs_of(volume_type: Any) -> dict[str, str]:
    """Return the extra specs of a volume type; none without a type."""
    return dict(volume_type.extra_specs or {}) if volume_type is not None else {}


def qos_specs_of(volume_type: Any) -> dict[str, Any] | None:
    """Return the QoS specs of a volume type: ``consumer`` and ``specs``."""
    if volume_type is None or not volume_type.qos_specs_id:
        return None
    with volume_type.obj_as_admin():  # nobody else may read them, whoever makes a volume
        specs = volume_type.qos_specs
    return None if specs is None else {"consumer": specs.consumer, "specs": dict(specs.specs or {})}


def durability_of(volume_type: Any) -> Durability:
    """Return the durability that a volume type says.

    :raises InvalidError: naming the extra spec that is wrong.
    """
    return Durability.from_extra_specs(extra_specs_of(volume_type))


def limits_of(volume_type: Any) -> Limits:
    """Return the limits that a volume type says.

    :raises InvalidError: naming the extra spec that is wrong.
    """
    return limits.from_type(extra_specs_of(volume_type), qos_specs_of(volume_type))


def metadata_of(volume: Any, volume_type: Any) -> dict[str, str]:
    """Return what the record of a new volume keeps for the control plane."""
    of_type = limits_of(volume_type).to_metadata()
    return {
        CINDER_ID: str(volume.id),
        **{key: value for key, value in of_type.items() if value is not None},
    }

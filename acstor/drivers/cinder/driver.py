"""The Cinder volume driver: ``volume_driver = acstor.drivers.cinder.driver.AcstorVolumeDriver``.

It keeps nothing but what is open: volumes and snapshots are records in the origin, changed by
compare-and-swap, so any number of cinder-volume services of a cluster may work on them. Content
is moved by data planes only; see the modules beside this one for each feature.
"""

import logging
from typing import Any

from cinder import interface
from cinder.volume import driver
from oslo_config import cfg

from acstor.drivers.brick import registration
from acstor.drivers.cinder import locks, vendor_properties
from acstor.drivers.cinder.back_end import open_back_end
from acstor.drivers.cinder.connections import Connections
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.groups import Groups
from acstor.drivers.cinder.images import Images
from acstor.drivers.cinder.managing import Managing
from acstor.drivers.cinder.options import OPTIONS
from acstor.drivers.cinder.retyping import Retyping
from acstor.drivers.cinder.statistics import Statistics

LOG = logging.getLogger(__name__)


@interface.volumedriver
class AcstorVolumeDriver(
    Images,
    Groups,
    Retyping,
    Connections,
    Managing,
    Statistics,
    driver.CloneableImageVD,  # type: ignore[misc] # Cinder has no types
    driver.MigrateVD,  # type: ignore[misc]
    driver.ManageableVD,  # type: ignore[misc]
    driver.ManageableSnapshotsVD,  # type: ignore[misc]
    driver.BaseVD,  # type: ignore[misc]
):
    """Volumes in the repository of ACStor.

    Version history:

    .. code-block:: none

        1.0.0 - First version.

    """

    VERSION = "1.0.0"
    CI_WIKI_NAME = "ACStor_CI"
    SUPPORTS_ACTIVE_ACTIVE = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what Cinder hands to drivers; nothing is opened yet."""
        kwargs.pop("active_backend_id", None)  # there is no replication to fail over with
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(OPTIONS)

    @classmethod
    def get_driver_options(cls) -> list[cfg.Opt]:
        """Return the options of a back-end's section."""
        return [
            *OPTIONS,
            *cls._get_oslo_driver_opts(
                "reserved_percentage", "max_over_subscription_ratio", "volume_dd_blocksize"
            ),
        ]

    @reported("setting up the driver")
    def do_setup(self, context: Any) -> None:
        """Open the repository."""
        registration.register()  # of the connector that reads volumes in this process
        self._back_end = open_back_end(self.configuration, cfg.CONF)

    @reported("checking the set-up")
    def check_for_setup_error(self) -> None:
        """Look whether the origin answers.

        :raises VolumeBackendAPIException: saying what is wrong and what to do.
        """
        next(iter(self.back_end.volumes.list()), None)

    def _init_vendor_properties(self) -> tuple[dict[str, Any], str]:
        return vendor_properties.describe(self._set_property), vendor_properties.VENDOR

    def backup_use_temp_snapshot(self) -> bool:
        """Return False: a volume in use is backed up from a clone, which costs as little."""
        return False

    @classmethod
    def clean_volume_file_locks(cls, volume_id: str) -> None:
        """Remove the locks of a volume that is gone."""
        locks.forget(volume_id)

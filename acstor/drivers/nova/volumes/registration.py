"""Making nova-compute's libvirt driver know volumes, in the process that calls this."""

from acstor import exception
from acstor.drivers.nova.volumes import disk_xml, releases

VOLUME_TYPE = "acstor"
"""``driver_volume_type`` of Cinder's connection information."""
VOLUME_DRIVER = "acstor.drivers.nova.volumes.volume_driver.LibvirtAcstorVolumeDriver"


def register() -> None:
    """Register the libvirt volume driver and wrap Nova's disk configuration; again does nothing.

    Nova looks into its dictionary of volume drivers at the first attachment of each type, so any
    time before is early enough.

    :raises UnsupportedError: when this Nova has no place for it, or was not tested; nothing was
        changed then.
    """
    releases.check()
    from nova.virt.libvirt import driver

    known = getattr(driver, "VOLUME_DRIVERS", None)
    if not isinstance(known, dict):
        raise exception.UnsupportedError(
            "nova.virt.libvirt.driver.VOLUME_DRIVERS is no dictionary in this Nova",
            hint="use a release of Nova that this release of ACStor was tested with",
        )
    disk_xml.install()
    known[VOLUME_TYPE] = VOLUME_DRIVER

"""Fixtures of the unit tests that tests with other programs use too."""

from tests.unit.drivers.conftest import volume_socket
from tests.unit.drivers.nova.volumes.conftest import host, libvirt_driver

__all__ = ["host", "libvirt_driver", "volume_socket"]

"""Hosts with volumes whose data path is in memory; processes of each follow one another."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from acstor.control.client import AdminClient
from acstor.origin.memory import MemoryOrigin
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_volumes import MemoryVolume

VOLUME = "0b8cf0b6-1d6d-4d5a-9b6e-2f6f3a1f0c11"
SIZE = 1 << 20
PATIENT_SECONDS = 240.0
"""Seconds in which both ends of a socket have their turn, on any machine."""


class HostUnderTest:
    """One host with volumes; processes of it follow each other."""

    def __init__(self, conf: cfg.ConfigOpts, origin: MemoryOrigin) -> None:
        self.conf = conf
        self.plane = MemoryDataPlane(conf, origin)
        self.plane.start()
        self.client = AdminClient(conf.dataplane.admin_socket, PATIENT_SECONDS)

    def call(self, method: str, **params: Any) -> Any:
        return self.client.call(f"volume.{method}", volume=VOLUME, **params)

    def open(self) -> dict[str, Any]:
        opened: dict[str, Any] = self.call("open", role="owner")
        return opened

    def restart(self) -> None:
        """End the process without a word to the volumes, as a kill does."""
        assert self.plane.runtime is not None
        self.plane.stop_for_next()
        self.plane.start()

    @property
    def device(self) -> MemoryVolume:
        assert self.plane.runtime is not None
        return self.plane.runtime.volumes[VOLUME]

    @property
    def state(self) -> str:
        return str(self.call("status")["state"])


def move_to_second(store: VolumeStore, add_host: Callable[[str], HostUnderTest]) -> HostUnderTest:
    """Have h2 take over what h1 owns."""
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    second = add_host("h2")
    second.open()
    return second

"""A machine whose host processes follow one another on the same state."""

import os
import pathlib
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from oslo_config import cfg

from acstor.control.client import AdminClient
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.descriptors import InheritedDescriptors
from acstor.dataplane.host import DataPlaneHost
from acstor.dataplane.origin_source import OriginSource
from acstor.dataplane.runtime import OriginReader, RuntimeFactory
from acstor.dataplane.settings import DataPlaneSettings
from acstor.dataplane.states import ProcessState
from acstor.supervision.supervisor import Supervisor
from testbed.doubles.descriptor_keeper import Keeper
from testbed.doubles.memory_mounter import MemoryMounter
from testbed.doubles.memory_runtime import MemoryRuntime, write_manifest
from tests.unit.dataplane.volume_hosts import PATIENT_SECONDS

IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
OTHER = "00000000-0000-4000-8000-000000000001"


class Machine:
    """Starts hosts one after the other on the same state."""

    def __init__(self, conf: cfg.ConfigOpts, keeper: Keeper) -> None:
        self.conf = conf
        self.keeper = keeper
        self.hosts: list[DataPlaneHost] = []
        self.runtimes: list[MemoryRuntime] = []
        self.mounter = MemoryMounter()
        self.restarts = 0
        self.stops = 0
        self.attach_failures: list[str] = []
        """Kinds of the errors with which the next runtime's first attachments fail."""

    def make_runtime(
        self, settings: DataPlaneSettings, reader: OriginReader | None
    ) -> MemoryRuntime:
        self.runtimes.append(MemoryRuntime(settings, reader))
        self.runtimes[-1].attach_failures, self.attach_failures = self.attach_failures, []
        return self.runtimes[-1]

    def count_restart(self) -> None:
        self.restarts += 1

    def count_stop(self) -> None:
        self.stops += 1

    def host(self, passed: dict[str, int] | None = None, supervised: bool = True) -> DataPlaneHost:
        host = DataPlaneHost(
            self.conf,
            chunk_size=65536,
            origin=OriginSource("/origin", None),
            attachments=Attachments(os.path.join(self.conf.state_path, "dataplane")),
            make_runtime=cast("RuntimeFactory", self.make_runtime),
            mounter=self.mounter,
            supervisor=Supervisor(str(self.keeper.path) if supervised else None),
            inherited=InheritedDescriptors(passed or {}),
            request_restart=self.count_restart,
            request_stop=self.count_stop,
        )
        host.start()
        self.hosts.append(host)
        return host

    def stop(self) -> None:
        """Stop all that a test has not stopped: their threads would outlive it."""
        for host in self.hosts:
            if host.state is not ProcessState.STOPPED:
                host.stop(unmount=False)

    def client(self) -> AdminClient:
        return AdminClient(self.conf.dataplane.admin_socket, PATIENT_SECONDS)


@pytest.fixture
def keeper(tmp_path: pathlib.Path) -> Iterator[Keeper]:
    keeper = Keeper(tmp_path / "notify")
    yield keeper
    keeper.socket.close()


@pytest.fixture
def machine(conf: cfg.ConfigOpts, keeper: Keeper) -> Iterator[Machine]:
    found = Machine(conf, keeper)
    yield found
    found.stop()


@pytest.fixture
def manifest(tmp_path: pathlib.Path) -> Callable[[str], str]:
    return lambda disk_id: write_manifest(tmp_path / f"{disk_id}.json", disk_id)

"""The data plane of one host behind its real admin socket, with the runtime in memory."""

from collections.abc import Callable

from oslo_config import cfg

from acstor.dataplane_host.attachments import Attachments
from acstor.dataplane_host.descriptors import InheritedDescriptors
from acstor.dataplane_host.host import DataPlaneHost
from acstor.dataplane_host.origin_source import OriginSource
from acstor.dataplane_host.runtime import OriginReader
from acstor.dataplane_host.settings import DataPlaneSettings
from acstor.supervision.supervisor import Supervisor
from tests.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime


class MemoryDataPlane:
    """Started and stopped by the test; a second start finds what the first attached."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self.runtime: MemoryRuntime | None = None
        self._host: DataPlaneHost | None = None

    def start(self, prepare: Callable[[MemoryRuntime], None] = lambda _: None) -> MemoryRuntime:
        """Start a process; ``prepare`` sees its runtime before it serves."""

        def make(settings: DataPlaneSettings, reader: OriginReader | None) -> MemoryRuntime:
            self.runtime = MemoryRuntime(settings, reader)
            prepare(self.runtime)
            return self.runtime

        self._host = DataPlaneHost(
            self._conf,
            chunk_size=CHUNK_SIZE,
            origin=OriginSource("/origin", None),
            attachments=Attachments(f"{self._conf.state_path}/dataplane"),
            make_runtime=make,
            supervisor=Supervisor(None),
            inherited=InheritedDescriptors({}),
            request_restart=lambda: None,
        )
        self._host.start()
        assert self.runtime is not None
        return self.runtime

    def stop(self) -> None:
        """End the process, if one runs."""
        host, self._host = self._host, None
        if host is not None:
            host.stop(unmount=True)

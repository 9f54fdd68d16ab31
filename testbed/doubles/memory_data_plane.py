"""The data plane of one host behind its real admin socket, with the runtime in memory."""

from collections.abc import Callable
from typing import cast

from oslo_config import cfg

from acstor.dataplane.attachments import Attachments
from acstor.dataplane.descriptors import InheritedDescriptors
from acstor.dataplane.host import DataPlaneHost
from acstor.dataplane.origin_source import OriginSource
from acstor.dataplane.runtime import OriginReader, RuntimeFactory
from acstor.dataplane.settings import DataPlaneSettings
from acstor.dataplane.volumes.volumes import Volumes
from acstor.origin.base import Origin
from acstor.supervision.supervisor import Supervisor
from testbed.doubles.memory_mounter import MemoryMounter
from testbed.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime


class MemoryDataPlane:
    """Started and stopped by the test; a second start finds what the first attached.

    :param origin: with the records of volumes; None: that of the configuration.
    """

    def __init__(self, conf: cfg.ConfigOpts, origin: Origin | None = None) -> None:
        self._conf = conf
        self._origin = origin
        self.runtime: MemoryRuntime | None = None
        self._host: DataPlaneHost | None = None

    def start(self, prepare: Callable[[MemoryRuntime], None] = lambda _: None) -> MemoryRuntime:
        """Start a process; ``prepare`` sees its runtime before it serves."""

        def make(settings: DataPlaneSettings, reader: OriginReader | None) -> MemoryRuntime:
            self.runtime = MemoryRuntime(settings, reader)
            prepare(self.runtime)
            return self.runtime

        origin = self._origin
        self._host = DataPlaneHost(
            self._conf,
            chunk_size=CHUNK_SIZE,
            origin=OriginSource("/origin", None),
            attachments=Attachments(f"{self._conf.state_path}/dataplane"),
            make_runtime=cast("RuntimeFactory", make),
            mounter=MemoryMounter(),
            supervisor=Supervisor(None),
            inherited=InheritedDescriptors({}),
            request_restart=lambda: None,
            request_stop=lambda: None,
            open_origin=None if origin is None else lambda: origin,
        )
        self._host.start()
        assert self.runtime is not None
        return self.runtime

    @property
    def volumes(self) -> Volumes:
        """The volumes of the process that runs."""
        assert self._host is not None
        return self._host._volumes.volumes

    def look(self) -> None:
        """Do what the process does now and then beside answering."""
        assert self._host is not None
        self._host.retry_images()
        self._host._restored.finish(30.0)

    def stop(self) -> None:
        """End the process, if one runs."""
        self._stop(unmount=True)

    def stop_for_next(self) -> None:
        """End the process so that the next one goes on."""
        self._stop(unmount=False)

    def _stop(self, *, unmount: bool) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.stop(unmount=unmount)

"""The volumes of a data plane with their threads and the socket for Nova and Cinder."""

import os
from collections.abc import Callable, Mapping

from oslo_config import cfg

from acstor.control.server import AdminServer, Method
from acstor.dataplane.groups import group_id
from acstor.dataplane.volumes.attachments import VolumeAttachments
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.reconciler import VolumeReconciler
from acstor.dataplane.volumes.sockets import VolumeSockets
from acstor.dataplane.volumes.volumes import Volumes
from acstor.native import DataPlane
from acstor.origin.base import Origin
from acstor.supervision.supervisor import Supervisor


class VolumeService:
    """The volumes of a data plane, put together from the configuration, started and stopped.

    :param runtime: returns the runtime.
    :param open_origin: None: the origin of the configuration.
    :raises ConfigurationError: when a group does not exist on this host.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        runtime: Callable[[], DataPlane],
        supervisor: Supervisor,
        open_origin: Callable[[], Origin] | None,
    ) -> None:
        self._conf = conf.volumes

        def open_configured() -> Origin:
            from acstor.origin import configured
            from acstor.origin.opening import open_origin

            return open_origin(configured.origin_url(conf), conf.volumes.origin_deadline)

        socket_group = group_id(self._conf.socket_group, "[volumes] socket_group")
        self._control_group = group_id(self._conf.control_group, "[volumes] control_group")
        self.volumes = Volumes(
            host=conf.host,
            access=OriginAccess(open_origin or open_configured),
            is_enabled=self._conf.enabled,
            runtime=runtime,
            files=VolumeFiles(self._conf.directory, self._conf.reserve_percent),
            place=LogDirectory(self._conf.directory, _identity_path(conf.state_path)),
            sockets=VolumeSockets(
                self._conf.socket_directory,
                socket_group,
                VolumeAttachments(os.path.join(self._conf.directory, "attachments")),
            ),
            supervisor=supervisor,
        )
        self._reconciler = VolumeReconciler(self.volumes, self._conf.fold_spread)
        self._control: AdminServer | None = None

    def start(self, sockets: Mapping[str, int]) -> None:
        """Go on with the volumes that the process before had open, in the background.

        :param sockets: inherited listening sockets by name, now owned here.
        """
        self.volumes.resuming.restore(sockets)
        self._reconciler.start()

    def start_control(self, methods: Mapping[str, Method]) -> None:
        """Answer Nova and Cinder.

        :param methods: of the socket.
        :raises OSError: when the socket cannot be made.
        """
        if self._conf.enabled:
            self._control = AdminServer(
                self._conf.control_socket,
                methods,
                self._control_group,
            )
            self._control.start()

    def stop(self, *, is_final: bool) -> None:
        """Stop what was started; the volumes are the runtime's to stop.

        :param is_final: no process follows: the supervisor need not keep the sockets.
        """
        if self._control is not None:
            self._control.stop()
        self._reconciler.stop()
        if is_final:
            self.volumes.pushes.push_finally(self._conf.stop_push_timeout)
            # The next process finds the sockets of one that does not end for good.
            self.volumes.listeners.remove(self.volumes.table.all())

    def metrics_text(self) -> str:
        """Return the metrics of what the runtime does not know of."""
        from acstor.dataplane.volumes import metrics  # not needed before anybody asks

        return metrics.text(self.volumes.take_overs, self.volumes.files.aside.list())


def _identity_path(state_path: str) -> str:
    """Return where the copy of the identity of the local logs is kept.

    Once that was the state directory itself, in which the data plane need not be able to write.
    """
    former = os.path.join(state_path, "volumes-identity.json")
    if os.path.exists(former):
        return former
    return os.path.join(state_path, "dataplane", "volumes-identity.json")

"""One data plane with everything around it: what it restores, keeps, answers and reports."""

import logging
import os
import threading
import time
from collections.abc import Callable

from oslo_config import cfg

from acstor import exception, version
from acstor.control import protocol
from acstor.control.operations import Door, Target
from acstor.control.server import AdminServer, Method
from acstor.dataplane import descriptors, dispatch, settings
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.chunks import Chunks
from acstor.dataplane.descriptors import InheritedDescriptors
from acstor.dataplane.images import Images
from acstor.dataplane.origin_source import OriginSource
from acstor.dataplane.placement import Placement
from acstor.dataplane.restored_images import RestoredImages
from acstor.dataplane.runtime import RuntimeFactory
from acstor.dataplane.states import ProcessEvent, ProcessState, next_state
from acstor.dataplane.volumes.logs import drain
from acstor.dataplane.volumes.service import VolumeService
from acstor.mounting import mount_point
from acstor.mounting.mounter import Mounter
from acstor.native import DataPlane, StaleDescriptorError, map_errors
from acstor.origin.base import Origin
from acstor.supervision.supervisor import Supervisor

LOG = logging.getLogger(__name__)

_PASS_TIMEOUT = 1.0
"""Seconds that a stop waits for an image that is being attached again."""
_RELEASE_TIMEOUT = 2.0
"""Seconds for a process that is ending to let go of the mount."""
_STUCK_AFTER = 30.0
"""Seconds after which a request that is handled, or a task that is due, shows a thread that is
stuck: none of them waits for anything."""
_STUCK_LOOKS = 5
"""Looks in a row that must find one."""
_END = "# EOF"
_HELD_STARTS_MAX = 5
"""Starts in a row that leave a mount which others hold to the next start."""


class DataPlaneHost:
    """The data plane of this host; see :mod:`acstor.dataplane.states` for its life.

    :param conf: checked configuration.
    :param chunk_size: of the repository, bytes.
    :param origin: where misses are read from.
    :param attachments: what was attached before.
    :param make_runtime: :class:`acstor.native.DataPlane`, or a double.
    :param mounter: mounts and unmounts.
    :param supervisor: keeps the descriptors; may be none.
    :param inherited: descriptors of the process before.
    :param request_restart: called, from any thread, when the process is asked to restart.
    :param request_stop: the same, when it is asked to stop for good.
    :param open_origin: opens the origin for volumes; None: that of the configuration.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        chunk_size: int,
        origin: OriginSource,
        attachments: Attachments,
        make_runtime: RuntimeFactory,
        mounter: Mounter,
        supervisor: Supervisor,
        inherited: InheritedDescriptors,
        request_restart: Callable[[], None],
        request_stop: Callable[[], None],
        open_origin: Callable[[], Origin] | None = None,
    ) -> None:
        self._conf = conf
        self._origin = origin
        self._attachments = attachments
        self._make_runtime = make_runtime
        self._mounter = mounter
        self._supervisor = supervisor
        self._inherited = inherited
        self._request_restart = request_restart
        self._request_stop = request_stop
        self._settings = settings.from_conf(
            conf,
            version=version.release(),
            chunk_size=chunk_size,
            origin_posix_root=origin.posix_root,
        )
        self._volumes = VolumeService(conf, lambda: self.runtime, supervisor, open_origin)
        self._runtime: DataPlane | None = None
        self._admin: AdminServer | None = None
        self._started_at = time.time()
        self._state = ProcessState.RESTORING
        self._lock = threading.RLock()  # of _state, and one change of attachments at a time
        self._restored = RestoredImages(attachments, self._lock)
        mounted_at = self._settings["mount_point"]
        self._placement = Placement(lambda: self.runtime, attachments, self._lock, mounted_at)
        self._chunks = Chunks(lambda: self.runtime, attachments, mounted_at)
        self.images = Images(
            lambda: self.runtime,
            attachments,
            self._restored,
            self._lock,
            mounted_at=mounted_at,
            chunk_size=chunk_size,
        )
        self._stuck_looks = 0
        self.is_stopped_for_good = False
        """True if the process was asked to end without a successor."""

    @property
    def state(self) -> ProcessState:
        """State of the process."""
        return self._state

    @property
    def runtime(self) -> DataPlane:
        """The runtime.

        :raises UnavailableError: before it exists.
        """
        if self._runtime is None:
            raise exception.UnavailableError("the data plane is starting")
        return self._runtime

    # Life

    def start(self) -> None:
        """Restore what was attached, take over or mount, serve; then answer the admin socket.

        :raises AcstorError: when the store, the mount or the peer address cannot be had.
        :raises OSError: when a directory or the admin socket cannot be made.
        """
        sockets = self._inherited.take_volumes()
        is_taken_over = self._start_runtime()
        self._keep_descriptors(fuse_is_inherited=is_taken_over)
        self._attachments.forget_held_starts()
        self._move(ProcessEvent.STARTED)
        if self._attachments.is_draining():
            self.set_drain(True)
        self._volumes.start(sockets)
        # Whoever is answered by the admin socket finds the volume socket, too.
        self._volumes.start_control(self._methods(Door.CONTROL))
        self._admin = AdminServer(self._conf.dataplane.admin_socket, self._methods(Door.ADMIN))
        self._admin.start()

    def stop(self, *, unmount: bool) -> None:
        """Stop serving; with ``unmount`` the file system goes too, else the next process has it."""
        self._move(ProcessEvent.STOP)
        if self._admin is not None:
            self._admin.stop()
        self._volumes.stop(is_final=unmount)
        self._restored.finish(_PASS_TIMEOUT)
        if unmount:
            self._supervisor.remove(descriptors.FUSE)
            self._supervisor.remove(descriptors.PEER_LISTENER)
            self._unmount()
        if self._runtime is not None:
            self._runtime.stop(self._conf.dataplane.stop_timeout)
            self.drain_log()
        self._origin.close()
        self._inherited.close()
        self._move(ProcessEvent.STOPPED)

    @property
    def stop_push_timeout(self) -> float:
        """Seconds that volumes may take to be pushed when the process ends for good."""
        return float(self._conf.volumes.stop_push_timeout)

    def leaves_mount(self) -> bool:
        """Return whether a supervisor that is alive keeps the mount for the next process."""
        return self._supervisor.holds_descriptors()

    def check_alive(self) -> bool:
        """Return whether the file system is connected and the threads behind it move on."""
        status = self.runtime.status()
        fuse = status.get("fuse")
        if isinstance(fuse, dict) and fuse.get("connected") is False:
            LOG.error("the file system at %s is gone", self._settings["mount_point"])
            # The next process must mount anew.
            self._supervisor.remove(descriptors.FUSE)
            return False
        request = _seconds(fuse.get("longest_request_ms")) if isinstance(fuse, dict) else 0.0
        late = _seconds(status.get("runtime_late_ms"))
        # A process that was stopped itself looks stuck until its threads have run again.
        self._stuck_looks = self._stuck_looks + 1 if max(request, late) > _STUCK_AFTER else 0
        if self._stuck_looks < _STUCK_LOOKS:
            return True
        LOG.error(
            "the data plane is stuck (a request has been handled for %.0f s, tasks are %.0f s "
            "late): the next process takes over",
            request,
            late,
        )
        return False

    def retry_images(self) -> None:
        """Attach what could not be attached when the process started, when it is time.

        Then go on with what was left for later, and put aside what was found damaged.
        """
        self._restored.retry(self.runtime)

    def drain_log(self) -> int:
        """Write waiting lines of the runtime's log; return how many."""
        return drain.drain(self.runtime.take_log_lines)

    def _move(self, event: ProcessEvent) -> None:
        with self._lock:
            self._state = next_state(self._state, event)

    def _start_runtime(self) -> bool:
        """Make, restore and start a runtime; return whether it took over a mount."""
        os.makedirs(self._settings["store_path"], mode=0o700, exist_ok=True)
        # The runtime locks the store: from here on this is the only data plane of the host, and
        # only now may a mount that is found be taken for a leftover.
        runtime = self._restored_runtime()
        fuse_fd = self._inherited.take_fuse()
        if fuse_fd is not None:
            try:
                with map_errors("taking over the file system"):
                    self._run(runtime, fuse_fd, is_new=False)
            except exception.UnavailableError as error:
                if not isinstance(error.__cause__, StaleDescriptorError):
                    raise
                LOG.warning("the passed file system is gone (%s), mounting anew", error)
            else:
                self._set_read_ahead()
                return True
            runtime.stop(self._conf.dataplane.stop_timeout)
            del runtime
            runtime = self._restored_runtime()
        self._leave_held_mount()
        if mount_point.is_mounted(self._settings["mount_point"]):
            self._mounter.detach()
        fuse_fd = self._mounter.mount()
        with map_errors("starting the data plane"):
            self._run(runtime, fuse_fd, is_new=True)
        return False

    def _set_read_ahead(self) -> None:
        """Have the mount that was taken over read ahead as is configured now."""
        try:
            self._mounter.set_read_ahead()
        except exception.AcstorError as error:
            LOG.warning("the read-ahead of the mount stays as it is: %s; %s", error, error.hint)

    def _unmount(self) -> None:
        try:
            self._mounter.unmount()
        except exception.AcstorError as error:
            LOG.error("the file system stays mounted: %s; %s", error, error.hint)

    def _leave_held_mount(self) -> None:
        """Leave a mount that another process still holds to the process that will be given it.

        That is a supervisor which was handed the descriptor after it had started this process:
        guests that have files open would lose them if the mount were detached.

        :raises UnavailableError: when the next start may be given the mount.
        """
        path = self._settings["mount_point"]
        if mount_point.wait_disconnected(path, _RELEASE_TIMEOUT):
            return
        if not self._supervisor.is_configured:
            LOG.warning("another process holds %s and nobody hands it over", path)
        elif (starts := self._attachments.count_held_start()) <= _HELD_STARTS_MAX:
            raise exception.UnavailableError(
                f"another process holds the file system at {path} (start {starts} that finds it "
                f"so, of {_HELD_STARTS_MAX})",
                hint="the supervisor starts the next process with what it was handed meanwhile",
            )
        else:
            LOG.error("%d starts in a row were not handed %s, mounting anew", starts, path)

    def _run(self, runtime: DataPlane, fuse_fd: int, *, is_new: bool) -> None:
        listener = self._inherited.duplicate_listener(self._settings)
        runtime.start(fuse_fd, is_new, listener)
        self._runtime = runtime

    def _restored_runtime(self) -> DataPlane:
        with map_errors("setting up the data plane"):
            runtime = self._make_runtime(self._settings, self._origin.given)
        self._placement.restore(runtime)
        self._restored.attach(runtime)
        return runtime

    def _keep_descriptors(self, *, fuse_is_inherited: bool) -> None:
        descriptors.keep(
            self._supervisor,
            descriptors.FUSE,
            self.runtime.fuse_fd(),
            is_inherited=fuse_is_inherited,
        )
        descriptors.keep(
            self._supervisor,
            descriptors.PEER_LISTENER,
            self.runtime.peer_listener_fd(),
            is_inherited=self._inherited.has_listener(),
        )
        self._inherited.close()

    # What the sockets ask of the process: see acstor.control.operations

    def _methods(self, door: Door) -> dict[str, Method]:
        targets = {
            Target.HOST: self,
            Target.IMAGES: self.images,
            Target.PLACEMENT: self._placement,
            Target.CHUNKS: self._chunks,
            **self._volumes.volumes.targets(),
        }
        return dispatch.methods(door, targets, lambda: self.runtime)

    def name(self) -> dict[str, object]:
        """Return how this host is called."""
        return {"host": self._settings["host"], "protocol_version": protocol.PROTOCOL_VERSION}

    def status(self) -> dict[str, object]:
        """Return the runtime's status and that of the process."""
        status = self.runtime.status()
        status.update(
            host=self._settings["host"],
            version=self._settings["version"],
            protocol_version=protocol.PROTOCOL_VERSION,
            process_state=self._state.value,
            pid=os.getpid(),
            started_at=self._started_at,
            peer_address=self.runtime.peer_address(),
            mount_point=self._settings["mount_point"],
            chunk_size=self._settings["chunk_size"],
            placement_threshold=self._attachments.distance_threshold(),
            is_supervised=self._supervisor.is_configured,
            volumes=len(self._volumes.volumes.statuses.list_volumes()),
            images_waiting=self._restored.waiting(),
        )
        return status

    def set_drain(self, on: bool) -> None:
        """Refuse peers, or serve them again."""
        with self._lock:
            self._move(ProcessEvent.DRAIN if on else ProcessEvent.UNDRAIN)
            self.runtime.set_drain(on)
            self._attachments.set_draining(on)

    def metrics_text(self) -> str:
        """Return all metrics in the OpenMetrics text format."""
        runtime = self.runtime.metrics_text().rstrip().removesuffix(_END).rstrip()
        return f"{runtime}\n{self._volumes.metrics_text()}{_END}\n"

    def restart(self) -> None:
        """Make room for the next process, which takes over the mount.

        :raises InvalidError: when nobody would start one.
        """
        if not self.leaves_mount():
            raise exception.InvalidError(
                "this data plane has no supervisor that would start the next one",
                hint="run it under systemd or acstor-holder",
            )
        self._request_restart()

    def stop_for_good(self, force: bool) -> None:
        """Ask the process to unmount and end, and its supervisor to start no other.

        :param force: whatever uses it: guests get I/O errors.
        :raises ConflictError: when something does and it is not forced.
        """
        if not force and (users := self._users()):
            raise exception.ConflictError(
                f"guests of this host would lose their disks: {users}",
                hint="'acstor host restart-dataplane' replaces the process under running guests",
            )
        LOG.info("asked to stop for good%s", ", whatever uses it" if force else "")
        self.is_stopped_for_good = True
        self._request_stop()

    def _users(self) -> str:
        """Return what is in use, for people; empty: nothing."""
        opened = [image for image in self.runtime.list_images() if image["open_handles"]]
        volumes = self._volumes.volumes.statuses.list_volumes()
        counted = ((len(opened), "images"), (len(volumes), "volumes"))
        return ", ".join(f"{count} {what} are open" for count, what in counted if count)


def _seconds(milliseconds: object) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, int) else 0.0

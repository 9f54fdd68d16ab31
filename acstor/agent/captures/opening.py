"""Opening the disks of one moment: of a guest that runs, that does not, or that is only pinned."""

import concurrent.futures
import contextlib
import dataclasses
import datetime
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping

from acstor import exception
from acstor.agent.captures.disk_choice import DiskChoice, choose_disks
from acstor.agent.captures.freezing import Freezer
from acstor.agent.captures.sources.at_rest import open_at_rest
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.sources.nbd_disk import NbdDisk
from acstor.agent.captures.sources.uefi_variables import read_nvram
from acstor.agent.hypervisor.base import BackupExport, BackupRequest, Hypervisor
from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk
from acstor.drivers.nova.image_links.qcow2_header import read_backing_names
from acstor.repository.versions.record import Consistency
from acstor.repository.versions.version_refs import utc_now
from acstor.versions.host_capture.request import CaptureRequest

LOG = logging.getLogger(__name__)

WATCH_INTERVAL = 0.5
"""Seconds between two looks at a backup: at its scratch files, and whether it still is."""
BEGIN_SECONDS = 60.0
"""Seconds that a backup may take to begin: longer than libvirt waits for another job."""
FROZEN_SECONDS = 5.0
"""The same while the guest is frozen."""
SCRATCH_FREE_SHARE = 0.1
"""Share of the file system of scratch files at which a backup is given up: full, it would be an I/O
error in the guest."""

OpenExport = Callable[[str, str, BackupExport, Callable[[], None]], DiskSource]
"""Opens a disk of a backup: device, socket, export, and what raises once the backup is over."""
OpenFile = Callable[[str, str, str, Callable[[], None]], DiskSource]
"""Opens a disk at rest: device, path, format, and what raises once the guest was started."""


@dataclasses.dataclass(frozen=True)
class OpenedMoment:
    """Disks of one moment, open for reading."""

    created_at: datetime.datetime
    consistency: Consistency
    note: str
    sources: tuple[DiskSource, ...]
    backing_files: Mapping[str, str | None]
    """By device, the file that the disk's own file is based on."""
    nvram: bytes | None
    left_out: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class MomentOpener:
    """Opens moments on one hypervisor.

    :ivar scratch_path: folder for scratch files, on another file system than any disk.
    :ivar scratch_max: most bytes that they may take.
    :ivar note_frozen: see :class:`.Freezer`.
    :ivar begin_seconds: that a backup may take to begin.
    :ivar frozen_seconds: the same where the guest is frozen meanwhile.
    """

    hypervisor: Hypervisor
    scratch_path: str
    scratch_max: int
    note_frozen: Callable[[str], None] = lambda server: None
    open_export: OpenExport = dataclasses.field(default_factory=lambda: _open_export)
    open_file: OpenFile = open_at_rest
    now: Callable[[], datetime.datetime] = utc_now
    begin_seconds: float = BEGIN_SECONDS
    frozen_seconds: float = FROZEN_SECONDS

    @contextlib.contextmanager
    def opened(
        self,
        request: CaptureRequest,
        pinned: Guest | None = None,
        pinned_at: datetime.datetime | None = None,
    ) -> Iterator[OpenedMoment]:
        """Have the disks of a request open; nothing of it is left when the context ends.

        :raises NotFoundError: when there is no such server here.
        :raises UnsupportedError: when a disk cannot be had, with the reason.
        :raises ConflictError: when another job of the guest is under way.
        :raises UnavailableError: when the hypervisor or a disk cannot be reached.
        """
        guest = pinned or self.hypervisor.find(request.owner)
        if guest is None:
            raise exception.NotFoundError(
                f"there is no server {request.owner} on this host",
                hint="it was deleted or moved; only committed versions of it are left",
            )
        choice = choose_disks(guest, request.devices)
        if guest.is_active:
            opening = self._running(request, guest, choice)
        else:
            moment = pinned_at if pinned is not None else None
            opening = self._at_rest(guest, choice, moment or self.now())
        with opening as opened:
            yield opened

    # Guests that do not run

    @contextlib.contextmanager
    def _at_rest(
        self, guest: Guest, choice: DiskChoice, moment: datetime.datetime
    ) -> Iterator[OpenedMoment]:
        def check() -> None:
            found = self.hypervisor.find(guest.server)
            if found is not None and found.is_active and shares_files(found, guest):
                raise exception.ConflictError(
                    f"server {guest.server} was started while its disks were read",
                    hint="capture it again: it is then read while it runs",
                )

        with contextlib.ExitStack() as stack:
            sources = []
            for disk in choice.taken:
                source = self.open_file(disk.device, disk.path or "", disk.format, check)
                stack.callback(source.close)
                sources.append(source)
            check()  # of a pin the guest may have been started long ago
            yield OpenedMoment(
                created_at=moment,
                consistency=Consistency.CRASH,
                note="the guest does not run",
                sources=tuple(sources),
                backing_files=_backing_files(choice.taken),
                nvram=read_nvram(guest.nvram),
                left_out=choice.left_out,
            )

    # Guests that run

    @contextlib.contextmanager
    def _running(
        self, request: CaptureRequest, guest: Guest, choice: DiskChoice
    ) -> Iterator[OpenedMoment]:
        backup = self._backup_request(request, choice)
        self._check_scratch(choice)
        freezer = Freezer(self.hypervisor, self.note_frozen)
        watch = BackupWatch(self.hypervisor, guest.server, self.scratch_path, self.scratch_max)
        try:
            backing_files = _backing_files(choice.taken)
            with freezer.frozen(guest, request.consistency) as frozen:
                is_frozen = not frozen.note
                self._begin(backup, self.frozen_seconds if is_frozen else self.begin_seconds)
                moment = self.now()
            exports = self.hypervisor.exports(backup)
            # Read at once: a guest changes its variables now and then, and rarely.
            nvram = read_nvram(guest.nvram)
            with contextlib.ExitStack() as stack:
                stack.callback(watch.stop)
                watch.start()
                sources = []
                for disk in choice.taken:
                    source = self.open_export(
                        disk.device, backup.socket_path, exports[disk.device], watch.check
                    )
                    stack.callback(source.close)
                    sources.append(source)
                yield OpenedMoment(
                    created_at=moment,
                    consistency=frozen.consistency,
                    note=frozen.note,
                    sources=tuple(sources),
                    backing_files=backing_files,
                    nvram=nvram,
                    left_out=choice.left_out,
                )
        finally:
            clear_backup(self.hypervisor, guest.server, backup)

    def _begin(self, backup: BackupRequest, seconds: float) -> None:
        """Begin a backup within a deadline: libvirt may wait half a minute for another job.

        One that begins later all the same is ended then.
        """
        executor = concurrent.futures.ThreadPoolExecutor(1, "backup-begin")
        begun = executor.submit(self.hypervisor.begin_backup, backup)
        executor.shutdown(wait=False)
        try:
            begun.result(seconds)
        except concurrent.futures.TimeoutError as error:
            begun.add_done_callback(lambda _: clear_backup(self.hypervisor, backup.server, backup))
            raise exception.DeadlineError(
                f"the backup of server {backup.server} does not begin in {seconds:g} s",
                hint="another job of the guest is under way: capture it again",
            ) from error

    def _backup_request(self, request: CaptureRequest, choice: DiskChoice) -> BackupRequest:
        return BackupRequest(
            request.owner,
            scratch_files(self.scratch_path, request.owner, [one.device for one in choice.taken]),
            socket_path(self.scratch_path, request.owner),
        )

    def _check_scratch(self, choice: DiskChoice) -> None:
        try:
            scratch = os.stat(self.scratch_path).st_dev
            places = {disk.path: os.stat(disk.path or "").st_dev for disk in choice.taken}
        except OSError as error:
            raise exception.UnavailableError(f"{error.filename}: {error.strerror}") from error
        for path, place in places.items():
            if place == scratch:
                raise exception.ConfigurationError(
                    f"[captures] scratch_path {self.scratch_path} is on the file system of {path}",
                    hint="let it be on another one: what fills it would be an I/O error in guests",
                )


class BackupWatch:
    """Looks after a backup that is under way, on a thread of its own.

    :param scratch_max: bytes of scratch files after which it is ended.
    """

    def __init__(
        self,
        hypervisor: Hypervisor,
        server: str,
        scratch_path: str,
        scratch_max: int,
        interval: float = WATCH_INTERVAL,
        look: Callable[[str], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._hypervisor = hypervisor
        self._server = server
        self._scratch_path = scratch_path
        self._scratch_max = scratch_max
        self._interval = interval
        self._look = look
        self._problem: exception.AcstorError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backup-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Refuse when the backup is over, so that what was read last may be anything.

        :raises ConflictError: when somebody else has ended it, or the guest.
        :raises ExhaustedError: when it was ended because of its scratch files.
        :raises UnavailableError: when the hypervisor does not say.
        """
        if self._problem is None:
            self.look_once()
        if self._problem is not None:
            raise self._problem

    def look_once(self) -> None:
        """Look at the backup, and end it when its scratch files are too large.

        :raises UnavailableError: when the hypervisor does not say.
        """
        status = self._hypervisor.backup_status(self._server)
        if status is None:
            self._problem = exception.ConflictError(
                f"the backup of server {self._server} was ended",
                hint="the guest was stopped, or Nova needed it: capture it again",
            )
            return
        found = self._look(self._scratch_path)
        is_full = found.f_bavail < found.f_blocks * SCRATCH_FREE_SHARE
        if status.scratch_bytes > self._scratch_max or is_full:
            self._problem = exception.ExhaustedError(
                f"server {self._server} writes so much while it is captured that the scratch "
                f"files take {status.scratch_bytes} bytes",
                hint="capture it when it writes less, or raise [captures] scratch_max and "
                "read_rate",
            )
            with contextlib.suppress(exception.AcstorError):
                self._hypervisor.end_backup(self._server)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval) and self._problem is None:
            try:
                self.look_once()
            except exception.AcstorError as error:
                # It may be back at the end, and only then does it matter.
                LOG.warning("the backup of server %s cannot be looked at: %s", self._server, error)


def scratch_files(scratch_path: str, server: str, devices: list[str]) -> dict[str, str]:
    """Return the scratch files of a backup, by device."""
    return {device: os.path.join(scratch_path, f"{server}-{device}.scratch") for device in devices}


def shares_files(one: Guest, other: Guest) -> bool:
    """Return whether two guests have a disk's file in common, whatever its names are."""
    return bool(_files_of(one) & _files_of(other))


def _files_of(guest: Guest) -> set[tuple[int, int]]:
    found = set()
    for disk in guest.disks:
        if disk.place is DiskPlace.FILE and disk.path is not None and disk.is_disk:
            with contextlib.suppress(OSError):
                status = os.stat(disk.path)
                found.add((status.st_dev, status.st_ino))
    return found


def socket_path(scratch_path: str, server: str) -> str:
    """Return the socket of a backup's NBD server."""
    return os.path.join(scratch_path, f"{server}.sock")


def clear_backup(hypervisor: Hypervisor, server: str, backup: BackupRequest) -> None:
    """End a backup, and remove its files, as far as that can be done; errors are logged."""
    try:
        hypervisor.end_backup(server)
    except exception.AcstorError as error:
        LOG.warning("the backup of server %s could not be ended: %s", server, error)
    for path in (*backup.scratch.values(), backup.socket_path):
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            LOG.warning("%s could not be removed: %s", path, error.strerror)


def clear_server(hypervisor: Hypervisor, scratch_path: str, server: str) -> None:
    """End whatever backup a process has left of a server; errors are logged."""
    try:
        guest = hypervisor.find(server)
    except exception.AcstorError as error:
        LOG.warning("server %s: what is left of a capture is not known: %s", server, error)
        return
    devices = [disk.device for disk in guest.disks] if guest else []
    scratch = scratch_files(scratch_path, server, devices)
    backup = BackupRequest(server, scratch, socket_path(scratch_path, server))
    clear_backup(hypervisor, server, backup)


def _open_export(
    device: str, socket_path: str, export: BackupExport, check: Callable[[], None]
) -> DiskSource:
    # Of layers, the scratch file and the disk's own one are the disk's.
    return NbdDisk(
        device,
        socket_path,
        export.name,
        own_depth=2,
        tells_layers=export.tells_layers,
        check=check,
    )


def _backing_files(disks: tuple[GuestDisk, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for disk in disks:
        names: list[str] = []
        if disk.format == "qcow2" and disk.path is not None:
            with contextlib.suppress(OSError):
                names = read_backing_names(disk.path)
        found[disk.device] = names[0] if len(names) == 1 else None
    return found

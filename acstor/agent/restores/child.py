"""The process of one restore, started with ``-m`` and a descriptor.

It computes beside the guests and the data plane, and so is a process of its own with a low priority
(RFD 1). It ends with the agent. Ended by SIGTERM it says whether it has written anything; killed it
leaves a disk that is half written, into which the next one writes the rest.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from acstor import exception
from acstor.agent.captures.child import Agent, tie_to_agent, yield_to_others
from acstor.agent.captures.disk_choice import choose_disks
from acstor.agent.captures.parents import Comparison, find_comparison
from acstor.agent.captures.reading import Pace
from acstor.agent.hypervisor.domain_xml import GuestDisk
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.supply import BaseFile, ChunkSupply, PlacedChunks
from acstor.agent.restores.target import DiskTarget, open_target
from acstor.agent.restores.writing import VersionWriter, Written
from acstor.drivers.nova.image_links.qcow2_header import read_backing_names
from acstor.origin.opening import open_origin
from acstor.rate_limit import RateLimit
from acstor.repository.opening import open_repository
from acstor.repository.reading.chunk_reader import ChunkReader
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.progress import Failure

if TYPE_CHECKING:
    from acstor.agent.hypervisor.base import Hypervisor

LOG = logging.getLogger(__name__)


class Restorer:
    """Writes one version into one disk.

    :param open_disk: opens the disk; a test may put its own.
    """

    def __init__(
        self,
        order: RestoreOrder,
        agent: Agent,
        store: VersionStore,
        hypervisor: "Hypervisor",
        open_disk: Callable[[str, str, str], DiskTarget] = open_target,
    ) -> None:
        self._order = order
        self._agent = agent
        self._store = store
        self._hypervisor = hypervisor
        self._open_disk = open_disk
        self._touched = False

    def restore(self) -> RestoreReport:
        """Write the version; errors are in the report."""
        written, failure = Written(), None
        try:
            written = self._restore()
        except Exception as error:
            if not isinstance(error, exception.AcstorError):
                LOG.exception("a restore failed")
            failure = Failure.of(error)
        return RestoreReport(written, self._touched, failure)

    def _restore(self) -> Written:
        record = self._record()
        disk = self._disk()
        path = disk.path or ""
        target = self._open_disk(disk.device, path, disk.format)
        try:
            self._require_stopped()  # one that was started before the lock was taken has ended it
            _require_size(record, target)
            backing = _backing_file(disk)
            with self._base(backing) as base:
                writer = self._writer(record, target, backing, base)
                written = writer.write()
            target.finish()
        finally:
            target.close()
        self._require_there()
        return written

    def _record(self) -> VersionRecord:
        """Return the record of the version.

        :raises NotFoundError: when the project has none of that id.
        :raises ConflictError: when it is no restore point.
        """
        request = self._order.request
        version = self._store.find(request.version)
        if version is None or version.record.project != request.project:
            raise exception.NotFoundError(f"version {request.version} does not exist")
        record = version.record
        if record.manifest is None or record.logs:
            raise exception.ConflictError(
                f"version {request.version} is {record.state.value}: its content is not stored"
            )
        return record

    def _disk(self) -> GuestDisk:
        """Return the disk of the server, which does not run.

        :raises NotFoundError: when there is no such server or disk here.
        :raises UnsupportedError: when it is none that can be written to, with the reason.
        :raises ConflictError: when the server runs.
        """
        request = self._order.request
        guest = self._hypervisor.find(request.server)
        if guest is None:
            raise exception.NotFoundError(
                f"there is no server {request.server} on this host",
                hint="it was deleted or moved: ask again",
            )
        self._require_stopped()
        (disk,) = choose_disks(guest, (request.device,)).taken
        return disk

    def _require_stopped(self) -> None:
        guest = self._hypervisor.find(self._order.request.server)
        if guest is not None and guest.is_active:
            raise exception.ConflictError(
                f"server {guest.server} runs", hint="stop it: openstack server stop"
            )

    def _require_there(self) -> None:
        """Refuse a server that was moved away or deleted while its disk was written."""
        self._require_stopped()
        if self._hypervisor.find(self._order.request.server) is None:
            raise exception.ConflictError(
                f"server {self._order.request.server} was moved or deleted meanwhile",
                hint="restore again, where it is now",
            )

    @contextlib.contextmanager
    def _base(self, backing: str | None) -> Iterator[BaseFile]:
        image = self._order.request.base_image
        base = BaseFile.open(self._store.repository, image, backing)
        try:
            yield base
        finally:
            base.close()

    def _writer(
        self, record: VersionRecord, target: DiskTarget, backing: str | None, base: BaseFile
    ) -> VersionWriter:
        repository, order = self._store.repository, self._order
        wanted = repository.load_manifest(str(record.manifest))
        reader = ChunkReader(repository.origin, wanted.chunk_size)
        pace = Pace(
            RateLimit(order.read_rate),
            RateLimit(order.write_rate),
            self._agent.check,
            lambda done, total: self._agent.say(progress=[done, total]),
            self._agent.wait,
        )
        return VersionWriter(
            target,
            wanted,
            self._comparison(target, backing),
            wanted.chunk_size,
            ChunkSupply(reader, wanted.chunk_size, base, PlacedChunks(target)),
            pace,
            self._touch,
        )

    def _comparison(self, target: DiskTarget, backing: str | None) -> Comparison | None:
        """Return the version with what it has otherwise than the disk's base; None: not known."""
        request = self._order.request
        found = find_comparison(
            self._store, target.size_bytes, request.version, request.base_image, backing
        )
        return found if found is not None and found.version == request.version else None

    def _touch(self) -> None:
        self._touched = True


def _require_size(record: VersionRecord, target: DiskTarget) -> None:
    """Refuse a disk of another size: it was resized, and so would lose bytes or have strange ones.

    :raises UnsupportedError: then.
    """
    if record.size_bytes != target.size_bytes:
        raise exception.UnsupportedError(
            f"the version has {record.size_bytes} bytes, disk {target.device} {target.size_bytes}: "
            "it was resized since",
            hint="ask for the method rebuild",
        )


def _backing_file(disk: GuestDisk) -> str | None:
    names: list[str] = []
    if disk.format == "qcow2" and disk.path is not None:
        with contextlib.suppress(OSError):
            names = read_backing_names(disk.path)
    return names[0] if len(names) == 1 else None


def _open_libvirt(order: RestoreOrder) -> "Hypervisor":
    from acstor.agent.hypervisor.libvirt_driver import LibvirtHypervisor

    return LibvirtHypervisor(order.libvirt_uri, uses_monitor=order.uses_monitor)


def run(
    order: RestoreOrder, agent: Agent, open_hypervisor: Callable[[RestoreOrder], "Hypervisor"]
) -> RestoreReport:
    """Do an order; what it has open ends with the process."""
    try:
        hypervisor = open_hypervisor(order)
        url, timeout = order.origin.url, order.origin.timeout_s
        repository = open_repository(lambda: open_origin(url, timeout))
    except exception.AcstorError as error:
        return RestoreReport(Written(), is_touched=False, failure=Failure.of(error))
    return Restorer(order, agent, VersionStore(repository), hypervisor).restore()


def main(
    arguments: list[str], open_hypervisor: Callable[[RestoreOrder], "Hypervisor"] = _open_libvirt
) -> int:
    """Do one order.

    :param open_hypervisor: a test may put its own.
    """
    parent = tie_to_agent()
    if parent is None:
        return 1
    agent = Agent(int(arguments[0]))

    def end(*_: object) -> None:
        if os.getppid() != parent:
            # Nobody hears how it ends, and the next one needs the disk: qemu-nbd ends with it.
            os._exit(1)
        agent.end()

    signal.signal(signal.SIGTERM, end)
    order = RestoreOrder.parse(agent.read_line())
    yield_to_others(order.nice)
    report = run(order, agent, open_hypervisor)
    agent.say(report=report.to_fields())
    return 0 if report.failure is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

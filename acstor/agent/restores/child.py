"""The process of one restore, started with ``-m`` and a descriptor.

All disks of a restore are opened, and what is to be written is looked at, before the first byte is
written; they are closed once all are written. It computes beside the guests and the data plane, and
so is a process of its own with a low priority (RFD 1). It ends with the agent. Ended by SIGTERM it
says whether it has written anything; killed it leaves disks that are half written, into which the
next one writes the rest.
"""

import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from acstor import exception
from acstor.agent.captures.child import Agent, tie_to_agent, yield_to_others
from acstor.agent.captures.disk_choice import choose_disks
from acstor.agent.captures.parents import Comparison, find_comparison
from acstor.agent.captures.reading import Pace
from acstor.agent.hypervisor.domain_xml import Guest, GuestDisk
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.supply import BaseFile, ChunkSupply, PlacedChunks
from acstor.agent.restores.target import DiskTarget, open_target
from acstor.agent.restores.uefi_variables import VariablesTarget, read_variables
from acstor.agent.restores.writing import VersionWriter, Written
from acstor.drivers.nova.image_links.qcow2_header import read_backing_names
from acstor.origin.opening import open_origin
from acstor.rate_limit import RateLimit
from acstor.repository.opening import open_repository
from acstor.repository.reading.chunk_reader import ChunkReader
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.progress import Failure

if TYPE_CHECKING:
    from acstor.agent.hypervisor.base import Hypervisor

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class OpenedDisk:
    """A disk that is to be written, open, and the file that it is based on."""

    version: str
    record: VersionRecord
    target: DiskTarget
    backing: str | None
    base_image: str | None


class Restorer:
    """Writes the versions of one request into the disks of one server.

    :param open_disk: opens a disk; a test may put its own.
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
        request = self._order.request
        records = [self._record(disk.version) for disk in request.disks]
        nvram = None if request.nvram is None else self._variables_of(request.nvram)
        guest, disks = self._disks()
        with contextlib.ExitStack() as stack:
            opened = [
                self._opened(stack, record, disk, wanted.version)
                for record, disk, wanted in zip(records, disks, request.disks, strict=True)
            ]
            self._require_stopped()  # one that was started before the lock was taken has ended it
            for each in opened:
                _require_size(each.record, each.target)
            variables = None if nvram is None else _variables_target(stack, guest, nvram)
            written = self._write(stack, opened)
            if variables is not None:
                # While the disks are QEMU's: nobody starts the server of what is half written.
                variables.put(self._touch)
                written.written_bytes += variables.written_bytes
            for each in opened:
                each.target.finish()
        self._require_there()
        return written

    def _write(self, stack: contextlib.ExitStack, opened: list[OpenedDisk]) -> Written:
        """Write one disk after the other; return the account of all."""
        limits = RateLimit(self._order.read_rate), RateLimit(self._order.write_rate)
        account, totals = Written(), [0]

        def advance(done: int, _: int) -> None:
            self._agent.say(progress=[account.read_bytes + done, totals[0]])

        pace = Pace(*limits, self._agent.check, advance, self._agent.wait)
        writers = [self._writer(stack, each, pace) for each in opened]
        totals[0] = sum(writer.data_bytes for writer in writers)
        for writer in writers:
            account.add(writer.write())
        return account

    def _record(self, version_id: str) -> VersionRecord:
        """Return the record of a version.

        :raises NotFoundError: when the project has none of that id.
        :raises ConflictError: when it is no restore point.
        """
        version = self._store.find(version_id)
        if version is None or version.record.project != self._order.request.project:
            raise exception.NotFoundError(f"version {version_id} does not exist")
        record = version.record
        if record.state is VersionState.CAPTURED or record.logs:
            raise exception.ConflictError(
                f"version {version_id} is {record.state.value}: its content is not stored"
            )
        return record

    def _variables_of(self, version_id: str) -> bytes:
        """Return the UEFI variables of a version.

        :raises ConflictError: when it has none.
        """
        manifest = self._record(version_id).nvram
        if manifest is None:
            raise exception.ConflictError(f"version {version_id} has no UEFI variables")
        return read_variables(self._store.repository, manifest)

    def _disks(self) -> tuple[Guest, list[GuestDisk]]:
        """Return the server, which does not run, and its disks in the order of the request.

        :raises NotFoundError: when there is no such server or disk here.
        :raises UnsupportedError: when one is none that can be written to, with the reason.
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
        devices = [disk.device for disk in request.disks]
        taken = {disk.device: disk for disk in choose_disks(guest, devices).taken}
        return guest, [taken[device] for device in devices]

    def _opened(
        self,
        stack: contextlib.ExitStack,
        record: VersionRecord,
        disk: GuestDisk,
        version: str,
    ) -> OpenedDisk:
        """Open a disk; the stack closes it."""
        target = self._open_disk(disk.device, disk.path or "", disk.format)
        stack.callback(target.close)
        request = self._order.request
        base_image = request.base_image if disk.device == request.device else None
        return OpenedDisk(version, record, target, _backing_file(disk), base_image)

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

    def _writer(self, stack: contextlib.ExitStack, opened: OpenedDisk, pace: Pace) -> VersionWriter:
        repository, target = self._store.repository, opened.target
        base = BaseFile.open(repository, opened.base_image, opened.backing)
        stack.callback(base.close)
        manifest = opened.record.manifest
        wanted = None if manifest is None else repository.load_manifest(manifest)
        chunk_size = repository.chunk_size if wanted is None else wanted.chunk_size
        reader = ChunkReader(repository.origin, chunk_size)
        return VersionWriter(
            target,
            wanted,
            self._comparison(opened),
            chunk_size,
            ChunkSupply(reader, chunk_size, base, PlacedChunks(target)),
            pace,
            self._touch,
        )

    def _comparison(self, opened: OpenedDisk) -> Comparison | None:
        """Return the version with what it has otherwise than the disk's base; None: not known."""
        found = find_comparison(
            self._store,
            opened.target.size_bytes,
            opened.version,
            opened.base_image,
            opened.backing,
        )
        return found if found is not None and found.version == opened.version else None

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


def _variables_target(stack: contextlib.ExitStack, guest: Guest, content: bytes) -> VariablesTarget:
    """Return the file of a server's UEFI variables; the stack closes it.

    :raises UnsupportedError: when the server has none.
    """
    if guest.nvram is None:
        raise exception.UnsupportedError(
            f"server {guest.server} has no UEFI variables, and the version has",
            hint="restore with --keep-uefi-variables",
        )
    target = VariablesTarget(guest.nvram, content)
    stack.callback(target.close)
    return target


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

"""The process of one reading, or of one batch of commits, started with ``-m`` and a descriptor.

It computes beside the guests and the data plane, and so is a process of its own with a low priority
(RFD 1). It ends with the agent. Ended by SIGTERM it leaves nothing in the hypervisor.
"""

import ctypes
import functools
import logging
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acstor import exception, warning_filters
from acstor.agent.captures import orders
from acstor.agent.captures.opening import MomentOpener, OpenedMoment
from acstor.agent.captures.orders import CommitOrder, HeldDisk, HeldMoment, ReadOrder
from acstor.agent.captures.parents import find_comparison, scope_of
from acstor.agent.captures.reading import Pace, read_disk
from acstor.agent.captures.room import Room
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.spool import SpoolWriter
from acstor.agent.captures.storing import NVRAM, CommitSettings, Committer, begin
from acstor.rate_limit import RateLimit
from acstor.repository.opening import open_repository
from acstor.repository.versions.delta_capture import Settings
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.progress import Failure

if TYPE_CHECKING:
    from acstor.agent.hypervisor.base import Hypervisor

LOG = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_IOPRIO_SET_OF_MACHINE = {"x86_64": 251, "aarch64": 30}
"""Number of ioprio_set(2), which glibc has no function for."""
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_LOWEST = 2 << 13 | 7
"""Class best-effort, the lowest of its levels: the idle class might wait for ever."""


class EndedError(exception.UnavailableError):
    """The agent has ended this process."""


WAIT_PART_SECONDS = 0.2
"""Time within which a process that waits for a rate notices that it is to end."""


class Agent:
    """The agent, at the other end of a socket, as this process talks to it."""

    def __init__(self, descriptor: int) -> None:
        """Use an open socket."""
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        self.is_ended = False

    def read_line(self) -> bytes:
        """Return the line that says what to do."""
        with self._socket.makefile("rb") as lines:
            line = lines.readline(orders.LINE_SIZE_MAX)
        if not line.endswith(b"\n"):
            os._exit(1)  # the agent is gone
        return line

    def say(self, **message: Any) -> None:
        """Say something; from any thread."""
        with self._lock:
            self._socket.sendall(orders.encode(message))

    def end(self, *_: object) -> None:
        """Have the work end soon; a signal handler."""
        self.is_ended = True

    def wait(self, seconds: float) -> None:
        """Wait for a rate, and no longer once this process is to end.

        By parts: a sleep goes on after a signal, and an event has a lock, for which its handler
        could wait.
        """
        end_at = time.monotonic() + seconds
        while not self.is_ended and (left := end_at - time.monotonic()) > 0:
            time.sleep(min(left, WAIT_PART_SECONDS))

    def check(self) -> None:
        """Refuse to go on once this process is to end.

        :raises EndedError: then.
        """
        if self.is_ended:
            raise EndedError("the agent has ended this work", hint="ask again")


class Reader:
    """Reads the disks of one moment into their spools."""

    def __init__(
        self, order: ReadOrder, agent: Agent, store: VersionStore, opener: MomentOpener
    ) -> None:
        self._order = order
        self._agent = agent
        self._store = store
        self._opener = opener
        limits = order.limits
        self._room = Room(order.folder, limits.room_bytes, limits.reserve_percent)
        self._scope = scope_of(store, order.request)
        self._pace = Pace(
            RateLimit(limits.read_rate),
            RateLimit(limits.write_rate),
            agent.check,
            self._advance,
            agent.wait,
        )

    def read(self) -> HeldMoment:
        """Read the disks; errors as of :class:`.MomentOpener` and :func:`.read_disk`."""
        order = self._order
        with self._opener.opened(order.request, order.pinned, order.pinned_at) as opened:
            if opened.nvram is not None:
                self._keep_nvram(opened.nvram)
            disks = tuple(
                self._read_one(opened, source, number)
                for number, source in enumerate(opened.sources)
            )
            moment = HeldMoment(
                opened.created_at,
                opened.consistency,
                opened.note,
                disks,
                opened.left_out,
                self._scope,
            )
        begin(self._store, order.request, moment, order.origin.host)
        return moment

    def _read_one(self, opened: OpenedMoment, source: DiskSource, number: int) -> HeldDisk:
        request, device = self._order.request, source.device
        comparison = find_comparison(
            self._store,
            source.size_bytes,
            request.parents.get(device),
            request.base_image,
            opened.backing_files.get(device),
        )
        folder = os.path.join(self._order.folder, device)
        os.mkdir(folder, 0o700)
        chunk_size = self._store.repository.chunk_size
        spool = SpoolWriter(
            folder,
            chunk_size,
            source.size_bytes,
            is_whole=comparison is None,
            reserve=self._room.reserve,
        )
        try:
            read_disk(source, spool, comparison, chunk_size, self._scope, self._pace)
            spool.finish()
        finally:
            spool.close()
        return HeldDisk(
            device=device,
            version=request.version_id(device),
            size_bytes=source.size_bytes,
            held_bytes=spool.held_bytes,
            is_whole=comparison is None,
            parent=None if comparison is None else comparison.parent.digest,
            parent_version=None if comparison is None else comparison.version,
            # The first disk is the one that a guest boots from.
            has_nvram=number == 0 and opened.nvram is not None,
        )

    def _keep_nvram(self, content: bytes) -> None:
        self._room.reserve(len(content))
        path = os.path.join(self._order.folder, NVRAM)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _advance(self, done: int, total: int) -> None:
        self._agent.say(progress=[done, total])


def run_read(order: ReadOrder, agent: Agent, hypervisor: "Hypervisor") -> dict[str, Any]:
    """Do a reading; return the report."""
    repository = _open(order.origin)
    try:
        opener = MomentOpener(
            hypervisor,
            order.scratch_path,
            order.limits.scratch_max,
            lambda server: agent.say(frozen=server),
        )
        moment = Reader(order, agent, VersionStore(repository), opener).read()
        return moment.to_fields()
    finally:
        repository.origin.close()


def run_commit(order: CommitOrder, agent: Agent) -> dict[str, Any]:
    """Do a batch of commits; return by task why one failed, None where it did not."""
    repository = _open(order.origin)
    total = sum(disk.held_bytes for one in order.captures for disk in one.moment.disks)
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        agent.say(progress=[done, total])

    try:
        settings = CommitSettings(
            Settings(order.pack_size, order.workers, order.known_chunks_max, order.reserve_percent),
            lambda version: agent.say(committed=version),
            agent.check,
            advance,
        )
        committer = Committer(VersionStore(repository), order.origin.host, settings)
        outcomes: dict[str, Any] = {}
        for capture in order.captures:
            act = functools.partial(committer.commit, capture)
            outcomes[capture.request.task] = _attempt(act)
        return {"outcomes": outcomes}
    finally:
        repository.origin.close()


def _attempt(act: Callable[[], None]) -> dict[str, Any] | None:
    """Do something; return why it failed, None where it did not."""
    try:
        act()
    except EndedError:
        raise
    except Exception as error:
        if not isinstance(error, exception.AcstorError):
            LOG.exception("a commit failed")
        return failure_fields(error)
    return None


def failure_fields(error: BaseException) -> dict[str, Any]:
    """Return the JSON form of a failure."""
    found = Failure.of(error)
    return {"kind": found.kind.value, "message": found.message, "hint": found.hint}


def _open(order: orders.OriginOrder) -> Any:
    from acstor.origin.opening import open_origin

    return open_repository(lambda: open_origin(order.url, order.timeout_s))


def yield_to_others(nice: int) -> None:
    """Lower the priority of this process, of its processor time and of its reads and writes.

    Where the unit of the agent does not allow it, the rates of ``[captures]`` are the only limits.
    """
    try:
        os.nice(nice)
    except OSError as error:
        LOG.warning("a capture has the priority of the agent: %s", error.strerror)
    number = _IOPRIO_SET_OF_MACHINE.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_LOWEST)


def _open_libvirt(order: ReadOrder) -> "Hypervisor":
    from acstor.agent.hypervisor.libvirt_driver import LibvirtHypervisor

    return LibvirtHypervisor(order.libvirt_uri, uses_monitor=order.uses_monitor)


def _run(
    order: orders.Order, agent: Agent, open_hypervisor: Callable[[ReadOrder], "Hypervisor"]
) -> dict[str, Any]:
    if isinstance(order, CommitOrder):
        return run_commit(order, agent)
    hypervisor = open_hypervisor(order)
    try:
        return run_read(order, agent, hypervisor)
    finally:
        hypervisor.close()


def tie_to_agent() -> int | None:
    """Have this process be told to end where the agent does, and log.

    :returns: the agent's process; None: it has ended already.
    """
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != parent:
        return None
    warning_filters.ignore_eventlet()
    logging.basicConfig(level=logging.INFO)
    return parent


def main(
    arguments: list[str], open_hypervisor: Callable[[ReadOrder], "Hypervisor"] = _open_libvirt
) -> int:
    """Do one order.

    :param open_hypervisor: a test may put its own.
    """
    if tie_to_agent() is None:
        return 1
    agent = Agent(int(arguments[0]))
    signal.signal(signal.SIGTERM, agent.end)
    order = orders.parse_order(agent.read_line())
    yield_to_others(order.nice)
    try:
        agent.say(report=_run(order, agent, open_hypervisor))
    except Exception as error:
        if not isinstance(error, exception.AcstorError):
            LOG.exception("a capture failed")
        agent.say(failure=failure_fields(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

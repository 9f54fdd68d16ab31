"""The agent's reconciler of restores in place: takes requests, has them done, knows torn disks.

Each runs in a process of its own, followed by a thread of its own, at most one for each disk and a
few on a host. One of several disks is one: half written are all of them, until all are versions. It
is not begun again by itself: the flow that asks for it knows whether it is still wanted. The record
is written before a process may write; see :mod:`.table`.
"""

import collections
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.agent.captures.processes import ChildProcesses, Hearing, in_thread
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.table import RestoreRecord, RestoreTable
from acstor.agent.restores.writing import Written
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore.progress import RestoreProgress
from acstor.versions.host_restore.request import RestoreRequest, named
from acstor.versions.host_restore.states import RestoreEvent, RestoreState

LOG = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
"""Longest time between two looks at what is next, seconds."""
GONE_LOOK_SECONDS = 300.0
"""Time between two looks whether servers of half written disks are still there, seconds."""
FORGOTTEN_MAX = 1024
"""Tasks that are known as forgotten, those that were forgotten last."""
_MODULE = "acstor.agent.restores.child"
_S, _E = RestoreState, RestoreEvent


class RestoreProcesses(Protocol):
    """Does orders, each in a process of its own."""

    def do(
        self,
        order: RestoreOrder,
        progress: Callable[[int, int], None],
        is_wanted: Callable[[], bool],
        seconds: float,
    ) -> RestoreReport:
        """Do an order; nothing of the process is left then.

        :param is_wanted: asked now and then; once it says no the process is ended.
        :param seconds: that it may take.
        :raises AcstorError: when it has ended without a report: it may have written.
        """


class ChildRestores:
    """Children of the agent; see :class:`RestoreProcesses`.

    :param command: what a child runs.
    """

    def __init__(self, command: tuple[str, ...] = ("-m", _MODULE)) -> None:
        self._processes = ChildProcesses(command, purpose="a restore")

    def do(
        self,
        order: RestoreOrder,
        progress: Callable[[int, int], None],
        is_wanted: Callable[[], bool],
        seconds: float,
    ) -> RestoreReport:
        """See :class:`RestoreProcesses`."""
        found = self._processes.do_line(
            order.encode(), Hearing(progress=progress), is_wanted, seconds
        )
        try:
            return RestoreReport.from_fields(found)
        except ValueError as error:
            raise exception.InternalError(
                f"a process of a restore says nonsense: {error}"
            ) from None


class RestoreReconciler:
    """Restores of one host; a ``Reconciler``.

    :param order_of: makes the order of a request.
    :param is_gone: returns whether this host has no such server any more.
    :param jobs: most processes at a time.
    """

    name = "restores"

    def __init__(
        self,
        table: RestoreTable,
        processes: RestoreProcesses,
        order_of: Callable[[RestoreRequest], RestoreOrder],
        is_gone: Callable[[str], bool],
        jobs: int = 1,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._processes = processes
        self._order_of = order_of
        self._is_gone = is_gone
        self._jobs = jobs
        self._clock = clock
        self._condition = threading.Condition(threading.RLock())  # of everything below
        self._aborting: set[str] = set()
        self._writing: dict[str, threading.Thread] = {}
        self._ended: dict[str, RestoreReport] = {}
        """By task, reports of processes that are not written down yet."""
        self._forgotten: collections.OrderedDict[str, int] = collections.OrderedDict()
        """By task that was forgotten its epoch: a start that is late must not begin it anew."""
        self._gone: frozenset[str] = frozenset()
        """Tasks of half written disks whose servers were not here at the last look."""
        self._look_at = clock()
        self._is_stopping = False
        self._is_ready = False
        """Set once it is known what the agent before has left."""
        self._problems: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    # The reconciler

    def start(self) -> None:
        """Read what the agent before has left, and start the thread."""
        self._thread = in_thread("restores", self._run)

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Return what is wrong, disks that are half written included."""
        del snapshot
        with self._condition:
            self._condition.notify_all()
            torn = {
                f"restore {task}": f"half written: {named(record.request)}; it must not be started"
                for task, record in self._table.records.items()
                if record.state is _S.TORN
            }
            return {**self._problems, **self._table.problems, **torn}

    def stop(self, timeout: float) -> None:
        """End processes and threads; what was being written is torn, until it is begun again."""
        until = self._clock() + timeout
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
            threads = [self._thread, *self._writing.values()]
        for thread in threads:
            if thread is not None and thread.is_alive():
                thread.join(max(0.0, until - self._clock()))

    # What other services ask for

    def start_restore(self, request: RestoreRequest, epoch: int) -> RestoreProgress:
        """Take a request, or go on with one that is known; see :class:`.RestoreEndpoint`.

        :raises ConflictError: when a disk is being written for another request, or when disks of
            the server are half written that this one is not about.
        :raises FencedError: when the task has ended: that was asked for before, and is late.
        """
        with self._condition:
            self._check_ready()
            task = request.task
            if task not in self._table.records:
                if epoch <= self._forgotten.get(task, 0):
                    raise exception.FencedError(f"the restore of task {task} has ended")
                self._refuse_other(request)
                is_torn = bool(self._torn_devices(request))
                record = self._table.add(request, epoch, is_torn=is_torn)
            else:
                record = self._again(self._table.get(task, epoch), request)
            self._condition.notify_all()
            return self._table.progress(record)

    def progress_of(self, task: str, epoch: int) -> RestoreProgress:
        """Return how far a restore is."""
        with self._condition:
            self._check_ready()
            return self._table.progress(self._table.get(task, epoch))

    def abort(self, task: str, epoch: int) -> RestoreProgress:
        """Have it end, unless it has; the disk may stay half written."""
        with self._condition:
            self._check_ready()
            record = self._table.get(task, epoch)
            if record.state is _S.WRITING:
                self._aborting.add(task)
            elif record.state is _S.QUEUED:
                event = _E.TEAR if record.is_torn else _E.ABORT
                record = self._move(task, event, failure=Failure.of(_given_up()))
            return self._table.progress(record)

    def discard(self, task: str, epoch: int) -> bool:
        """Forget a restore that has ended; return whether that is done.

        :raises ConflictError: when the disk is half written, and there still.
        """
        with self._condition:
            self._check_ready()
            try:
                record = self._table.get(task, epoch)
            except exception.NotFoundError:
                self._forget(task, epoch)
                return True
            if record.state in (_S.QUEUED, _S.WRITING):
                self.abort(task, epoch)
                return False
        if record.state is _S.TORN and not self._is_gone(record.request.server):
            raise exception.ConflictError(
                f"half written: {named(record.request)}", hint="restore versions into all of it"
            )
        with self._condition:
            found = self._table.records.get(task)
            if found is None or found != record:
                return found is None
            self._table.move(task, _E.DISCARD)
            self._forget(task, epoch)
            return True

    def _forget(self, task: str, epoch: int) -> None:
        self._forgotten[task] = max(epoch, self._forgotten.pop(task, 0))
        if len(self._forgotten) > FORGOTTEN_MAX:
            self._forgotten.popitem(last=False)

    def _check_ready(self) -> None:
        if not self._is_ready:
            raise exception.UnavailableError(
                "the agent has just been started, and looks what restores there are",
                hint="ask again; see its problems where that goes on",
            )

    def _others_of(self, request: RestoreRequest) -> list[RestoreRecord]:
        """Return restores of the same server by other tasks."""
        return [
            record
            for task, record in self._table.records.items()
            if task != request.task and record.request.server == request.server
        ]

    def _torn_devices(self, request: RestoreRequest) -> frozenset[str]:
        """Return disks of the server that are half written, by whatever task."""
        own = self._table.records.get(request.task)
        torn = [each for each in self._others_of(request) if each.state is _S.TORN]
        if own is not None and own.is_torn:
            torn.append(own)
        return frozenset(device for record in torn for device in record.request.devices)

    def _refuse_other(self, request: RestoreRequest) -> None:
        """Refuse disks that another task writes to, and to leave some of a server half written.

        What is half written is mended by whoever restores it next: that is allowed, as a whole. The
        server is started after that.
        """
        for record in self._others_of(request):
            is_writing = record.state in (_S.QUEUED, _S.WRITING)
            if is_writing and record.request.devices & request.devices:
                raise exception.ConflictError(
                    f"of {named(request)} some is restored by task {record.request.task}",
                    hint="wait for that, or cancel it",
                )
        if left := self._torn_devices(request) - request.devices:
            raise exception.ConflictError(
                f"half written of server {request.server}, too: {', '.join(sorted(left))}",
                hint="restore versions into all of them at once, of one group",
            )

    def _again(self, record: RestoreRecord, request: RestoreRequest) -> RestoreRecord:
        """Return a restore that is known, once it is asked for again."""
        task, is_same = request.task, record.request == request
        if is_same and record.state in (_S.QUEUED, _S.WRITING, _S.DONE):
            return record
        if record.state is _S.WRITING:
            raise exception.ConflictError(
                f"task {task} writes version {record.request.version}", hint="abort that first"
            )
        self._refuse_other(request)
        return self._move(task, _E.START, request=request, failure=None, written=Written())

    def _move(self, task: str, event: RestoreEvent, **changes: Any) -> RestoreRecord:
        record = self._table.move(task, event, **changes)
        assert record is not None  # only DISCARD forgets
        return record

    # The thread

    def _run(self) -> None:
        try:
            self.take_stock()
        except (OSError, exception.AcstorError) as error:
            with self._condition:
                self._problems[self.name] = exception.one_line(error)
            LOG.error("no disk can be restored in place: %s", error)
            return
        while True:
            with self._condition:
                if self._is_stopping:
                    return
            try:
                self.step()
                self.forget_gone()
                with self._condition:
                    self._problems.pop(self.name, None)
            except Exception as error:
                with self._condition:
                    self._problems[self.name] = exception.one_line(error)
                LOG.exception("a step of restores failed")
            with self._condition:
                if not self._is_stopping:
                    self._condition.wait(IDLE_SECONDS)

    def take_stock(self) -> None:
        """Read what the agent before has left: what was being written is torn.

        :raises OSError: when the folder cannot be read.
        :raises AcstorError: when what is found cannot be written down.
        """
        self._table.load()
        for task, record in list(self._table.records.items()):
            if record.state is _S.WRITING:
                self._move(
                    task,
                    _E.TEAR,
                    is_torn=True,
                    failure=Failure.of(
                        exception.UnavailableError(
                            "the agent was ended while the disk was written", hint="restore again"
                        )
                    ),
                )
        with self._condition:
            self._is_ready = True

    def step(self) -> None:
        """Write down how processes have ended, and begin what is next; it goes on beside."""
        with self._condition:
            for task, report in list(self._ended.items()):
                self._note_end(task, report)
            for task, record in list(self._table.records.items()):
                if record.state is not _S.QUEUED or len(self._writing) >= self._jobs:
                    continue
                # Written down before a process may write.
                begun = self._move(task, _E.WRITE)
                work = functools.partial(self.write, begun)
                self._writing[task] = in_thread(f"restore-{task[:8]}", work)

    def forget_gone(self) -> None:
        """Forget half written disks of servers that are not here at two looks in a row.

        They were deleted or moved after their task had ended, so nobody else asks for it. What is
        half written elsewhere the lock of the server says.

        :raises UnavailableError: when the hypervisor cannot be asked.
        """
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + GONE_LOOK_SECONDS
        with self._condition:
            records = self._table.records.items()
            torn = {task: record for task, record in records if record.state is _S.TORN}
        gone = frozenset(task for task in torn if self._is_gone(torn[task].request.server))
        with self._condition:
            for task in gone & self._gone:
                if self._table.records.get(task) == torn[task]:
                    self._table.move(task, _E.DISCARD)
        self._gone = gone

    def write(self, record: RestoreRecord) -> None:
        """Have a process write, and note how that ended."""
        request = record.request
        try:
            report = self._processes.do(
                self._order_of(request),
                lambda done, total: self._advance(request.task, done, total),
                lambda: self._is_wanted(request.task),
                request.deadline_s,
            )
        except Exception as error:
            if not isinstance(error, exception.AcstorError):
                LOG.exception("restore %s failed", request.task)
            report = RestoreReport(Written(), is_touched=True, failure=Failure.of(error))
        with self._condition:
            self._writing.pop(request.task, None)
            self._ended[request.task] = report
            self._condition.notify_all()

    def _note_end(self, task: str, report: RestoreReport) -> None:
        """Write down how a process has ended; what cannot be is tried again.

        :raises UnavailableError: when it cannot be now.
        """
        record = self._table.records[task]
        is_torn = report.failure is not None and (record.is_torn or report.is_touched)
        event = _E.REFUSE
        if report.failure is None:
            event = _E.FINISH
            # Whatever was half written is whole now.
            for other in self._others_of(record.request):
                if other.state is _S.TORN and other.request.devices <= record.request.devices:
                    self._table.move(other.request.task, _E.DISCARD)
        elif is_torn:
            event = _E.TEAR
        self._move(task, event, is_torn=is_torn, failure=report.failure, written=report.written)
        del self._ended[task]
        self._aborting.discard(task)  # it may have been aborted after its end

    def _advance(self, task: str, done: int, total: int) -> None:
        with self._condition:
            self._table.advance(task, done, total)

    def _is_wanted(self, task: str) -> bool:
        with self._condition:
            return not self._is_stopping and task not in self._aborting


def _given_up() -> exception.AcstorError:
    return exception.UnavailableError("the restore was given up", hint="ask again")

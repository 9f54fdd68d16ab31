"""The agent's reconciler of captures: takes requests, has them done, and clears up after deaths.

What takes long runs in processes (:mod:`.processes`), each followed by a thread of its own. One
thread decides what is next. The record of each capture is written before anything is done, so that
an agent that is started again knows what the one before was about.
"""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from acstor import exception
from acstor.agent.captures import opening
from acstor.agent.captures.freezing import Freezer
from acstor.agent.captures.opening import shares_files
from acstor.agent.captures.orders import HeldCapture, HeldMoment
from acstor.agent.captures.outcomes import BatchOutcome
from acstor.agent.captures.pins import PINNING, Pin, PinKeeper
from acstor.agent.captures.processes import Hearing, Processes, in_thread
from acstor.agent.captures.settings import CaptureSettings
from acstor.agent.captures.table import CaptureRecord, CaptureTable
from acstor.agent.captures.volumes import DataPlaneCalls, publish_volume
from acstor.agent.hypervisor.base import Hypervisor
from acstor.agent.hypervisor.domain_xml import Guest
from acstor.agent.reconciler import HostSnapshot
from acstor.backoff import BackOff
from acstor.repository.versions.record import DiskKind, Trigger
from acstor.repository.versions.store import VersionStore
from acstor.versions.delayed_commit import CapturedDelta, DelayedCommits
from acstor.versions.host_capture.progress import CaptureProgress, Failure
from acstor.versions.host_capture.request import CaptureRequest
from acstor.versions.host_capture.states import ENDED, CaptureEvent, CaptureState

LOG = logging.getLogger(__name__)

RETRY = BackOff(first=5.0, longest=300.0)
"""Delays before what was put off, or could not be abandoned, is tried again."""
COMMIT_SECONDS = 86400.0
"""Longest time of one batch of commits, seconds."""
IDLE_SECONDS = 5.0
"""Longest time between two looks at what is next, seconds."""
_S, _E = CaptureState, CaptureEvent


class CaptureReconciler:
    """Captures of one host; a ``Reconciler``.

    :param hypervisor: None: this host has captures of volumes only, with the reason in
        ``no_hypervisor``.
    :param open_store: opens the versions of the repository; what it returns is closed.
    :param on_end: told the state in which a capture ended, for metrics.
    :param clock: monotonic seconds.
    :param now: POSIX seconds.
    """

    name = "captures"

    def __init__(
        self,
        settings: CaptureSettings,
        table: CaptureTable,
        processes: Processes,
        hypervisor: Hypervisor | None,
        open_store: Callable[[], contextlib.AbstractContextManager[VersionStore]],
        data_plane: DataPlaneCalls,
        pins: PinKeeper | None = None,
        *,
        no_hypervisor: str = "",
        on_end: Callable[[str], None] = lambda outcome: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._table = table
        self._processes = processes
        self._hypervisor = hypervisor
        self._no_hypervisor = no_hypervisor
        self._open_store = open_store
        self._data_plane = data_plane
        self._pins = pins
        self._on_end = on_end
        self._clock = clock
        self._now = now
        self._condition = threading.Condition(threading.RLock())  # of everything below
        self._delayed = DelayedCommits(settings.bounds)
        self._aborting: set[str] = set()
        self._discarding: set[str] = set()
        self._reading: set[str] = set()
        self._committing: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        self._is_stopping = False
        self._is_ready = False
        """Set once it is known what the agent before has left."""
        self._problems: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        self._workers: list[threading.Thread] = []

    # The reconciler

    def start(self) -> None:
        """Read what the agent before has left, and start the thread."""
        if self._pins is not None:
            self._pins.start()
        self._thread = in_thread("captures", self._run)

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Return what is wrong; the work is done on its own thread."""
        del snapshot
        with self._condition:
            self._condition.notify_all()
            found = {**self._problems, **self._table.problems}
        if self._no_hypervisor:
            found[self.name] = self._no_hypervisor
        if self._pins is not None:
            found.update(self._pins.problems)
        return found

    def stop(self, timeout: float) -> None:
        """End processes and threads; what was being read has failed, the rest goes on later."""
        until = self._clock() + timeout
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
            threads = [self._thread, *self._workers]
        for thread in threads:
            if thread is not None and thread.is_alive():
                thread.join(max(0.0, until - self._clock()))
        if self._pins is not None:
            self._pins.stop(max(0.0, until - self._clock()))
        if self._hypervisor is not None:
            self._hypervisor.close()

    # What other services ask for

    def start_capture(self, request: CaptureRequest, epoch: int) -> CaptureProgress:
        """Take a request, or go on with one that is known; see :class:`.CaptureEndpoint`."""
        with self._condition:
            self._check_ready()
            record = self._table.records.get(request.task)
            is_to_begin = record is None or record.state in (_S.FAILED, _S.ABORTED)
        if is_to_begin:
            self._check_possible(request)  # not under the lock: the hypervisor may hang
        with self._condition:
            record = self._table.records.get(request.task)
            if record is None:
                record = self._table.add(request, epoch)
                self._expect(record)
            else:
                was_newer = epoch > record.epoch
                record = self._table.get(request.task, epoch)
                if was_newer and record.state in (_S.FAILED, _S.ABORTED):
                    record = self._begin_anew(record, request)
            self._condition.notify_all()
            return self._table.progress(record)

    def progress_of(self, task: str, epoch: int) -> CaptureProgress:
        """Return how far a capture is."""
        with self._condition:
            self._check_ready()
            return self._table.progress(self._table.get(task, epoch))

    def abort(self, task: str, epoch: int) -> CaptureProgress:
        """Give a capture up, unless it has ended; that may take a while."""
        with self._condition:
            self._check_ready()
            record = self._table.get(task, epoch)
            if record.state not in ENDED:
                self._aborting.add(task)
                self._condition.notify_all()
            return self._table.progress(record)

    def discard(self, task: str, epoch: int) -> bool:
        """Forget a capture; return whether that is done."""
        with self._condition:
            self._check_ready()
            try:
                record = self._table.get(task, epoch)
            except exception.NotFoundError:
                return True
            if record.state not in ENDED:
                self._aborting.add(task)
            self._discarding.add(task)
            self._condition.notify_all()
            if record.state in ENDED and not record.is_begun:
                self._forget(task)
            return task not in self._table.records

    def follow(self, server: str, triggers: frozenset[Trigger]) -> bool:
        """Note at which events versions of a server are wanted; return whether it is pinned."""
        if self._pins is None:
            return False
        self._pins.follow(server, triggers)
        return True

    def _check_ready(self) -> None:
        if not self._is_ready:
            raise exception.UnavailableError(
                "the agent has just been started, and looks what captures there are",
                hint="ask again; see its problems where that goes on",
            )

    def _check_possible(self, request: CaptureRequest) -> None:
        if request.kind is DiskKind.VOLUME:
            return
        if self._hypervisor is None:
            raise exception.UnsupportedError(
                f"this host captures no servers: {self._no_hypervisor}",
                hint="see to libvirt on that host, or set [captures] enabled = false",
            )
        is_pinned = self._pins is not None and self._pins.newest(request.owner) is not None
        if not is_pinned and self._hypervisor.find(request.owner) is None:
            raise exception.NotFoundError(
                f"there is no server {request.owner} on this host",
                hint="it was deleted or moved; only committed versions of it are left",
            )

    def _expect(self, record: CaptureRecord) -> None:
        self._delayed.expect(record.slot, [record.request.task])

    def _begin_anew(self, record: CaptureRecord, request: CaptureRequest) -> CaptureRecord:
        task = record.request.task
        self._aborting.discard(task)
        self._discarding.discard(task)
        self._table.clear_folder(task)
        anew = self._table.move(
            task, _E.START, request=request, moment=None, failure=None, attempts=0
        )
        assert anew is not None  # START forgets nothing
        self._expect(anew)
        return anew

    # The thread

    def _run(self) -> None:
        try:
            self.take_stock()
        except (OSError, exception.AcstorError) as error:
            self._problems[self.name] = exception.one_line(error)
            LOG.error("captures cannot be taken: %s", error)
            return
        while True:
            with self._condition:
                if self._is_stopping:
                    return
                self._workers = [one for one in self._workers if one.is_alive()]
            try:
                self.step()
            except Exception as error:
                self._problems[self.name] = exception.one_line(error)
                LOG.exception("a step of captures failed")
            with self._condition:
                if not self._is_stopping:
                    self._condition.wait(self._seconds_to_wait())

    def step(self) -> None:
        """Do what is next, once; what takes long goes on beside it."""
        self._thaw_guests()
        self._end_unwanted()
        self._forget_old()
        self._start_readings()
        self._start_commits()

    def _seconds_to_wait(self) -> float:
        due = self._delayed.due_at()
        return IDLE_SECONDS if due is None else min(IDLE_SECONDS, max(0.0, due - self._clock()))

    def take_stock(self) -> None:
        """Read what the agent before has left, and clear up after it.

        :raises OSError: when the folder cannot be read.
        :raises AcstorError: when what is found cannot be written down.
        """
        self._table.load()
        for task, record in list(self._table.records.items()):
            if record.state is _S.READING:
                self._clear_hypervisor(record)
                self._fail(task, exception.UnavailableError(
                    "the agent was ended while the disks were read", hint="capture again"
                ))  # fmt: skip
            elif record.state is _S.COMMITTING:
                self._hold_again(task)
            elif record.state is _S.HELD:
                self._hold(record)
            elif record.state is _S.QUEUED:
                self._expect(record)
        with self._condition:
            self._is_ready = True

    def _thaw_guests(self) -> None:
        """Ask guests that may be frozen, and whose process is gone, to thaw."""
        for task, record in list(self._table.records.items()):
            if not record.frozen or task in self._reading or self._hypervisor is None:
                continue
            if Freezer(self._hypervisor).try_thaw(record.frozen) is not None:
                self._note(task, frozen="")
                self._problems.pop(f"guest {record.frozen}", None)
            else:
                self._problems[f"guest {record.frozen}"] = (
                    "it may be frozen: its agent does not answer to a thaw"
                )

    def _end_unwanted(self) -> None:
        """Abandon what was given up or has failed, and forget what nobody asks for any more."""
        for task, record in list(self._table.records.items()):
            if task in self._reading or task in self._committing:
                continue
            if task in self._aborting and record.state not in ENDED:
                with self._condition:
                    self._delayed.abandon(record.slot, task)
                    self._table.move(task, _E.ABORT)
                    self._end(task, _S.ABORTED)
                record = self._table.records[task]
            if record.is_begun and record.state in (_S.FAILED, _S.ABORTED) and self._is_due(task):
                self._abandon(record)
            with self._condition:
                found = self._table.records.get(task)
                is_over = found is not None and found.state in ENDED and not found.is_begun
                if is_over and task in self._discarding:
                    self._forget(task)

    def _forget_old(self) -> None:
        for task, record in list(self._table.records.items()):
            is_old = self._now() - record.entered_at > self._settings.keep_ended
            if record.state in ENDED and is_old and not record.is_begun:
                with self._condition:
                    self._forget(task)

    def _forget(self, task: str) -> None:
        self._table.move(task, _E.DISCARD)
        for known in (self._aborting, self._discarding):
            known.discard(task)
        self._retry_at.pop(task, None)
        self._attempts.pop(task, None)

    def _abandon(self, record: CaptureRecord) -> bool:
        """Give up what is in the origin of a capture; return whether that is done."""
        task = record.request.task
        try:
            with self._open_store() as store:
                for version in self._versions_of(record):
                    with contextlib.suppress(exception.NotFoundError, exception.FencedError):
                        store.abandon(version, self._settings.origin.host)
        except exception.AcstorError as error:
            self._put_off(task, error)
            return False
        self._problems.pop(f"capture {task}", None)
        self._retry_at.pop(task, None)
        self._note(task, is_begun=False)
        return True

    def _versions_of(self, record: CaptureRecord) -> Iterable[str]:
        """Return the ids of the versions that a capture may have begun."""
        if record.moment is not None:
            return [disk.version for disk in record.moment.disks]
        return [record.request.version_id(device) for device in record.devices]

    # Readings

    def _start_readings(self) -> None:
        with self._condition:
            busy = {self._table.records[task].request.owner for task in self._reading}
            for task, record in list(self._table.records.items()):
                if len(self._reading) >= self._settings.jobs or self._is_stopping:
                    return
                owner = record.request.owner
                if record.state is not _S.QUEUED or owner in busy or task in self._aborting:
                    continue
                busy.add(owner)
                self._reading.add(task)
                work = functools.partial(self._read, task)
                self._workers.append(in_thread(f"capture-{task[:8]}", work))

    def _read(self, task: str) -> None:
        record = self._table.records[task]
        try:
            if record.is_begun and not self._abandon(record):
                raise exception.UnavailableError("the origin does not forget an earlier attempt")
            if record.request.kind is DiskKind.VOLUME:
                self._read_volume(task, record)
            else:
                self._read_server(task, record)
        except Exception as error:
            if not isinstance(error, exception.AcstorError):
                LOG.exception("capture %s failed", task)
            self._end_reading(task, error)
        finally:
            with self._condition:
                self._reading.discard(task)
                self._condition.notify_all()

    def _read_volume(self, task: str, record: CaptureRecord) -> None:
        self._move(task, _E.READ)
        with self._open_store() as store:
            moment = publish_volume(store, record.request, self._data_plane)
        with self._condition:
            self._delayed.abandon(record.slot, task)
            for event in (_E.HOLD, _E.COMMIT, _E.FINISH):
                self._table.move(task, event, moment=moment)
            self._end(task, _S.COMMITTED)

    def _read_server(self, task: str, record: CaptureRecord) -> None:
        pin = self._pin_for(record.request)
        guest = pin.guest if pin is not None else self._find(record.request.owner)
        devices = () if guest is None else tuple(disk.device for disk in guest.disks)
        with self._condition:
            # Told as begun before the process may have begun it.
            self._table.move(task, _E.READ, is_begun=True, devices=devices, pin=pin and pin.folder)
            folder, held_bytes = self._table.folder(task), self._table.held_bytes
            order = self._settings.read_order(record.request, folder, held_bytes, pin)
        try:
            report = self._processes.do(
                order, self._hearing(task), lambda: self._is_wanted(task), record.request.deadline_s
            )
        finally:
            self._clear_hypervisor(self._table.records[task])
        try:
            moment = HeldMoment.from_fields(report)
        except ValueError as error:
            raise exception.InternalError(f"the report of capture {task}: {error}") from error
        with self._condition:
            held = self._table.move(task, _E.HOLD, moment=moment)
            if held is not None:
                self._hold(held)

    def _end_reading(self, task: str, error: Exception) -> None:
        with self._condition:
            record = self._table.records[task]
            self._delayed.abandon(record.slot, task)
            self._table.clear_folder(task)
            if task in self._aborting:
                self._table.move(task, _E.ABORT)
                self._end(task, _S.ABORTED)
            else:
                self._fail(task, error)

    def _pin_for(self, request: CaptureRequest) -> Pin | None:
        """Return the pin to read; None: the disks themselves are read."""
        if self._pins is None:
            return None
        guest = self._find(request.owner)
        if guest is not None and not (guest.is_active and request.version.trigger in PINNING):
            return None
        pin = self._pins.newest(request.owner)
        # A guest that runs on what is pinned writes to it: that is captured while it runs.
        is_open = pin is not None and guest is not None and shares_files(guest, pin.guest)
        return None if is_open else pin

    def _find(self, server: str) -> Guest | None:
        return None if self._hypervisor is None else self._hypervisor.find(server)

    def _hearing(self, task: str) -> Hearing:
        return Hearing(
            progress=lambda done, total: self._advance([task], done, total),
            frozen=lambda server: self._note(task, frozen=server),
        )

    def _clear_hypervisor(self, record: CaptureRecord) -> None:
        """End what a process may have left in the hypervisor; it may have been killed anywhere."""
        if self._hypervisor is not None and record.request.kind is DiskKind.INSTANCE:
            opening.clear_server(
                self._hypervisor, self._settings.scratch_path, record.request.owner
            )

    def _is_wanted(self, task: str) -> bool:
        with self._condition:
            return not self._is_stopping and task not in self._aborting

    # Commits

    def _hold(self, record: CaptureRecord) -> None:
        """Have a capture wait for those that it is compared with."""
        delta = CapturedDelta(record.request.task, record.slot, (), record.held_bytes)
        self._delayed.add(delta, self._clock())

    def _start_commits(self) -> None:
        with self._condition:
            if self._committing or self._is_stopping:
                return
            due = [one.version_id for one in self._delayed.take_due(self._clock())]
            again = [task for task, at in self._retry_at.items() if self._clock() >= at]
            batch = [
                task
                for task in dict.fromkeys((*due, *again))
                if self._is_held(task) and task not in self._aborting
            ]
            if not batch:
                return
            for task in batch:
                self._retry_at.pop(task, None)
                self._table.move(task, _E.COMMIT)
            self._committing.update(batch)
            self._workers.append(
                in_thread("capture-commit", functools.partial(self._commit, batch))
            )

    def _is_held(self, task: str) -> bool:
        record = self._table.records.get(task)
        return record is not None and record.state is _S.HELD

    def _commit(self, batch: list[str]) -> None:
        captures = tuple(
            HeldCapture(record.request, record.moment, self._table.folder(task))
            for task in batch
            if (record := self._table.records[task]).moment is not None
        )
        order = self._settings.commit_order(captures)
        outcome = BatchOutcome(captures)
        hearing = Hearing(
            progress=lambda done, total: self._advance(batch, done, total),
            committed=outcome.note_committed,
        )
        try:
            report = self._processes.do(
                order, hearing, lambda: all(map(self._is_wanted, batch)), COMMIT_SECONDS
            )
            outcome.note_report(report)
        except exception.AcstorError as error:
            outcome.note_trouble(error)
        with self._condition:
            for task in batch:
                self._end_commit(task, outcome.error_of(task))
            self._committing.clear()
            self._condition.notify_all()

    def _end_commit(self, task: str, error: exception.AcstorError | None) -> None:
        """Note the end of a commit.

        :param error: None: all of it is in the origin.
        """
        if error is None:
            self._table.move(task, _E.FINISH, is_begun=False)
            self._table.clear_folder(task)
            self._problems.pop(f"capture {task}", None)
            self._end(task, _S.COMMITTED)
            pin = self._table.records[task].pin
            if self._pins is not None and pin is not None:
                self._pins.note_captured(pin)
            return
        record = self._table.records[task]
        is_over = self._now() - record.entered_at > self._settings.hold_seconds
        if error.is_transient and not is_over:
            self._hold_again(task, error)
        else:
            self._fail(task, error)
            self._table.clear_folder(task)

    def _hold_again(self, task: str, error: exception.AcstorError | None = None) -> None:
        attempts = self._table.records[task].attempts + (error is not None)
        held = self._table.move(task, _E.PUT_OFF, attempts=attempts)
        if error is None and held is not None:
            self._hold(held)
        elif error is not None:
            self._put_off(task, error)

    def _put_off(self, task: str, error: exception.AcstorError) -> None:
        """Try again later."""
        self._attempts[task] = self._attempts.get(task, 0) + 1
        self._retry_at[task] = self._clock() + RETRY.seconds(self._attempts[task])
        self._problems[f"capture {task}"] = exception.one_line(error, with_hint=True)

    # Small things

    def _is_due(self, task: str) -> bool:
        return self._clock() >= self._retry_at.get(task, 0.0)

    def _fail(self, task: str, error: Exception) -> None:
        self._table.move(task, _E.FAIL, failure=Failure.of(error))
        self._end(task, _S.FAILED)

    def _end(self, task: str, state: CaptureState) -> None:
        self._aborting.discard(task)
        if state is not _S.COMMITTED:
            self._table.clear_folder(task)
        self._on_end(state.value)

    def _move(self, task: str, event: CaptureEvent) -> None:
        with self._condition:
            self._table.move(task, event)

    def _note(self, task: str, **changes: object) -> None:
        with self._condition:
            if task in self._table.records:
                self._table.note(task, **changes)

    def _advance(self, tasks: Iterable[str], done: int, total: int) -> None:
        with self._condition:
            for task in tasks:
                self._table.advance(task, done, total)

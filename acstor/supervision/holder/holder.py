"""Supervises one process: restarts it, watches it, keeps its descriptors meanwhile.

The holder never opens a file of the mount whose descriptor it keeps: with the server of the mount
away that would block it for ever, and it is the one who must start the next server.
"""

import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acstor.supervision import protocol
from acstor.supervision.holder.child import Child, start_child
from acstor.supervision.holder.descriptor_store import DescriptorStore
from acstor.supervision.holder.notify_socket import Notification, NotifySocket
from acstor.supervision.holder.restart_backoff import DELAY_MAX, RestartBackoff
from acstor.supervision.holder.states import HolderEvent, HolderState, next_state
from acstor.supervision.supervisor import Supervisor

LOG = logging.getLogger(__name__)

_SIGNALS = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_EXITS_ASKED_FOR = {0, protocol.EXIT_STOPPED, -signal.SIGINT, -signal.SIGTERM}


@dataclass(frozen=True)
class HolderSettings:
    """Settings that a holder is started with."""

    command: Sequence[str]
    socket_path: str
    stop_timeout: float = 10.0
    """Seconds after which a process that was asked to leave is killed."""
    watchdog: float = 30.0
    """Seconds without ``WATCHDOG=1`` after which a process that sent one is killed; 0: never."""


class Holder:
    """One supervised process; see :mod:`acstor.supervision.holder.states` for its life.

    ========  ======================================================================
    signal    what the holder does
    ========  ======================================================================
    SIGHUP    replaces the process: SIGTERM to it, then the next is started at once
    SIGTERM   stops for good: SIGINT to the process (it unmounts), then exits
    SIGINT    as SIGTERM
    ========  ======================================================================

    :param settings: command and limits.
    :param environment: of the process, to which the variables of the protocol are added.
    """

    def __init__(self, settings: HolderSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._upstream = Supervisor.from_environment(environment)
        self._notify_socket = NotifySocket(settings.socket_path)
        self._environment = self._child_environment(environment)
        self._store = DescriptorStore()
        self._backoff = RestartBackoff()
        self._child: Child | None = None
        self._restart_at: float | None = None
        self._exit_code = 0
        self.state = HolderState.WAITING

    def run(self) -> int:
        """Supervise until a signal stops the holder; return its exit code.

        :raises OSError: when the first process cannot be executed.
        """
        wake_read, wake_write = socket.socketpair()
        wake_read.setblocking(False)
        wake_write.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        try:
            self._start()
            with selectors.DefaultSelector() as selector:
                selector.register(wake_read, selectors.EVENT_READ)
                selector.register(self._notify_socket, selectors.EVENT_READ)
                while self.state is not HolderState.STOPPED:
                    selector.select(self._seconds_to_next_deadline())
                    self._receive_notifications()
                    self._take_signals(wake_read)
                    self._reap()
                    self._act_on_deadlines()
        finally:
            signal.set_wakeup_fd(-1)
            wake_read.close()
            wake_write.close()
            self._notify_socket.close()
            self._store.close()
        return self._exit_code

    def _child_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        passed = {
            name: value
            for name, value in environment.items()
            if name not in {"LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "WATCHDOG_PID"}
        }
        passed["NOTIFY_SOCKET"] = self._notify_socket.path
        passed.pop("WATCHDOG_USEC", None)
        if self._settings.watchdog > 0:
            passed["WATCHDOG_USEC"] = str(round(self._settings.watchdog * 1e6))
        return passed

    def _move(self, event: HolderEvent) -> HolderState:
        self.state = next_state(self.state, event)
        return self.state

    # Starting and ending processes

    def _start(self) -> None:
        dropped = self._store.drop_dead()
        if dropped:
            LOG.warning("dropped %d kept descriptors that were in error", dropped)
        self._restart_at = None
        self._child = start_child(self._settings.command, self._environment, self._store)
        self._move(HolderEvent.RESTART_DUE)
        LOG.info("started process %d with %d descriptors", self._child.pid, len(self._store))

    def _restart(self) -> None:
        try:
            self._start()
        except OSError as error:
            delay = self._backoff.delay_after(0.0, was_ready=False)
            LOG.error("cannot start %s: %s", self._settings.command[0], error.strerror)
            self._restart_at = time.monotonic() + max(delay, DELAY_MAX)

    def _ask_to_leave(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.kill_at is None:
            os.kill(self._child.pid, number)
            self._child.kill_at = time.monotonic() + self._settings.stop_timeout

    def _reap(self) -> None:
        if self._child is None:
            return
        pid, status = os.waitpid(self._child.pid, os.WNOHANG)
        if pid == 0:
            return
        # What it said last must be known before it is forgotten.
        self._receive_notifications()
        child, self._child = self._child, None
        code = os.waitstatus_to_exitcode(status)
        lived = time.monotonic() - child.started_at
        was_replaced = self.state is HolderState.REPLACING
        if code == protocol.EXIT_STOPPED and self.state is not HolderState.STOPPING:
            LOG.info("process %d was asked to stop for good", child.pid)
            self._move(HolderEvent.STOP)
        if self._move(HolderEvent.CHILD_EXITED) is HolderState.STOPPED:
            self._exit_code = 0 if code in _EXITS_ASKED_FOR else 1
            return
        delay = 0.0
        if not was_replaced:
            delay = self._backoff.delay_after(lived, was_ready=child.is_ready)
            ending = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
            LOG.warning("process %d %s after %.1f s", child.pid, ending, lived)
        if delay:
            LOG.warning("starting the next process in %.1f s", delay)
        self._restart_at = time.monotonic() + delay

    # What arrives

    def _take_signals(self, wake_read: socket.socket) -> None:
        try:
            numbers = wake_read.recv(64)
        except BlockingIOError:
            return
        if signal.SIGHUP in numbers and self._move(HolderEvent.REPLACE) is HolderState.REPLACING:
            LOG.info("replacing the process")
            self._ask_to_leave(signal.SIGTERM)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._move(HolderEvent.STOP)
            self._upstream.notify(STOPPING="1")
            self._ask_to_leave(signal.SIGINT)

    def _receive_notifications(self) -> None:
        while (notification := self._notify_socket.receive()) is not None:
            try:
                self._apply(notification)
            finally:
                notification.close()

    def _apply(self, notification: Notification) -> None:
        said = notification.assignments
        name = said.get("FDNAME", protocol.DEFAULT_NAME)
        if not protocol.is_valid_name(name):
            name = protocol.DEFAULT_NAME
        if said.get("FDSTOREREMOVE") == "1":
            self._store.remove(name)
        if said.get("FDSTORE") == "1":
            while notification.descriptors:
                descriptor = notification.descriptors.pop()
                self._store.add(name, descriptor, is_polled=said.get("FDPOLL") != "0")
        if self._child is None or notification.pid != self._child.pid:
            return
        if said.get("READY") == "1" and not self._child.is_ready:
            self._child.is_ready = True
            self._move(HolderEvent.READY)
            self._upstream.notify(READY="1")
            ready_after = time.monotonic() - self._child.started_at
            LOG.info("process %d is ready after %.2f s", self._child.pid, ready_after)
        if said.get("WATCHDOG") == "1":
            self._child.watchdog_seen_at = time.monotonic()

    # Time

    def _watchdog_at(self) -> float | None:
        child = self._child
        if child is None or child.watchdog_seen_at is None or self._settings.watchdog <= 0:
            return None
        return child.watchdog_seen_at + self._settings.watchdog

    def _seconds_to_next_deadline(self) -> float | None:
        kill_at = self._child.kill_at if self._child else None
        times = [at for at in (self._restart_at, kill_at, self._watchdog_at()) if at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _act_on_deadlines(self) -> None:
        now = time.monotonic()
        if self._restart_at is not None and now >= self._restart_at:
            if self.state is HolderState.WAITING:
                self._restart()
            return
        if self._child is None:
            return
        watchdog_at = self._watchdog_at()
        if self._child.kill_at is not None and now >= self._child.kill_at:
            LOG.error("process %d did not leave in time, killing it", self._child.pid)
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.kill_at = None
        elif watchdog_at is not None and now >= watchdog_at:
            LOG.error("process %d is not alive (watchdog), killing it", self._child.pid)
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.watchdog_seen_at = None

"""Membership in the group of hosts: joins it, sends heartbeats, watches the other members.

One thread owns the tooz coordinator; everybody else reads the last :class:`View`. When the
backend is away the view stays as it was and says so; the thread connects again by itself.

The host that publishes rings reads the members at each beat. The others need them for people only
and read them now and then, at each beat just whether they are members themselves: N hosts that
read N members every other second would be most of what the control plane moves.
"""

import contextlib
import dataclasses
import logging
import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tooz
from tooz import coordination

from acstor import exception
from acstor.backoff import BackOff
from acstor.cluster.endpoints import Endpoints
from acstor.cluster.member import Member
from acstor.cluster.timed_lock import TimedLock
from acstor.conf import backend_urls

LOG = logging.getLogger(__name__)

CALL_TIMEOUT = 10.0
"""Seconds for which an answer of the driver is waited for, whatever the backend's own timeout."""
CALL_TIMEOUT_MIN = 2
"""Seconds that a call to the backend may take at least, however soon members go."""
CALL_TIMEOUT_MAX = 5
"""Seconds that a call to the backend may take at most."""
RECONNECT = BackOff(first=0.5, longest=15.0, shortest=0.1, spread=1.0)
"""Delays between two attempts to reach the backend."""
MEMBERS_EVERY = 60
"""Heartbeats between two readings of the members, by hosts that do not publish rings."""
OWN_ENTRY_EVERY = 5
"""Heartbeats between two looks of a host at its own entry: with the default interval as many
seconds as the others take to forget a host."""
LOCK_EVERY_MAX = 15
"""Heartbeats between two tries for a publisher's lock that another host has, at most. Of N members
each tries at one of N heartbeats, so that one of them tries at each."""
_LOCK_SUFFIX = "ring-publisher"
_SESSION_SCHEMES = frozenset({"file", "zookeeper", "kazoo"})
"""Drivers whose one ``timeout`` is that of members; their locks last as long as the session."""


@dataclass(frozen=True)
class CoordinationSettings:
    """Coordination backend, group, and time limits by which hosts find each other."""

    backend_url: str
    """One URL, or several of one cluster."""
    group: str
    heartbeat_interval: float
    member_timeout: int

    def urls(self) -> tuple[str, ...]:
        """Return the URLs with the timeouts of members, locks and calls that they do not name.

        :raises ConfigurationError: when they are not those of one cluster.
        """
        return tuple(self._completed(url) for url in backend_urls.split(self.backend_url))

    def _completed(self, url: str) -> str:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in _SESSION_SCHEMES:
            wanted = {"timeout": self.member_timeout}
        else:
            # These are 30 s by default, however soon members go. "timeout" is that of the socket.
            wanted = {
                "membership_timeout": self.member_timeout,
                "lock_timeout": self.member_timeout,
                "timeout": self.call_timeout,
            }
        named = self._named()
        missing = [f"{name}={value}" for name, value in wanted.items() if name not in named]
        if not missing:
            return url
        separator = "&" if parts.query else "?"
        return f"{url}{separator}{'&'.join(missing)}"

    @property
    def call_timeout(self) -> int:
        """Seconds that the backend may take for one call: less than a lock lasts."""
        return max(CALL_TIMEOUT_MIN, min(CALL_TIMEOUT_MAX, self.member_timeout // 2))

    @property
    def lock_timeout(self) -> float:
        """Seconds that the backend keeps a lock after a heartbeat, as the URL says in the end.

        :raises InvalidError: when the URL names one that is no number.
        """
        values = self._named().get("lock_timeout", [])
        scheme = urllib.parse.urlsplit(self._first_url).scheme
        if not values or scheme in _SESSION_SCHEMES:
            return float(self.member_timeout)
        try:
            return float(int(values[-1]))  # tooz takes the last one, too
        except ValueError:
            raise exception.InvalidError(
                f"[coordination] backend_url: lock_timeout = {values[-1]!r:.40}",
                hint="give whole seconds, or leave it out: then it is member_timeout",
            ) from None

    @property
    def _first_url(self) -> str:
        return backend_urls.split(self.backend_url)[0]

    def _named(self) -> dict[str, list[str]]:
        """Return what the query of the URLs says; it is the same in all of them."""
        return urllib.parse.parse_qs(urllib.parse.urlsplit(self._first_url).query)


@dataclass(frozen=True)
class View:
    """Snapshot of the group as it was last read."""

    members: dict[str, Member] = field(default_factory=dict)
    """Members by name: of now where this host publishes rings, else of some time ago."""
    is_current: bool = False
    """True if the backend answers; else ``members`` are those that were seen last."""
    is_publisher: bool = False
    """True if this host holds the lock of the one that publishes rings."""
    problem: str | None = None
    """Reason for which the view is not current."""
    joined_at: float = 0.0
    """Time at which this host joined the group last, by the clock of :class:`Membership`."""


def open_coordinator(settings: CoordinationSettings, member_id: str) -> Any:
    """Return a started tooz coordinator, of the first endpoint that answers.

    :raises ConfigurationError: when the URLs are not those of one cluster.
    :raises UnavailableError: when no endpoint can be reached.
    :raises UnsupportedError: when there is no driver for the URL.
    """
    *others, last = settings.urls()
    for url in others:
        with contextlib.suppress(exception.UnavailableError):
            return connect(url, member_id)
    return connect(last, member_id)


def connect(url: str, member_id: str) -> Any:
    """Return a started tooz coordinator of one endpoint.

    :param url: one of :meth:`CoordinationSettings.urls`.
    :raises UnavailableError: when the backend cannot be reached.
    :raises UnsupportedError: when there is no driver for the URL.
    """
    shown = backend_urls.without_secret(url)
    try:
        coordinator = _driver(url, member_id.encode())
    except Exception as error:  # tooz and stevedore raise all kinds here
        raise exception.UnsupportedError(
            f"[coordination] backend_url {shown}: {error}",
            hint="use file://, etcd3+http://, redis:// or zookeeper:// (with its Python client)",
        ) from error
    try:
        coordinator.start(start_heart=False)
    except Exception as error:  # etcd3gw's are no ToozError, and have no text
        raise exception.UnavailableError(
            f"coordination backend {shown}: {exception.one_line(error)}",
            hint="check [coordination] backend_url and that the backend is up",
        ) from error
    return coordinator


def _driver(url: str, member_id: bytes) -> Any:
    if urllib.parse.urlsplit(url).scheme not in backend_urls.CLUSTER_SCHEMES:
        return coordination.get_coordinator(url, member_id)
    from acstor.cluster import etcd  # its client is there where the back-end is etcd

    return etcd.open_driver(url, member_id)


def read_members(coordinator: Any, group: str) -> dict[str, Member]:
    """Return the members of a group by name; malformed ones are left out with a warning.

    :raises tooz.ToozError: when the backend fails.
    """
    group_id = group.encode()
    try:
        listed = coordinator.get_members_with_capabilities(group_id).get(CALL_TIMEOUT)
    except coordination.GroupNotCreated:
        return {}
    except tooz.NotImplemented:
        listed = {}
        for member_id in coordinator.get_members(group_id).get(CALL_TIMEOUT):
            with contextlib.suppress(coordination.MemberNotJoined):  # gone in between
                request = coordinator.get_member_capabilities(group_id, member_id)
                listed[member_id] = request.get(CALL_TIMEOUT)
    members = {}
    for member_id, capabilities in listed.items():
        name = member_id.decode(errors="replace") if isinstance(member_id, bytes) else member_id
        try:
            members[name] = Member.from_capabilities(name, capabilities)
        except exception.InvalidError as error:
            LOG.warning("ignoring a member: %s", error)
    return members


class Membership:
    """The part of this host in the group.

    :param settings: of the backend.
    :param host: name of this host.
    :param on_change: called from the membership thread whenever the view has changed.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: CoordinationSettings,
        host: str,
        on_change: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._endpoints = Endpoints(settings.urls())
        self._clock = clock
        self._host = host
        self._on_change = on_change
        self._wanted: Member | None = None
        self._joined: Member | None = None
        self._view = View()
        self._coordinator: Any = None
        self._lock: TimedLock | None = None
        self._failures = 0
        self._until_members = 0
        self._until_own_entry = 0
        self._until_lock = 0
        self._beaten_at: float | None = None
        self._renewed_at: float | None = None  # when the last heartbeat that succeeded began
        self._is_late = True  # whether the lease may have run out before the heartbeat of this beat
        self._joined_at = 0.0
        self._member_at: float | None = None  # of the last beat as a member
        self._is_eligible = True
        self._is_renounced = False
        self._wake = threading.Event()
        self._is_stopping = False
        self._leave_at_stop = False
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    @property
    def view(self) -> View:
        """Snapshot of the group as it was last read; not current where the backend hangs."""
        view, beaten_at = self._view, self._beaten_at
        if not view.is_current or beaten_at is None:
            return view
        silent = self._clock() - beaten_at
        if silent <= self._settings.member_timeout + self._settings.heartbeat_interval:
            return view
        return dataclasses.replace(
            view,
            is_current=False,
            is_publisher=False,
            problem=f"the backend has not answered for {silent:.0f} s",
        )

    def is_elected(self) -> bool:
        """Return whether this host holds the lock of the publisher at this moment."""
        lock = self._lock
        return lock is not None and lock.is_held

    def renounce(self) -> None:
        """Give the lock of the publisher back at the next beat, and try for it anew.

        For who was overtaken and still believes to hold it.
        """
        self._is_renounced = True
        self._wake.set()

    def set_eligible(self, is_eligible: bool) -> None:
        """Say whether this member may be elected to publish the ring: not without an origin.

        Its lock goes to somebody else with the next beat, until it may again.
        """
        if is_eligible != self._is_eligible:
            self._is_eligible = is_eligible
            self._until_lock = 0
            self._wake.set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join_as(self, member: Member | None) -> None:
        """Be a member with this description from now on; ``None``: be no member."""
        if member != self._wanted:
            self._wanted = member
            self._wake.set()

    def stop(self, timeout: float, *, leave: bool) -> None:
        """End the thread, within ``timeout`` seconds.

        :param leave: leave the group now. False: be forgotten after the timeout of members, so
            that a restart within it changes nothing for the others.
        """
        self._leave_at_stop = leave
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._is_stopping:
            started = time.monotonic()
            self._wake.clear()
            try:
                self._beat()
            except Exception as error:
                # Backends raise more than tooz's own errors (clients, torn files); whatever it
                # is, it must not end the thread: the next beat starts with a new connection.
                self._lose(error)
            spent = time.monotonic() - started
            self._wake.wait(max(0.0, self._delay() - spent))
        self._disconnect(leave=self._leave_at_stop)

    def _delay(self) -> float:
        if not self._failures:
            return self._settings.heartbeat_interval
        return RECONNECT.seconds(self._failures)

    def _beat(self) -> None:
        if self._lock is not None and (self._is_renounced or self._lock.is_overdue):
            # As long as members last: the others have forgotten this host as well.
            self._disconnect(leave=True)
        self._is_renounced = False
        if self._coordinator is None or self._lock is None:
            self._coordinator = connect(self._endpoints.current, self._host)
            lock = self._coordinator.get_lock(f"{self._settings.group}-{_LOCK_SUFFIX}".encode())
            lasts = self._settings.lock_timeout
            self._lock = TimedLock(lock, _LOCK_SUFFIX, lasts, self._clock)
            self._joined = None
            self._until_members = self._until_lock = 0
        started = self._clock()
        self._is_late = (
            self._renewed_at is None
            or started - self._renewed_at > self._settings.member_timeout / 2
        )
        self._coordinator.heartbeat()
        self._renewed_at = started
        wanted = self._wanted
        if wanted != self._joined:
            self._change_membership(wanted)
            self._until_members = 0
        may_publish = wanted is not None and self._is_eligible
        if not may_publish:
            # Who is no member publishes no ring, nor who has no origin to publish it in.
            self._lock.release()
        is_publisher = may_publish and self._try_lock(self._lock, started)
        members = self._members(wanted, is_publisher=is_publisher)
        self._failures = 0
        self._beaten_at = self._clock()
        if self._joined is not None:
            self._member_at = self._beaten_at
        self._publish(
            View(members, is_current=True, is_publisher=is_publisher, joined_at=self._joined_at)
        )

    def _try_lock(self, lock: TimedLock, started: float) -> bool:
        self._until_lock -= 1
        if not lock.is_held and self._until_lock > 0:
            return False
        is_held = lock.hold(started)
        every = max(1, min(LOCK_EVERY_MAX, len(self._view.members)))
        self._until_lock = 0 if is_held else random.randint(1, every)
        return is_held

    def _members(self, wanted: Member | None, *, is_publisher: bool) -> dict[str, Member]:
        """Return the members, as they are or, for who does not need that, as they were lately."""
        self._until_members -= 1
        self._until_own_entry -= 1
        must_read = is_publisher or self._until_members < 0
        members = self._read_members() if must_read else self._view.members
        if wanted is not None and not self._is_known_to_backend(members if must_read else None):
            # A lease ran out while the process slept.
            self._joined = None
            self._change_membership(wanted)
            members = self._read_members()
        return members

    def _read_members(self) -> dict[str, Member]:
        # Not all hosts in the same beat, though they were started together.
        self._until_members = random.randint(MEMBERS_EVERY // 2, MEMBERS_EVERY)
        return read_members(self._coordinator, self._settings.group)

    def _is_known_to_backend(self, members: dict[str, Member] | None) -> bool:
        """Return whether this host is a member.

        :param members: as they were read in this beat; None: they were not.
        """
        if members is not None:
            return self._host in members
        if self._until_own_entry > 0 and not self._is_late:
            return True
        self._until_own_entry = OWN_ENTRY_EVERY
        try:
            self._coordinator.get_member_capabilities(
                self._settings.group.encode(), self._host.encode()
            ).get(CALL_TIMEOUT)
        except (coordination.MemberNotJoined, coordination.GroupNotCreated):
            return False
        return True

    def _change_membership(self, wanted: Member | None) -> None:
        group = self._settings.group.encode()
        if self._joined is not None and wanted is not None:
            try:
                self._coordinator.update_capabilities(group, wanted.to_capabilities()).get(
                    CALL_TIMEOUT
                )
            except tooz.NotImplemented:
                pass  # leave and join instead
            else:
                self._joined = wanted
                return
        if wanted is None:
            with contextlib.suppress(coordination.MemberNotJoined, coordination.GroupNotCreated):
                self._coordinator.leave_group(group).get(CALL_TIMEOUT)
        else:
            self._join(group, wanted)
        self._joined = wanted

    def _join(self, group: bytes, wanted: Member) -> None:
        now, absent_max = self._clock(), self._settings.member_timeout
        # A back-end that flaps makes members join all the time: the others have not missed them.
        if self._member_at is None or now - self._member_at > absent_max:
            self._joined_at = now
        with contextlib.suppress(coordination.GroupAlreadyExist):
            self._coordinator.create_group(group).get(CALL_TIMEOUT)
        capabilities = wanted.to_capabilities()
        try:
            self._coordinator.join_group(group, capabilities).get(CALL_TIMEOUT)
        except coordination.MemberAlreadyExist:
            # This host before it was killed, or with another description.
            with contextlib.suppress(coordination.MemberNotJoined):
                self._coordinator.leave_group(group).get(CALL_TIMEOUT)
            self._coordinator.join_group(group, capabilities).get(CALL_TIMEOUT)

    def _lose(self, error: Exception) -> None:
        self._failures += 1
        reason = exception.one_line(error)
        if self._failures == 1:
            LOG.warning("coordination lost, the last ring stays in use: %s", reason)
        if self._endpoints.is_alone:
            self._disconnect(leave=True)
        else:
            self._move_on()
        self._publish(View(self._view.members, problem=reason))

    def _move_on(self) -> None:
        """Go on with the next endpoint, as the same member.

        Nothing is taken leave of: that would wait for the endpoint that does not answer until the
        others have forgotten this host, or would come after it has joined by another one. What
        the coordinator had in the cluster ends by its own timeout, its threads end with it.
        """
        self._endpoints.fail()
        self._coordinator = self._lock = self._joined = None

    def _publish(self, view: View) -> None:
        is_changed = view != self._view
        if view.is_current and not self._view.is_current:
            LOG.info("coordination is up, %d members", len(view.members))
        self._view = view
        if is_changed:
            self._on_change()

    def _disconnect(self, *, leave: bool) -> None:
        coordinator, self._coordinator = self._coordinator, None
        lock, self._lock = self._lock, None
        self._joined = None
        if coordinator is None:
            return
        # What cannot be taken leave of now is forgotten by the backend's own timeout.
        if lock is not None:
            with contextlib.suppress(Exception):
                lock.release()
        if leave:  # tooz leaves all groups when it stops, so there is no stopping without
            with contextlib.suppress(Exception):
                coordinator.stop()

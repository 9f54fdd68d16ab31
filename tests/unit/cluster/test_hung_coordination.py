"""A coordination backend that takes connections and never answers."""

import socket
import threading
from collections.abc import Iterator

import pytest
import tooz.coordination
import tooz.locking

from acstor.cluster.membership import CoordinationSettings, Membership
from testbed.fixtures.conditions import wait_for
from tests.unit.cluster.ring_publishers import member


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Listen, and leave every client without an answer; yield ``ip:port``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_beat_without_an_answer_ends(silent_server: str) -> None:
    settings = CoordinationSettings(f"memcached://{silent_server}", "acstor", 1, 4)
    membership = Membership(settings, "h1", lambda: None)
    membership.join_as(member("h1"))
    outcome: list[Exception] = []

    def beat() -> None:
        try:
            membership._beat()
        except Exception as error:
            outcome.append(error)

    threading.Thread(target=beat, daemon=True).start()
    wait_for("the beat to end", lambda: outcome)
    assert not isinstance(outcome[0], TimeoutError)  # of the driver's thread, which goes on
    assert not membership.view.is_current


class HungCoordinator:
    """A coordinator whose heartbeat waits until the test lets it."""

    def __init__(self, inner: object, released: threading.Event) -> None:
        self._inner = inner
        self._released = released
        self.is_hung = threading.Event()

    def heartbeat(self) -> None:
        self.is_hung.set()
        self._released.wait()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_view_of_a_backend_that_hangs_is_not_current_and_nobody_publishes(
    tmp_path: object,
) -> None:
    """Whatever the backend: not all drivers have timeouts (a directory on a hung NFS)."""
    now = [100.0]
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 5)
    membership = Membership(settings, "h1", lambda: None, clock=lambda: now[0])
    membership.join_as(member("h1"))
    membership.start()
    released = threading.Event()
    try:
        wait_for("a publisher", lambda: membership.view.is_publisher)
        hung = HungCoordinator(membership._coordinator, released)
        membership._coordinator = hung
        assert hung.is_hung.wait(60)
        assert membership.is_elected()
        now[0] += 5.1
        view = membership.view
        assert (view.is_current, view.is_publisher, list(view.members)) == (False, False, ["h1"])
        assert view.problem is not None
        assert "has not answered" in view.problem
        assert not membership.is_elected()
        released.set()
        wait_for("it is back", lambda: membership.view.is_current)
    finally:
        released.set()
        membership.stop(10, leave=True)


def test_renounced_lock_is_given_back_and_tried_for_anew(tmp_path: object) -> None:
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 5)
    membership, other = (Membership(settings, name, lambda: None) for name in ("h1", "h2"))
    membership.join_as(member("h1"))
    other.join_as(member("h2"))
    try:
        membership._beat()
        other._beat()
        assert (membership.view.is_publisher, other.view.is_publisher) == (True, False)
        connected = membership._coordinator
        membership.renounce()
        membership._beat()
        assert membership._coordinator is not connected
        assert membership.view.is_current
    finally:
        membership._disconnect(leave=True)
        other._disconnect(leave=True)


class UnansweredLock:
    """A lock that is given back without an answer, and believes to be held then."""

    acquired = True

    def __init__(self, inner: tooz.locking.Lock) -> None:
        self._inner = inner

    def release(self) -> bool:
        """Give it back."""
        self._inner.release()
        raise tooz.coordination.OperationTimedOut("no answer")


def test_lock_that_was_given_back_without_an_answer_is_not_held_on(tmp_path: object) -> None:
    """It may be another's by the time that its former holder may publish again."""
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 5)
    membership, other = (Membership(settings, name, lambda: None) for name in ("h1", "h2"))
    membership.join_as(member("h1"))
    other.join_as(member("h2"))
    try:
        membership._beat()
        assert membership._lock is not None
        membership._lock._lock = UnansweredLock(membership._lock._lock)
        membership.set_eligible(False)
        with pytest.raises(tooz.ToozError):
            membership._beat()
        other._beat()
        membership._lose(OSError("as its thread does"))
        membership.set_eligible(True)
        membership._beat()
        assert (membership.is_elected(), other.is_elected()) == (False, True)
    finally:
        membership._disconnect(leave=True)
        other._disconnect(leave=True)


def test_member_without_an_origin_leaves_the_ring_to_others(tmp_path: object) -> None:
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 5)
    membership, other = (Membership(settings, name, lambda: None) for name in ("h1", "h2"))
    membership.join_as(member("h1"))
    other.join_as(member("h2"))
    try:
        membership._beat()
        assert membership.view.is_publisher
        membership.set_eligible(False)
        for _ in range(2):
            membership._beat()
            other._beat()
        assert (membership.view.is_publisher, other.view.is_publisher) == (False, True)
        assert set(other.view.members) == {"h1", "h2"}, "it is a member all the same"
        other.set_eligible(False)
        membership.set_eligible(True)
        for _ in range(2):
            other._beat()
            membership._beat()
        assert membership.view.is_publisher
    finally:
        membership._disconnect(leave=True)
        other._disconnect(leave=True)

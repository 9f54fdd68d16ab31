"""Requests of an idle member to the coordination back-end."""

import pathlib
import subprocess
import sys

import pytest

from acstor.cluster import membership as module
from acstor.cluster.membership import CoordinationSettings, Membership
from tests.unit.cluster.ring_publishers import member

BEATS = 30


class CountingLock:
    """A lock that another host has; counts the tries for it."""

    acquired = False
    tries = 0

    def acquire(self, *, blocking: bool) -> bool:
        """Fail to take it."""
        assert not blocking
        self.tries += 1
        return False

    def release(self) -> None:
        """Do nothing."""


@pytest.fixture
def idle(tmp_path: pathlib.Path) -> tuple[Membership, CountingLock]:
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 5)
    found = Membership(settings, "h0", lambda: None, clock=lambda: 100.0)
    others = [Membership(settings, f"h{number}", lambda: None) for number in range(1, 20)]
    for number, other in enumerate(others, 1):
        other.set_eligible(False)
        other.join_as(member(f"h{number}"))
        other._beat()
    found.join_as(member("h0"))
    found._beat()
    lock = CountingLock()
    assert found._lock is not None
    found._lock.release()
    found._lock._lock = lock
    found._until_lock = 0
    found._beat()
    return found, lock


def test_lock_of_the_publisher_is_tried_for_by_one_of_many_at_each_beat(
    idle: tuple[Membership, CountingLock],
) -> None:
    membership, lock = idle
    lock.tries = 0
    for _ in range(10 * BEATS):
        membership._beat()
    assert len(membership.view.members) == 20
    expected = 10 * BEATS / module.LOCK_EVERY_MAX
    assert 0.4 * expected <= lock.tries <= 2.5 * expected


def test_own_entry_is_looked_at_now_and_then_and_found_missing(
    idle: tuple[Membership, CountingLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, _ = idle
    asked: list[bytes] = []
    coordinator = membership._coordinator
    ask = coordinator.get_member_capabilities

    def count(group: bytes, name: bytes) -> object:
        asked.append(name)
        return ask(group, name)

    monkeypatch.setattr(coordinator, "get_member_capabilities", count)
    for _ in range(BEATS):
        membership._beat()
    assert 0 < len(asked) <= BEATS / module.OWN_ENTRY_EVERY + 1
    coordinator.leave_group(b"acstor").get(10)
    for _ in range(module.OWN_ENTRY_EVERY):
        membership._beat()
    assert "h0" in module.read_members(coordinator, "acstor")


def test_programs_load_no_eventlet() -> None:
    """Eventlet, where it is installed, would be loaded by tooz and oslo.messaging."""
    script = """
import logging, sys
from acstor.cmd import daemon
def work(conf):
    import oslo_messaging, tooz.coordination
    from oslo_service import backend
    backend.get_backend()
    assert backend.get_backend_type() is backend.BackendType.THREADING
    assert not [name for name in sys.modules if name.startswith("eventlet.")]
    return 7
sys.argv = ["acstor-test", "--config-file", "/dev/null"]
sys.exit(daemon.run("acstor-test", logging.getLogger("acstor.test"), work))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        check=False,
        timeout=240,
        capture_output=True,
    )
    assert done.returncode == 7, done.stderr.decode()

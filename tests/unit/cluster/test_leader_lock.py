"""One registrar leads, and another when that one is gone."""

import itertools
import pathlib
from collections.abc import Callable, Iterator

import pytest

from acstor.cluster import leader_lock
from acstor.cluster.leader_lock import Leadership
from acstor.cluster.membership import CoordinationSettings
from testbed.fixtures.conditions import wait_for


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> CoordinationSettings:
    return CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 0.05, 2)


@pytest.fixture
def want(settings: CoordinationSettings) -> Iterator[Callable[[str], Leadership]]:
    started: list[Leadership] = []

    def want(name: str) -> Leadership:
        each = Leadership(settings, "registrar", name, lambda: None)
        each.start()
        started.append(each)
        return each

    yield want
    for each in started:
        each.stop(10)


def test_exactly_one_leads_and_another_takes_over(want: Callable[[str], Leadership]) -> None:
    all_of_them = [want(f"registrar-{number}") for number in range(3)]
    wait_for("one leads", lambda: sum(each.is_leader for each in all_of_them) == 1)
    (former,) = [each for each in all_of_them if each.is_leader]
    former.stop(10)
    assert not former.is_leader
    rest = [each for each in all_of_them if each is not former]
    wait_for("another leads", lambda: sum(each.is_leader for each in rest) == 1)


def test_lead_ends_with_the_lock_although_nobody_says_so(settings: CoordinationSettings) -> None:
    now = [100.0]
    leader = Leadership(settings, "registrar", "registrar-1", lambda: None, clock=lambda: now[0])
    seen = []
    for step in (
        leader._beat,
        lambda: now.__setitem__(0, now[0] + settings.member_timeout + 0.1),
        leader._beat,
        leader._disconnect,
    ):
        step()
        seen.append(leader.is_leader)
    assert seen == [True, False, True, False]


class RenewingCoordinator:
    """A backend that renews whatever lock is there, as the drivers of etcd and memcached do."""

    owner: object = None

    def __init__(self, number: int) -> None:
        self.number = number
        self.acquired = False

    def get_lock(self, name: bytes) -> "RenewingCoordinator":
        return self

    def heartbeat(self) -> None:
        pass  # it does not look whose lock it is

    def acquire(self, blocking: bool) -> bool:
        self.acquired = RenewingCoordinator.owner in (None, self.number)
        if self.acquired:
            RenewingCoordinator.owner = self.number
        return self.acquired

    def release(self) -> None:
        self.acquired = False
        if RenewingCoordinator.owner == self.number:
            RenewingCoordinator.owner = None

    def stop(self) -> None:
        pass


def test_who_was_stopped_for_longer_than_the_lock_lasts_asks_for_it_again(
    settings: CoordinationSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RenewingCoordinator, "owner", None)
    numbers = itertools.count()
    monkeypatch.setattr(leader_lock, "connect", lambda *_: RenewingCoordinator(next(numbers)))
    now = [100.0]
    leader = Leadership(settings, "registrar", "registrar-1", lambda: None, clock=lambda: now[0])
    seen = []
    for owner in (None, "another", None):
        RenewingCoordinator.owner = owner  # as it is after the time in which nobody renewed it
        leader._beat()
        seen.append((leader.is_leader, RenewingCoordinator.owner))
        now[0] += settings.member_timeout - 0.5  # a backend's clock may tick once a second
    assert seen == [(True, 0), (False, "another"), (True, 1)]


def test_backend_away_ends_the_lead_and_says_why(tmp_path: pathlib.Path) -> None:
    blocker = tmp_path / "coordination"
    blocker.write_text("no directory")
    changes: list[bool] = []
    settings = CoordinationSettings(f"file://{blocker}", "acstor", 0.05, 2)
    leader = Leadership(
        settings, "registrar", "registrar-1", lambda: changes.append(leader.is_leader)
    )
    leader.start()
    try:
        wait_for("it says why", lambda: leader.problem)
        assert not leader.is_leader
        blocker.unlink()
        wait_for("it leads as soon as it can", lambda: leader.is_leader)
        assert leader.problem is None
        assert changes[-1]
    finally:
        leader.stop(10)

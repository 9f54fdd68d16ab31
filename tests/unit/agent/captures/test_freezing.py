"""Freezing guests: a deadline, and a thaw on every path until it is answered."""

import dataclasses

import pytest

from acstor import exception
from acstor.agent.captures.freezing import Freezer
from acstor.agent.hypervisor.base import AgentError
from acstor.agent.hypervisor.domain_xml import Guest
from acstor.repository.versions.record import Consistency
from acstor.versions.host_capture.request import WantedConsistency
from testbed.doubles.memory_hypervisor import FaultyHypervisor, MemoryAgent, MemoryHypervisor
from tests.unit.agent.captures.guests import SERVER, guest_of_disks

GUEST = guest_of_disks(has_agent=True, is_agent_connected=True)
BEST, CRASH, FS = WantedConsistency.BEST, WantedConsistency.CRASH, WantedConsistency.FS


class Bench:
    """A guest with an agent, and a freezer whose waiting costs a second of its clock."""

    def __init__(self, agent: MemoryAgent | None = None) -> None:
        self.hypervisor = MemoryHypervisor(GUEST)
        self.agent = agent or MemoryAgent()
        self.hypervisor.agents[SERVER] = self.agent
        self.noted: list[str] = []
        self.now = 0.0
        self.freezer = Freezer(self.hypervisor, self.noted.append, lambda: self.now, self._wait)

    def is_frozen(self) -> bool:
        return self.agent.is_frozen

    def _wait(self, seconds: float) -> None:
        self.now += 1.0


def test_file_systems_are_frozen_inside_and_only_there() -> None:
    bench = Bench()
    with bench.freezer.frozen(GUEST, BEST) as moment:
        assert bench.is_frozen()
    assert not bench.is_frozen()
    assert (moment.consistency, moment.note, moment.is_thawed) == (Consistency.FS, "", True)
    assert bench.noted == [SERVER, ""]


def test_guest_is_thawed_whatever_fails_inside() -> None:
    bench = Bench()
    with pytest.raises(exception.UnavailableError), bench.freezer.frozen(GUEST, FS):
        raise exception.UnavailableError("no backup")
    assert not bench.is_frozen()


def test_late_freeze_is_thawed() -> None:
    bench = Bench(MemoryAgent(freeze_is_late=True))
    with bench.freezer.frozen(GUEST, BEST) as moment:
        assert not bench.is_frozen()
    assert moment.consistency is Consistency.CRASH
    assert "late" in moment.note


def test_thaw_is_asked_for_until_there_is_an_answer() -> None:
    bench = Bench(MemoryAgent(deaf_thaws=7))
    with bench.freezer.frozen(GUEST, BEST) as moment:
        pass
    assert moment.consistency is Consistency.FS
    assert bench.hypervisor.asked.count("guest-fsfreeze-thaw") == 8


def test_guest_that_does_not_answer_is_left_as_maybe_frozen() -> None:
    bench = Bench(MemoryAgent(deaf_thaws=1000))
    with bench.freezer.frozen(GUEST, BEST) as moment:
        pass
    assert (moment.is_thawed, moment.consistency) == (False, Consistency.CRASH)
    assert bench.noted == [SERVER]  # whoever follows this process goes on asking


def test_guest_that_stops_needs_no_thaw() -> None:
    bench = Bench(MemoryAgent(deaf_thaws=1000))
    with bench.freezer.frozen(GUEST, BEST) as moment:
        bench.hypervisor.stop(SERVER)
    assert (moment.is_thawed, moment.consistency) == (True, Consistency.CRASH)


def test_guest_that_thaws_by_itself_is_crash_consistent() -> None:
    bench = Bench(MemoryAgent(thaws_by_itself=True))
    with bench.freezer.frozen(GUEST, BEST) as moment:
        pass
    assert moment.consistency is Consistency.CRASH
    with pytest.raises(exception.ConflictError, match="by itself"), bench.freezer.frozen(GUEST, FS):
        pass


@pytest.mark.parametrize(
    "guest",
    [
        dataclasses.replace(GUEST, is_active=False),
        dataclasses.replace(GUEST, has_agent=False),
        dataclasses.replace(GUEST, is_agent_connected=False),
    ],
)
def test_guest_without_agent_is_not_frozen(guest: Guest) -> None:
    bench = Bench()
    with bench.freezer.frozen(guest, BEST) as moment:
        pass
    assert (moment.consistency, bool(moment.note)) == (Consistency.CRASH, True)
    with (
        pytest.raises(exception.ConflictError, match="not frozen"),
        bench.freezer.frozen(guest, FS),
    ):
        raise AssertionError("nothing less was wanted")
    assert bench.hypervisor.asked == []


def test_agent_is_not_asked_where_nobody_wants_that() -> None:
    bench = Bench()
    with bench.freezer.frozen(GUEST, CRASH) as moment:
        pass
    assert (moment.consistency, bench.hypervisor.asked) == (Consistency.CRASH, [])


def test_freeze_of_nothing_is_none() -> None:
    bench = Bench(MemoryAgent(file_systems=0))
    with bench.freezer.frozen(GUEST, BEST) as moment:
        pass
    assert moment.consistency is Consistency.CRASH
    assert "no file system" in moment.note


def test_hypervisor_that_is_away_is_no_freeze() -> None:
    faulty = FaultyHypervisor(
        MemoryHypervisor(GUEST), {"ask_agent": exception.UnavailableError("libvirt is away")}
    )
    now = iter(range(1000))
    freezer = Freezer(faulty, clock=lambda: next(now) * 10.0, wait=lambda seconds: None)
    with freezer.frozen(GUEST, BEST) as moment:
        pass
    assert moment.consistency is Consistency.CRASH
    assert freezer.try_thaw(SERVER) is None
    faulty.faults["ask_agent"] = AgentError("gone")
    assert freezer.try_thaw(SERVER) is None

"""Host states that a scheduler knows, and their time to live."""

import dataclasses
import sys
import threading

import pytest

from acstor.scheduler import host_table
from acstor.scheduler.host_table import IMAGE_TTL, HostTable
from acstor.scheduler.listener import COMPLAINT_INTERVAL, StateEndpoint
from acstor.telemetry.host_states import HostState
from tests.unit.scheduler.conftest import IMAGE, OTHER_IMAGE, TTL, Clock

STATE = HostState("h1", 1, "1", is_up=True, is_draining=False)


@pytest.fixture
def table(clock: Clock) -> HostTable:
    return HostTable(TTL, clock)


def take(table: HostTable, **changes: object) -> str:
    return table.take(dataclasses.replace(STATE, **changes).to_message())  # type: ignore[arg-type]


def test_state_counts_until_it_is_too_old(table: HostTable, clock: Clock) -> None:
    assert take(table) == "taken"
    clock.now += TTL - 0.001
    assert table.get("h1", clock.now) == STATE
    assert not table.is_blind(clock.now)
    clock.now += 0.001
    assert table.get("h1", clock.now) is None
    assert table.is_blind(clock.now)


def test_newer_state_replaces_the_older(table: HostTable, clock: Clock) -> None:
    take(table, sequence=2, is_draining=True)
    assert take(table, sequence=1) == "old"
    assert take(table, sequence=2) == "old"
    state = table.get("h1", clock.now)
    assert state is not None
    assert state.is_draining
    assert take(table, sequence=3) == "taken"


def test_host_whose_clock_went_back_is_heard_again_when_its_state_is_too_old(
    table: HostTable, clock: Clock
) -> None:
    take(table, sequence=1000)
    clock.now += TTL
    assert take(table, sequence=5) == "taken"


def test_image_is_registered_for_a_while_after_it_was_listed(
    table: HostTable, clock: Clock
) -> None:
    take(table, images=(IMAGE,), coverage={OTHER_IMAGE: 0.0})
    for image in (IMAGE, OTHER_IMAGE):
        assert table.is_registered(image, clock.now + IMAGE_TTL - 1)
        assert not table.is_registered(image, clock.now + IMAGE_TTL)


def test_what_is_dropped_is_counted_by_reason(table: HostTable) -> None:
    take(table)
    for message, outcome in (
        ({}, "version"),
        (None, "malformed"),
        ({**STATE.to_message(), "version": 2}, "version"),
        ({**STATE.to_message(), "extra_in": float("nan")}, "malformed"),
        (STATE.to_message(), "old"),
    ):
        assert table.take(message) == outcome
    assert table.counts == {"taken": 1, "version": 2, "malformed": 2, "old": 1}


def test_hosts_and_images_are_bounded(
    table: HostTable, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_table, "HOSTS_MAX", 10)
    monkeypatch.setattr(host_table, "IMAGES_MAX", 15)
    for number in range(50):
        take(table, host=f"h{number}", images=(f"00000000-0000-4000-8000-{number:012x}",) * 2)
    assert table.counts == {"taken": 10, "full": 40}
    assert len(table._hosts) == 10
    assert take(table, host="h3", sequence=2) == "taken"
    images = tuple(f"00000000-0000-4000-8000-{number:012x}" for number in range(256))
    assert take(table, host="h4", sequence=2, images=images) == "taken"
    assert len(table._images) == 15
    clock.now += TTL
    assert take(table, host="h49") == "taken"
    assert len(table._hosts) == 1
    clock.now += IMAGE_TTL
    take(table, host="h50")
    assert len(table._images) == 0


def test_readers_see_whole_states_while_they_are_replaced(clock: Clock) -> None:
    """Coverage and extra_in of one state always belong together, whoever writes meanwhile."""
    table = HostTable(TTL, clock)
    is_over = threading.Event()

    def write() -> None:
        for number in range(1, 2000):
            share = (number % 100) / 100
            take(table, sequence=number, extra_in=share, coverage={IMAGE: share})
            clock.now += TTL / 50  # purges happen too
        is_over.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    try:
        while not is_over.is_set():
            state = table.get("h1", clock.now)
            table.is_blind(clock.now)
            if state is not None:
                seen += 1
                assert round(state.extra_in or 0.0) == round(state.coverage[IMAGE])
    finally:
        writer.join()
        sys.setswitchinterval(interval)
    assert seen


def test_dropped_messages_are_logged_once_in_a_while(
    table: HostTable, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = StateEndpoint(table)
    for _ in range(100):
        endpoint.host_state({}, {"version": 9})
        endpoint.host_state({})
    assert [record.getMessage() for record in caplog.records] == [
        "dropped a host state: version (1 so far)",
        "dropped a host state: malformed (1 so far)",
    ]
    clock.now += COMPLAINT_INTERVAL
    endpoint.host_state({}, {"version": 9}, more="from a later release")
    assert caplog.records[-1].getMessage() == "dropped a host state: version (101 so far)"

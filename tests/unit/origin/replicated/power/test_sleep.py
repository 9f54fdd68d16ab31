"""The sleep of a member from its beginning to its end."""

import dataclasses

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member_records import read_mark
from acstor.origin.replicated.power.drivers.base import Machine
from acstor.origin.replicated.power.drivers.faulty import Misbehaviour
from acstor.origin.replicated.power.record import POWER_REF, Desired
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.power.switching import STRAY_SECONDS
from acstor.origin.replicated.search import Absence
from acstor.origin.replicated.sole_objects import find_sole
from acstor.origin.replicated.states import MemberEvent
from testbed.fixtures.conditions import wait_for
from tests.unit.origin.replicated.power.sleepers import PACKS, TIMES, Powered, Sleepers

KEYS = sorted(PACKS)


@pytest.fixture
def cloud() -> Sleepers:
    found = Sleepers()
    found.store()
    found.run()
    assert found.packs_of("near") == found.packs_of("far") == set(PACKS)
    return found


def test_member_sleeps_wakes_and_has_what_was_stored_meanwhile(cloud: Sleepers) -> None:
    cloud.sleep()
    status = cloud.run().members["near"]
    assert (status.power, status.is_reachable, status.error) == (PowerState.OFF, False, "")
    late = "packs/" + "0" * 64
    cloud.stores["home"].inner.put_if_absent(late, [b"late"])
    cloud.stores["home"].inner.delete(late)
    for key in KEYS[:2]:
        cloud.origin.delete(key)
    cloud.wake()
    assert cloud.packs_of("near") == cloud.packs_of("home") == set(KEYS[2:])
    assert cloud.stores["near"].touched_while_off <= 1, "only to see whether it is back"


def test_nothing_touches_a_store_whose_machine_is_off(cloud: Sleepers) -> None:
    cloud.sleep()
    for _ in range(5):
        cloud.run()
        assert cloud.origin.get(KEYS[0], 1 << 20) == PACKS[KEYS[0]]
        list(cloud.origin.list("packs/"))
    assert cloud.stores["near"].touched_while_off == 0
    assert cloud.origin.members["near"].reading.failures == 0, "no breaker hears of it"
    assert not cloud.origin.replicated.faults


def test_who_reads_from_other_members_only_hears_of_it(cloud: Sleepers) -> None:
    reader = cloud.process("reader")[0]
    # Slow once, so that it is asked last from now on.
    reader.members["home"]._note(cloud.clock.now - 5.0, is_failure=False)
    reader.get(KEYS[0], 1 << 20)
    cloud.sleep()
    cloud.clock.now += 60.0
    reader.get(KEYS[0], 1 << 20)
    wait_for(
        "the reader hears that near sleeps",
        lambda: reader.view.power_state("near") is PowerState.OFF,
        timeout=20,
    )


def test_what_is_nowhere_that_is_on_is_not_taken_for_absent(cloud: Sleepers) -> None:
    absent = "packs/" + "0" * 64
    with pytest.raises(exception.NotFoundError):
        cloud.origin.get(absent, 10)
    cloud.sleep()
    with pytest.raises(exception.UnavailableError, match="near cannot be asked"):
        cloud.origin.get(absent, 10)
    with pytest.raises(exception.UnavailableError):
        cloud.origin.size(absent)
    outcomes = cloud.origin.read_many([base.ReadRange(absent, 0, memoryview(bytearray(4)))])
    assert isinstance(outcomes[0], exception.UnavailableError)
    assert cloud.origin.replicated.absences[Absence.UNKNOWN] == 3
    with pytest.raises(exception.NotFoundError):
        cloud.origin.size("moved/decided-by-the-home")


def test_member_does_not_sleep_while_it_alone_has_something(cloud: Sleepers) -> None:
    damaged = "packs/" + "0" * 64
    cloud.stores["near"].inner.put_if_absent(damaged, [b"not what its name says"])
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.QUIESCING)
    for _ in range(20):
        cloud.run()
    assert cloud.state() is PowerState.QUIESCING
    assert cloud.machines["near"].calls == []
    cloud.clock.now += TIMES.quiesce_seconds
    cloud.run()
    entry = cloud.entry()
    assert entry.state is PowerState.ACTIVE
    assert "cannot be copied" in entry.alarm
    assert cloud.run().members["near"].error == entry.alarm


def test_what_it_alone_has_is_copied_away_before_it_sleeps(cloud: Sleepers) -> None:
    for name in ("home", "far"):
        cloud.stores[name].inner.delete(KEYS[0])
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)
    assert KEYS[0] in cloud.packs_of("home") & cloud.packs_of("far")


def test_hosts_have_time_to_hear_of_it_before_it_is_off(cloud: Sleepers) -> None:
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)
    began = cloud.clock.now
    while not cloud.machines["near"].calls:
        cloud.run(10.0)
    assert cloud.clock.now - began >= TIMES.hosts_seconds


def test_of_objects_that_are_in_the_other_sleeper_alone_none_sleeps(cloud: Sleepers) -> None:
    """Require what a member has to be in one that is on, and not in one that sleeps, too."""
    cloud.sleep("near")
    for name in ("home", "near"):
        cloud.stores[name].inner.delete(KEYS[0])
    assert find_sole(cloud.origin, "far").count == 1
    cloud.stores["near"].inner.put_if_absent(KEYS[0], [PACKS[KEYS[0]]])
    assert find_sole(cloud.origin, "far").count == 1
    cloud.sleep("far")
    assert KEYS[0] in cloud.packs_of("home")


def test_deletion_by_who_takes_it_for_asleep_is_made_up_for_later(cloud: Sleepers) -> None:
    cloud.sleep()
    stale = cloud.process("of long ago")[0]
    stale.view.refresh(is_due=True)
    stale.view.refresh = lambda is_due=False: None  # type: ignore[method-assign,misc]
    stale.view.refresh_power = lambda: None  # type: ignore[method-assign]
    cloud.wake()
    stale.delete(KEYS[0])
    assert KEYS[0] in cloud.packs_of("near")
    assert cloud.notes()
    cloud.clock.now += 3600.0
    cloud.run()
    assert KEYS[0] not in cloud.packs_of("near") | cloud.packs_of("home") | cloud.packs_of("far")
    assert not cloud.notes()


def test_deletion_meanwhile_resurrects_nothing(cloud: Sleepers) -> None:
    cloud.sleep()
    cloud.want(Desired.AWAKE)
    cloud.run_until(PowerState.CATCHING_UP)
    cloud.origin.delete(KEYS[0])
    assert cloud.notes(), "it is not asked yet, so the deletion is owed"
    cloud.run_until(PowerState.ACTIVE)
    cloud.run()
    for name in cloud.stores:
        assert KEYS[0] not in cloud.packs_of(name)
    assert not cloud.notes()


def test_what_the_others_have_lost_comes_back_with_a_member_that_wakes(cloud: Sleepers) -> None:
    cloud.sleep()
    for name in ("home", "far"):
        cloud.stores[name].inner.delete(KEYS[0])
    cloud.wake()
    cloud.run()
    assert KEYS[0] in cloud.packs_of("home")


def test_name_that_is_stored_again_is_not_deleted_by_an_old_note(cloud: Sleepers) -> None:
    cloud.sleep()
    cloud.origin.delete(KEYS[0])
    cloud.origin.put_if_absent(KEYS[0], [PACKS[KEYS[0]]])
    cloud.wake()
    for _ in range(70):
        cloud.run()
    for name in cloud.stores:
        assert KEYS[0] in cloud.packs_of(name)
    assert not cloud.notes(), "after an hour nobody is about to delete it any more"


def test_member_that_wakes_older_than_it_went_to_sleep_is_refused(cloud: Sleepers) -> None:
    backup = MemoryOrigin()
    for key in KEYS:
        backup.put_if_absent(key, [PACKS[key]])
    mark, _ = read_mark(cloud.stores["near"].inner)
    assert mark is not None
    backup.swap_ref("member", None, mark.encode())
    cloud.sleep()
    store = cloud.stores["near"]
    assert isinstance(store, Powered)
    store.inner = backup
    cloud.want(Desired.AWAKE)
    cloud.run_until(PowerState.STUCK)
    assert "restored from a backup" in cloud.entry().alarm
    for _ in range(10):
        cloud.run()
    assert cloud.state() is PowerState.STUCK


def test_quiescing_is_given_up_at_once(cloud: Sleepers) -> None:
    cloud.stores["near"].inner.put_if_absent("packs/" + "0" * 64, [b"damaged"])
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.QUIESCING)
    cloud.want(Desired.AWAKE)
    cloud.run()
    assert cloud.state() is PowerState.ACTIVE
    assert cloud.machines["near"].calls == []


@pytest.mark.parametrize("fault", list(Misbehaviour))
def test_machine_that_cannot_be_switched_off_is_tried_a_few_times(
    cloud: Sleepers, fault: Misbehaviour
) -> None:
    cloud.drivers["near"].fault = fault
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)
    if fault is Misbehaviour.LOST_ANSWER:
        cloud.run_until(PowerState.OFF)
        assert cloud.drivers["near"].attempts == 1
        return
    cloud.run_until(PowerState.ACTIVE)
    assert cloud.drivers["near"].attempts == TIMES.attempts
    assert "was not off after 2 attempts" in cloud.entry().alarm
    cloud.want(None)
    before = dataclasses.replace(cloud.entry())
    for _ in range(30):
        cloud.run()
    assert cloud.entry() == before
    assert cloud.drivers["near"].attempts == TIMES.attempts, "no loop"


@pytest.mark.parametrize("fault", [Misbehaviour.UNREACHABLE, Misbehaviour.DEAF])
def test_member_that_does_not_wake_is_tried_a_few_times(
    cloud: Sleepers, fault: Misbehaviour
) -> None:
    cloud.sleep()
    cloud.drivers["near"].fault = fault
    attempts = cloud.drivers["near"].attempts
    cloud.want(Desired.AWAKE)
    cloud.run_until(PowerState.STUCK)
    assert cloud.drivers["near"].attempts - attempts == TIMES.attempts
    assert "does not answer after 2 attempts" in cloud.entry().alarm
    for _ in range(30):
        cloud.run()
    assert cloud.drivers["near"].attempts - attempts == TIMES.attempts, "no loop"
    cloud.machines["near"].switch_on()  # somebody pushes the button
    cloud.run_until(PowerState.ACTIVE)
    assert cloud.entry().alarm == ""


def test_machine_that_somebody_switches_off_stays_off(cloud: Sleepers) -> None:
    for _ in range(2):
        cloud.machines["near"].machine = Machine.OFF
        for _ in range(5):
            cloud.run()
        assert cloud.state() is PowerState.ACTIVE
        assert cloud.machines["near"].machine is Machine.OFF
        cloud.machines["near"].machine = Machine.ON
        cloud.sleep()
        cloud.wake()
        cloud.clock.now += STRAY_SECONDS


def test_machine_that_a_late_call_has_switched_off_is_switched_on(cloud: Sleepers) -> None:
    cloud.sleep()
    cloud.wake()
    cloud.machines["near"].machine = Machine.OFF
    cloud.run()
    assert cloud.state() is PowerState.WAKING
    cloud.run_until(PowerState.ACTIVE)
    assert cloud.machines["near"].machine is Machine.ON


def test_member_that_is_taken_away_is_forgotten(cloud: Sleepers) -> None:
    cloud.sleep()
    cloud.origin.delete(KEYS[0])
    cloud.membership.change("near", MemberEvent.FAIL)
    cloud.run()
    cloud.run()
    assert cloud.entry().since == 0.0
    cloud.origin.delete(KEYS[1])
    assert all(note.startswith("owed-deletions/near/") for note in cloud.notes())


def test_member_that_drains_is_woken_first(cloud: Sleepers) -> None:
    cloud.sleep()
    cloud.membership.change("near", MemberEvent.DRAIN)
    cloud.run_until(PowerState.ACTIVE)
    assert cloud.entry().desired is Desired.ASLEEP
    for _ in range(10):
        cloud.run()
    assert cloud.state() is PowerState.ACTIVE


def test_damaged_record_makes_sleepers_unavailable_and_nothing_else(cloud: Sleepers) -> None:
    cloud.sleep()
    ref = cloud.home.get_ref(POWER_REF)
    assert ref is not None
    cloud.home.swap_ref(POWER_REF, ref.token, b"{}")
    cloud.origin.view.refresh(is_due=True)
    assert cloud.origin.get(KEYS[0], 1 << 20) == PACKS[KEYS[0]]
    with pytest.raises(exception.UnavailableError):
        cloud.origin.delete(KEYS[0])
    assert KEYS[0] in cloud.packs_of("home")
    with pytest.raises(exception.CorruptError, match=POWER_REF):
        cloud.switching.read()

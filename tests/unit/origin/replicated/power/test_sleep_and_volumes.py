"""Members that volumes write to, and members that sleep: the former do not."""

import dataclasses
import uuid
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.replicated.power.deciding import Why
from acstor.origin.replicated.power.drivers.base import Machine
from acstor.origin.replicated.power.power_keeping import PowerKeeping
from acstor.origin.replicated.power.record import Desired, read_power, swap_power
from acstor.origin.replicated.power.states import PowerState
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes.epoch_log import sealer_of
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.origin.replicated.power.sleepers import Sleepers
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.volumes.log_objects import log_object

VOLUME = str(uuid.UUID(int=1))
HOST = "h"


@pytest.fixture
def cloud() -> Sleepers:
    """Return a cloud with a volume that goes to the member near."""
    found = Sleepers()
    found.store()
    Repository.init(found.origin, CHUNK_SIZE)
    volumes(found).create(NewVolume(VOLUME, 1 << 20, assigned="near"))
    found.run()
    return found


def volumes(cloud: Sleepers) -> VolumeStore:
    return VolumeStore(Repository.open(cloud.origin))


def write(cloud: Sleepers) -> str:
    """Have a host write to the volume and give it back; return the key of what it has written."""
    store = volumes(cloud)
    store.allow_host(VOLUME, HOST)
    record = store.acquire(VOLUME, HOST).after
    if record.unsealed is not None:
        member = record.unsealed_member
        last, seal = sealer_of(cloud.origin)(VOLUME, record.unsealed, record.next, member)
        last = record.next - 1 if last is None else last
        record = store.record_takeover(VOLUME, HOST, record.epoch, last=last, seal=seal).after
    key = layout.log_key(VOLUME, record.epoch, record.next)
    content = log_object(VOLUME, record.epoch, record.next)
    assert cloud.origin.of_member(record.member).put_if_absent(key, [content])
    store.release(VOLUME, HOST, record.epoch, record.next)
    store.disallow_host(VOLUME, HOST)
    return key


def test_member_that_volumes_write_to_stays_on(cloud: Sleepers) -> None:
    write(cloud)
    cloud.want(Desired.ASLEEP)
    for _ in range(20):
        cloud.run()
        assert cloud.state() is PowerState.ACTIVE
    decision = cloud.power._decision
    assert decision is not None
    assert decision.members["near"].why is Why.WRITTEN
    assert cloud.machines["near"].machine is Machine.ON


def test_member_sleeps_once_its_volumes_are_elsewhere(cloud: Sleepers) -> None:
    key = write(cloud)
    store = volumes(cloud)
    store.assign(VOLUME, None)
    assert store.move_unused(VOLUME, sealer_of(cloud.origin)).after.member is None
    cloud.sleep()
    assert cloud.home.exists(key)
    assert len(cloud.origin.get(key, 1 << 20)) > 0
    assert write(cloud).startswith(layout.log_folder(VOLUME, 3)), "and goes on in the home"
    cloud.wake()
    cloud.run_until(PowerState.ACTIVE)


def test_volume_that_comes_meanwhile_keeps_it_on(cloud: Sleepers) -> None:
    """Its host has not heard yet that the member goes."""
    store = volumes(cloud)
    store.assign(VOLUME, "far")
    cloud.want(Desired.ASLEEP)
    cloud.run_until(PowerState.SWITCHING_OFF)
    store.assign(VOLUME, "near")
    while cloud.state() is not PowerState.ACTIVE:
        cloud.run(10.0)
        assert cloud.machines["near"].machine is Machine.ON
    write(cloud)


def test_member_that_sleeps_gets_no_volume_and_is_not_taken_for_empty(cloud: Sleepers) -> None:
    store = volumes(cloud)
    store.assign(VOLUME, None)
    cloud.sleep()
    with pytest.raises(exception.UnavailableError, match="member near of the origin is off"):
        cloud.origin.of_member("near").list(layout.log_folder(VOLUME, 1))
    store.assign(VOLUME, "near")
    store.allow_host(VOLUME, HOST)
    before = store.get(VOLUME).record
    with pytest.raises(exception.UnavailableError, match="member near of the origin is off"):
        store.acquire(VOLUME, HOST)
    assert store.get(VOLUME).record == before
    cloud.run_until(PowerState.ACTIVE)  # as a volume wants it
    assert store.acquire(VOLUME, HOST).after.member == "near"


def test_record_that_cannot_be_read_keeps_all_on(cloud: Sleepers) -> None:
    volumes(cloud).assign(VOLUME, None)
    name = layout.volume_ref(str(uuid.UUID(int=2)))
    cloud.home.swap_ref(name, None, b"nonsense")
    cloud.want(Desired.ASLEEP)
    for _ in range(5):
        cloud.run()
        assert cloud.state() is PowerState.ACTIVE


def test_records_that_were_not_read_keep_all_on(
    cloud: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process leads, and gets no answer when it looks at the records first."""
    key = write(cloud)
    cloud.want(Desired.ASLEEP)
    with monkeypatch.context() as patched:
        patched.setattr(PowerKeeping, "run", lambda self: None)
        cloud.run()
    cloud.stores["far"].inner.delete(key)
    cloud.home.delete(key)
    store = volumes(cloud)
    store.snapshot(VOLUME, str(uuid.UUID(int=3)))
    store.delete(VOLUME)
    record, token = read_power(cloud.home)
    quiescing = dataclasses.replace(record.entry("near"), state=PowerState.QUIESCING)
    swap_power(cloud.home, token, record.with_entry("near", quiescing))

    def refuse(prefix: str = "") -> Iterator[str]:
        raise exception.UnavailableError(f"{prefix}: no answer, on purpose")

    cloud.lead("another")
    with monkeypatch.context() as patched:
        patched.setattr(cloud.origin, "list_refs", refuse)
        cloud.run()
    assert cloud.state() is PowerState.QUIESCING
    cloud.run_until(PowerState.SWITCHING_OFF)
    assert cloud.home.exists(key), "near alone had it"


def test_volume_that_comes_while_records_are_not_read_keeps_a_member_on(
    cloud: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = volumes(cloud)
    store.assign(VOLUME, None)
    cloud.run()
    store.assign(VOLUME, "near")

    def refuse(prefix: str = "") -> Iterator[str]:
        raise exception.UnavailableError(f"{prefix}: no answer, on purpose")

    cloud.want(Desired.ASLEEP)
    with monkeypatch.context() as patched:
        patched.setattr(cloud.origin, "list_refs", refuse)
        for _ in range(5):
            cloud.run()
            assert cloud.state() in {PowerState.ACTIVE, PowerState.QUIESCING}
    cloud.run()
    assert cloud.state() is PowerState.ACTIVE


def test_record_that_is_damaged_keeps_all_on_and_hides_no_other(
    cloud: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = write(cloud)
    damaged = layout.volume_ref(str(uuid.UUID(int=2)))
    cloud.home.swap_ref(damaged, None, b"{}")
    inner = cloud.origin.refresh_ref

    def refresh(name: str, known: base.Ref | None) -> base.Ref | None:
        if name == damaged:
            raise exception.CorruptError("damaged, on purpose")
        return inner(name, known)

    monkeypatch.setattr(cloud.origin, "refresh_ref", refresh)
    volumes(cloud).assign(VOLUME, None)
    cloud.want(Desired.ASLEEP)
    cloud.lead("another")
    monkeypatch.setattr(cloud.origin, "refresh_ref", refresh)
    for _ in range(5):
        cloud.run()
        assert cloud.state() is PowerState.ACTIVE
    assert cloud.home.exists(key)
    cloud.home.swap_ref(damaged, cloud.home.get_ref(damaged).token, None)  # type: ignore[union-attr]
    assert volumes(cloud).move_unused(VOLUME, sealer_of(cloud.origin)).after.member is None
    cloud.run_until(PowerState.OFF)

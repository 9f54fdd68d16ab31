"""Registrars that end, are killed, lose the lead or are several: no image is lost or done twice."""

import os

from acstor.registrar.image_service import faulty
from acstor.registrar.service import RegistrarService
from acstor.repository.images import image_registry
from acstor.repository.images.image_registry import Entry, EntryState
from testbed.doubles.registrar_cloud import Cloud, content_of
from testbed.fixtures.conditions import wait_for


def test_registration_of_a_killed_registrar_is_begun_again_after_a_while(cloud: Cloud) -> None:
    """It may be the image that killed it; the others do not wait for it."""
    image, other = cloud.upload(1), cloud.upload(2)
    killed = Entry(EntryState.REGISTERING, attempts=2, registrar="dead/1")
    cloud.image_registry.replace(image, None, killed)
    cloud.spool.mkdir(parents=True)
    (cloud.spool / f"{image}.download").write_bytes(b"half")
    registrar = cloud.start()
    cloud.wait_for_state(other, "registered")
    entry = cloud.wait_for_state(image, "failed")
    assert entry is not None
    assert (entry.attempts, entry.reason) == (
        2, "the registrar that was registering it was killed",
    )  # fmt: skip
    assert entry.retry_at is not None
    delay = image_registry.parse_time(entry.retry_at) - cloud.clock.now
    assert 0.75 * 60 - 1 <= delay <= 60
    cloud.clock.now += 61
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")
    assert cloud.read(image) == content_of(1)
    assert os.listdir(cloud.spool) == []


def test_image_published_by_a_killed_registrar_is_not_read_again(cloud: Cloud) -> None:
    image = cloud.upload(1)
    service = cloud.start()
    cloud.wait_for_state(image, "registered")
    service.stop()
    cloud.stop()
    listed = cloud.image_registry.find(image)
    cloud.image_registry.replace(image, listed, Entry(EntryState.REGISTERING, registrar="dead/1"))
    reads = cloud.service.calls[faulty.Operation.OPEN]
    cloud.start()
    cloud.wait_for_state(image, "registered")
    assert cloud.service.calls[faulty.Operation.OPEN] == reads


def test_two_registrars_register_once_and_the_second_takes_over(cloud: Cloud) -> None:
    first = cloud.start()
    wait_for("the first leads", lambda: first.is_leader)
    second = cloud.start()
    images = [cloud.upload(number) for number in (1, 2)]
    first.reconcile_soon()
    second.reconcile_soon()
    for image in images:
        cloud.wait_for_state(image, "registered")
    assert cloud.service.calls[faulty.Operation.OPEN] == 2
    assert not second.is_leader
    assert second.is_healthy()
    first.stop()
    wait_for("the second leads", lambda: second.is_leader)
    third = cloud.upload(3)
    second.reconcile_soon()
    cloud.wait_for_state(third, "registered")


def test_registration_ends_with_the_lead_and_the_next_registrar_does_it(cloud: Cloud) -> None:
    first = cloud.start()
    wait_for("the first leads", lambda: first.is_leader)
    second = cloud.start()
    image = cloud.upload(1, content_of(1, 64 << 10))

    def lose_the_lock() -> None:
        first._leadership.stop(10)
        cloud.wait_for_state(image, "failed")
        cloud.clock.now += 31
        second.reconcile_soon()
        wait_for("the second is at work", lambda: cloud.service.calls[faulty.Operation.OPEN] >= 2)

    cloud.service.faults = [
        faulty.Fault(faulty.Operation.READ, faulty.Effect.ACTION, call=1, action=lose_the_lock)
    ]
    first.reconcile_soon()
    entry = cloud.wait_for_state(image, "registered")
    assert entry is not None
    assert entry.registrar == second.name
    assert cloud.read(image) == content_of(1, 64 << 10)
    wait_for("the first is idle", lambda: len(first._jobs) == 0)
    assert not first.is_leader
    assert first.is_healthy()
    assert cloud.entry(image) == entry


def test_registration_that_ends_with_the_lead_is_no_attempt(cloud: Cloud) -> None:
    first = cloud.start()
    wait_for("it leads", lambda: first.is_leader)
    image = cloud.upload(1, content_of(1, 64 << 10))
    cloud.service.faults = [
        faulty.Fault(
            faulty.Operation.READ,
            faulty.Effect.ACTION,
            call=1,
            action=lambda: first._leadership.stop(10),
        )
    ]
    first.reconcile_soon()
    entry = cloud.wait_for(image, lambda found: found is not None and found.state == "waiting")
    assert entry is not None
    wait_for("it is given back", lambda: len(first._jobs) == 0)
    entry = cloud.entry(image)
    assert entry is not None
    assert (entry.state, entry.attempts) == (EntryState.WAITING, 0)
    cloud.start()
    cloud.wait_for_state(image, "registered")


def test_registration_that_ends_with_the_registrar_is_no_attempt(cloud: Cloud) -> None:
    image = cloud.upload(1, content_of(1, 64 << 10))
    registrars: list[RegistrarService] = []

    def stop() -> None:
        wait_for("the registrar has been started", lambda: registrars)
        registrar = registrars[0]
        registrar.stop()
        job = registrar._jobs._running[image][0]
        wait_for("the registration is cancelled", job._cancelled.is_set)

    cloud.service.faults = [
        faulty.Fault(faulty.Operation.READ, faulty.Effect.ACTION, call=1, action=stop)
    ]
    registrars.append(cloud.start())
    wait_for("it was at work", lambda: cloud.service.calls[faulty.Operation.READ])
    cloud.stop()
    entry = cloud.entry(image)
    assert entry is not None
    assert (entry.state, entry.attempts) == (EntryState.WAITING, 0)

"""A registrar at work: what becomes of images, whatever happens meanwhile."""

import dataclasses
import logging
import os
import pathlib
import subprocess
import threading

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin import faulty as faulty_origin
from acstor.registrar import metrics
from acstor.registrar.image_service import faulty
from acstor.registrar.image_service.base import ImageData
from acstor.repository.images import image_registry, registration
from acstor.repository.images.image_registry import EntryState
from testbed.doubles.registrar_cloud import Cloud, Space, content_of, describe
from testbed.fixtures.conditions import wait_for
from tests.unit.repository.memory_source import MemorySource


def test_active_image_is_registered_with_its_content(cloud: Cloud) -> None:
    image = cloud.upload(1, visibility="public", properties={"acstor_pin": "True"})
    cloud.start()
    entry = cloud.wait_for_state(image, "registered")
    assert entry is not None
    assert entry.pin
    assert entry.checksum == str(describe(image, content_of(1)).checksum)
    assert cloud.read(image) == content_of(1)
    assert cloud.repository.get_image(image).record.checksum == entry.checksum
    assert os.listdir(cloud.spool) == []


def test_upload_is_noticed_by_its_notification(cloud: Cloud) -> None:
    registrar = cloud.start()
    wait_for("it leads and has compared", lambda: registrar.is_leader and registrar.is_healthy())
    image = cloud.upload(1, status="saving")
    registrar.hint("image.activate", image)  # sent before the image is active
    cloud.glance.change(image, status="active")
    registrar.hint("image.update", image)
    cloud.wait_for_state(image, "registered")


def test_lost_notifications_are_made_up_for(cloud: Cloud) -> None:
    gone, kept = cloud.upload(1), cloud.upload(2)
    registrar = cloud.start()
    for image in (gone, kept):
        cloud.wait_for_state(image, "registered")
    cloud.glance.remove(gone)
    new = cloud.upload(3)
    registrar.reconcile_soon()
    cloud.wait_for_state(new, "registered")
    cloud.wait_for_state(gone, "withdrawn")
    assert cloud.entry(kept).state is EntryState.REGISTERED  # type: ignore[union-attr]


def test_many_hints_at_once_become_one_listing(cloud: Cloud) -> None:
    registrar = cloud.start()
    wait_for("it leads", lambda: cloud.service.calls[faulty.Operation.LIST])
    asked = cloud.service.calls[faulty.Operation.FIND]
    for number in range(200):
        registrar.hint("image.update", f"00000000-0000-4000-9000-{number:012}")
    wait_for("it listed again", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    assert cloud.service.calls[faulty.Operation.FIND] - asked < 200


def test_deleted_image_goes_when_it_is_unused_for_long_enough(cloud: Cloud) -> None:
    image = cloud.upload(1)
    registrar = cloud.start()
    cloud.wait_for_state(image, "registered")
    cloud.use("compute1", image)
    cloud.glance.remove(image)
    registrar.hint("image.delete", image)
    entry = cloud.wait_for_state(image, "withdrawn")
    assert entry is not None
    assert entry.reason == "it was deleted in Glance"
    cloud.clock.now += 10_000
    registrar.reconcile_soon()
    wait_for("it looked", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    assert cloud.is_published(image), "an instance uses it"
    cloud.use("compute1")
    cloud.withdraw(registrar, image, None)


def test_unreadable_usage_keeps_everything(cloud: Cloud) -> None:
    image = cloud.upload(1)
    registrar = cloud.start()
    cloud.wait_for_state(image, "registered")
    cloud.origin.swap_ref("usage/compute1", None, b"{")
    cloud.glance.remove(image)
    registrar.hint("image.delete", image)
    wait_for("it says so", lambda: f"image {image}" in registrar.problems)
    cloud.clock.now += 10_000
    registrar.reconcile_soon()
    wait_for("it looked", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    assert cloud.is_published(image)
    assert "compute1" in registrar.problems[f"image {image}"]


def test_deactivated_image_returns_without_being_read_again(cloud: Cloud) -> None:
    image = cloud.upload(1)
    registrar = cloud.start()
    cloud.wait_for_state(image, "registered")
    reads = cloud.service.calls[faulty.Operation.OPEN]
    cloud.glance.change(image, status="deactivated")
    registrar.hint("image.update", image)
    cloud.wait_for_state(image, "withdrawn")
    assert cloud.is_published(image)
    cloud.glance.change(image, status="active")
    registrar.hint("image.update", image)
    cloud.wait_for_state(image, "registered")
    assert cloud.service.calls[faulty.Operation.OPEN] == reads


def test_deactivated_image_that_was_removed_is_registered_again(cloud: Cloud) -> None:
    image = cloud.upload(1)
    registrar = cloud.start()
    cloud.wait_for_state(image, "registered")
    cloud.glance.change(image, status="deactivated")
    registrar.hint("image.update", image)
    cloud.wait_for_state(image, "withdrawn")
    cloud.withdraw(registrar, image, "withdrawn")
    cloud.glance.change(image, status="active")
    registrar.hint("image.update", image)
    cloud.wait_for_state(image, "registered")
    assert cloud.read(image) == content_of(1)


def test_image_deleted_while_it_is_registered_leaves_nothing(cloud: Cloud) -> None:
    image = cloud.upload(1, content_of(1, 64 << 10))

    def delete() -> None:
        cloud.glance.remove(image)
        registrar.hint("image.delete", image)
        wait_for("the registration is cancelled", lambda: is_cancelled(registrar, image))

    def is_cancelled(registrar: object, image_id: str) -> bool:
        job = registrar._jobs._running[image_id][0]  # type: ignore[attr-defined]
        return bool(job._cancelled.is_set())

    cloud.service.faults = [
        faulty.Fault(faulty.Operation.READ, faulty.Effect.ACTION, call=1, action=delete)
    ]
    registrar = cloud.start()
    wait_for("it was deleted", lambda: cloud.glance.find_image(image) is None)
    cloud.wait_for_state(image, None)
    assert not cloud.is_published(image)
    assert os.listdir(cloud.spool) == []
    wait_for("the worker is free", lambda: len(registrar._jobs) == 0)


def test_same_id_with_other_content_waits_for_the_former_to_be_unused(cloud: Cloud) -> None:
    image = cloud.upload(1)
    registrar = cloud.start()
    cloud.wait_for_state(image, "registered")
    cloud.use("compute1", image)
    cloud.upload(1, content_of(7))
    registrar.hint("image.update", image)
    entry = cloud.wait_for_state(image, "withdrawn")
    assert entry is not None
    assert entry.reason == "Glance has other content under its id"
    assert cloud.read(image) == content_of(1)
    cloud.use("compute1")

    def is_new() -> bool:
        cloud.answer()
        cloud.clock.now += 30
        registrar.reconcile_soon()
        entry = cloud.entry(image)
        return entry is not None and entry.state is EntryState.REGISTERED

    wait_for("the new content", is_new)
    assert cloud.read(image) == content_of(7)


def test_image_that_becomes_a_kernel_is_taken_from_the_hosts(cloud: Cloud) -> None:
    kernel = cloud.upload(1, owner="a")
    registrar = cloud.start()
    cloud.wait_for_state(kernel, "registered")
    disk = cloud.upload(2, owner="a", properties={"kernel_id": kernel})
    registrar.hint("image.update", disk)
    cloud.wait_for_state(kernel, "withdrawn")
    cloud.withdraw(registrar, kernel, "left")
    entry = cloud.entry(kernel)
    assert entry is not None
    assert entry.reason == f"image {disk} names it as kernel or ramdisk"
    assert not cloud.is_published(kernel)
    cloud.wait_for_state(disk, "registered")


def test_image_of_another_project_withdraws_no_public_image(cloud: Cloud) -> None:
    public = cloud.upload(1, visibility="public", owner="operators")
    registrar = cloud.start()
    cloud.wait_for_state(public, "registered")
    for number, visibility in enumerate(("private", "shared", "community"), 2):
        names = {"kernel_id": public, "ramdisk_id": public}
        thief = cloud.upload(
            number, owner="tenant", visibility=visibility, properties=names, status="queued"
        )
        registrar.hint("image.update", thief)
    listed = cloud.service.calls[faulty.Operation.LIST]
    wait_for("the hints are heard", lambda: not registrar._hints)
    registrar.reconcile_soon()
    wait_for("it compared", lambda: cloud.service.calls[faulty.Operation.LIST] > listed)
    last = cloud.upload(9)
    registrar.hint("image.update", last)
    cloud.wait_for_state(last, "registered")
    entry = cloud.entry(public)
    assert entry is not None
    assert entry.state is EntryState.REGISTERED


def test_image_is_looked_at_again_when_who_names_it_changes(cloud: Cloud) -> None:
    part = cloud.upload(1, owner="a")
    registrar = cloud.start()
    cloud.wait_for_state(part, "registered")
    naming = cloud.upload(2, owner="b", properties={"kernel_id": part})
    registrar.hint("image.update", naming)
    cloud.wait_for_state(naming, "registered")
    for fields, state in (
        ({"visibility": "public"}, "withdrawn"),
        ({"visibility": "community"}, "registered"),
        ({"owner": "a"}, "withdrawn"),
        ({"properties": {}}, "registered"),
        ({"properties": {"ramdisk_id": part}}, "withdrawn"),
    ):
        cloud.glance.change(naming, **fields)
        registrar.hint("image.update", naming)
        cloud.wait_for_state(part, state)
    cloud.glance.remove(naming)
    registrar.hint("image.delete", naming)
    cloud.wait_for_state(part, "registered")


def test_property_takes_an_image_from_the_hosts_and_back(cloud: Cloud) -> None:
    image = cloud.upload(1, visibility="public", properties={"acstor_cache": "false"})
    registrar = cloud.start()
    cloud.wait_for_state(image, "left")
    cloud.glance.change(image, properties={"acstor_pin": "true"})
    registrar.hint("image.update", image)
    entry = cloud.wait_for_state(image, "registered")
    assert entry is not None
    assert entry.pin
    cloud.glance.change(image, properties={})
    registrar.hint("image.update", image)
    cloud.wait_for(image, lambda entry: entry is not None and not entry.pin)
    cloud.glance.change(image, properties={"acstor_cache": "false"})
    registrar.hint("image.update", image)
    cloud.wait_for_state(image, "withdrawn")
    cloud.withdraw(registrar, image, "left")


def test_snapshots_that_an_earlier_release_registered_leave_after_their_grace(
    tmp_path: pathlib.Path,
) -> None:
    cloud = Cloud(tmp_path, withdraw_grace="600", snapshots="register")
    image = cloud.upload(1, properties={"image_type": "snapshot"})
    cloud.use("compute1", image)
    try:
        former = cloud.start()
        cloud.wait_for_state(image, "registered")
        former.stop()
        wait_for("it stood down", lambda: not former.is_leader)
        cloud.conf.set_override("snapshots", "leave", group="registrar")
        registrar = cloud.start()
        entry = cloud.wait_for_state(image, "withdrawn")
        assert entry is not None
        assert not entry.is_urgent
        assert "it is a snapshot of a server" in entry.reason
        cloud.use("compute1")
        cloud.answer()
        registrar.reconcile_soon()
        cloud.wait_for(image, lambda entry: entry is not None and entry.unused_since is not None)
        began = cloud.clock.now
        cloud.withdraw(registrar, image, "left")
        assert cloud.clock.now - began >= 600
        entry = cloud.entry(image)
        assert entry is not None
        assert "[registrar] snapshots" in entry.reason
        cloud.glance.change(image, properties={})
        registrar.hint("image.update", image)
        cloud.wait_for_state(image, "registered")
    finally:
        cloud.stop()


def test_content_of_another_format_fails_and_says_what_was_found(cloud: Cloud) -> None:
    content = b"QFI\xfb\x00\x00\x00\x03" + bytes(504) + content_of(1)
    image = cloud.upload(1, content)
    registrar = cloud.start()
    entry = cloud.wait_for_state(image, "failed")
    assert entry is not None
    assert "declared as raw, but its content is qcow2" in entry.reason
    assert "correct disk_format in Glance" in entry.reason
    assert str(cloud.spool) not in entry.reason
    assert entry.retry_at is None
    reads = cloud.service.calls[faulty.Operation.OPEN]
    cloud.clock.now += 1_000_000
    registrar.reconcile_soon()
    wait_for("it looked", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    assert cloud.service.calls[faulty.Operation.OPEN] == reads, "it is not read again for nothing"


def test_encrypted_content_is_left_to_nova(cloud: Cloud) -> None:
    header = b"LUKS\xba\xbe\x00\x01" + bytes(592 - 8)
    image = cloud.upload(1, header + content_of(1))
    registrar = cloud.start()
    entry = cloud.wait_for_state(image, "left")
    assert entry is not None
    assert "luks" in entry.reason
    assert entry.judged is not None
    registrar.reconcile_soon()
    wait_for("it looked", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    assert cloud.service.calls[faulty.Operation.OPEN] == 1


def test_larger_disk_is_left_and_tried_again_when_somebody_says_so(cloud: Cloud) -> None:
    path = cloud.folder / "image"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", str(path), "2M"], check=True, timeout=60
    )
    cloud.conf.set_override("disk_size_max", 1 << 20, group="registrar")
    image = cloud.upload(1, path.read_bytes(), disk_format="qcow2")
    cloud.start()
    entry = cloud.wait_for_state(image, "left")
    assert entry is not None
    assert "has 2097152 bytes, more than disk_size_max = 1048576" in entry.reason
    cloud.stop()
    cloud.conf.set_override("disk_size_max", 2 << 20, group="registrar")
    registrar = cloud.start()
    wait_for("it looked", lambda: registrar.is_healthy() and registrar.is_leader)
    wait_for("it compared", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    assert cloud.entry(image).state is EntryState.LEFT  # type: ignore[union-attr]
    listed = cloud.image_registry.find(image)
    assert listed is not None
    waiting = dataclasses.replace(listed.entry, state=EntryState.WAITING, judged=None)
    cloud.image_registry.replace(image, listed, waiting)  # as 'acstor registry retry' does
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")


def test_corrupt_upload_fails_for_good_after_three_downloads(cloud: Cloud) -> None:
    bad = cloud.upload(1, hash_value="0" * 128)
    good = cloud.upload(2)
    registrar = cloud.start()
    cloud.wait_for_state(good, "registered")
    for attempt in (1, 2, 3):
        entry = cloud.wait_for(
            bad,
            lambda entry, n=attempt: (  # type: ignore[misc]
                entry is not None and (entry.state, entry.attempts) == (EntryState.FAILED, n)
            ),
        )
        assert entry is not None
        assert "has sha512" in entry.reason
        assert (entry.retry_at is None) == (attempt == 3)
        cloud.clock.now += 10_000
        registrar.reconcile_soon()
    assert not cloud.is_published(bad)


def test_corrupt_transfer_passes(cloud: Cloud) -> None:
    image = cloud.upload(1)
    cloud.service.faults = [faulty.Fault(faulty.Operation.READ, faulty.Effect.CORRUPTION, call=1)]
    registrar = cloud.start()
    entry = cloud.wait_for_state(image, "failed")
    assert entry is not None
    assert entry.retry_at is not None
    cloud.clock.now += 31
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")
    assert cloud.read(image) == content_of(1)


def test_full_spool_fails_clearly_and_is_tried_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = cloud.upload(1)
    full = Space(3, 4096)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstatvfs", lambda descriptor: full)
        registrar = cloud.start()
        entry = cloud.wait_for_state(image, "failed")
    assert entry is not None
    assert "no room for image" in entry.reason
    assert "[registrar] spool_path" in entry.reason
    assert entry.retry_at is not None
    assert os.listdir(cloud.spool) == []
    cloud.clock.now += 31
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")


def test_image_that_volumes_need_the_room_of_waits_until_there_is_more(cloud: Cloud) -> None:
    image = cloud.upload(1)
    cloud.origin.room = base.Space(free_bytes=40 << 20, total_bytes=1000 << 20)
    registrar = cloud.start()
    entry = cloud.wait_for_state(image, "failed")
    assert entry is not None
    assert "40 MiB free, and images leave 50 MiB of it to volumes" in entry.reason
    assert entry.retry_at is not None
    assert cloud.service.calls[faulty.Operation.OPEN] == 0, "it is not even downloaded"
    assert list(cloud.origin.list("packs/")) == []
    cloud.origin.room = base.Space(free_bytes=60 << 20, total_bytes=1000 << 20)
    cloud.clock.now += 31
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")


def test_room_of_the_origin_is_told(cloud: Cloud) -> None:
    cloud.origin.room = base.Space(free_bytes=60 << 20, total_bytes=1000 << 20)
    registrar = cloud.start()

    def is_told() -> bool:
        lines = registrar._metrics.text().splitlines()
        told = {
            name: float(value)
            for name, _, value in (line.partition(" ") for line in lines)
            if name in metrics.ALL
        }
        free, reserved = told[metrics.ORIGIN_FREE_BYTES], told[metrics.ORIGIN_RESERVED_BYTES]
        return (free, reserved) == (60 << 20, 50 << 20)

    wait_for("the room is told", is_told)


def test_glance_away_is_reported_once_and_passes(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    image = cloud.upload(1)
    cloud.service.faults = [faulty.Fault(faulty.Operation.LIST, faulty.Effect.ERROR)]
    registrar = cloud.start()
    wait_for("it says so", lambda: "image service" in registrar.problems)
    assert not registrar.is_healthy()
    registrar.reconcile_soon()
    wait_for("it asked again", lambda: cloud.service.calls[faulty.Operation.LIST] >= 2)
    cloud.service.faults = []
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")
    wait_for("it is well", registrar.is_healthy)
    levels = [
        record.levelname
        for record in caplog.records
        if record.getMessage().startswith("image service:")
    ]
    assert levels == ["WARNING", "INFO"]


def test_glance_that_takes_ten_seconds_for_each_answer_only_takes_longer(cloud: Cloud) -> None:
    def pass_time(seconds: float) -> None:
        cloud.clock.now += seconds

    cloud.service._sleep = pass_time
    cloud.service.faults = [
        faulty.Fault(operation, faulty.Effect.DELAY, delay_seconds=10.0)
        for operation in faulty.Operation
    ]
    image = cloud.upload(1)
    registrar = cloud.start()
    cloud.wait_for_state(image, "registered")
    assert registrar.is_healthy()


def test_origin_away_loses_no_outcome(cloud: Cloud) -> None:
    image = cloud.upload(1)
    away = [
        faulty_origin.Fault(operation, faulty_origin.Effect.ERROR)
        for operation in faulty_origin.Operation
    ]

    def lose_origin() -> None:
        cloud.origin.faults = away

    cloud.service.faults = [
        faulty.Fault(faulty.Operation.READ, faulty.Effect.ACTION, call=2, action=lose_origin)
    ]
    registrar = cloud.start()
    wait_for("it says so", lambda: "origin" in registrar.problems)
    cloud.origin.faults = []
    registrar.reconcile_soon()
    entry = cloud.wait_for_state(image, "failed")
    assert entry is not None
    assert entry.attempts == 1
    cloud.clock.now += 31
    registrar.reconcile_soon()
    cloud.wait_for_state(image, "registered")


def test_image_registered_by_hand_is_verified_and_adopted(cloud: Cloud) -> None:
    image, other = cloud.upload(1), cloud.upload(2)
    for image_id, number in ((image, 1), (other, 3)):
        request = registration.Request(image_id, "by hand", MemorySource(content_of(number)), "raw")
        registration.Registrar(cloud.repository, registration.Settings(workers=0)).register(request)
    cloud.start()
    cloud.wait_for_state(image, "registered")
    entry = cloud.wait_for_state(other, "failed")
    assert entry is not None
    assert "registered already, with other content" in entry.reason
    assert cloud.read(other) == content_of(3)


def test_image_that_glance_never_had_is_none_of_its_business(cloud: Cloud) -> None:
    by_hand = "00000000-0000-4000-8000-000000000009"
    request = registration.Request(by_hand, "by hand", MemorySource(content_of(9)), "raw")
    registration.Registrar(cloud.repository, registration.Settings(workers=0)).register(request)
    image = cloud.upload(1)
    cloud.start()
    cloud.wait_for_state(image, "registered")
    assert cloud.is_published(by_hand)
    assert cloud.entry(by_hand) is None


def test_malformed_entry_is_a_problem_of_its_image_only(cloud: Cloud) -> None:
    bad, good = cloud.upload(1), cloud.upload(2)
    cloud.origin.swap_ref(image_registry.registry_ref(bad), None, b"{")
    registrar = cloud.start()
    cloud.wait_for_state(good, "registered")
    wait_for("it says so", lambda: f"image {bad}" in registrar.problems)
    with pytest.raises(exception.CorruptError):
        cloud.entry(bad)


def test_garbage_is_collected_now_and_then(cloud: Cloud) -> None:
    cloud.conf.set_override("gc_interval", 0.2, group="registrar")
    registrar = cloud.start()
    wait_for(
        "two collections",
        lambda: 'collections_total{outcome="complete"} 2.0' in registrar._metrics.text(),
    )


def test_project_with_many_images_has_others_wait_for_one_only(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_data = cloud.service.open_data

    def noting(image_id: str, offset: int = 0) -> ImageData:
        opened.append(image_id)
        return open_data(image_id, offset)

    monkeypatch.setattr(cloud.service, "open_data", noting)
    many = [cloud.upload(number, owner="many") for number in range(1, 5)]
    few = cloud.upload(8, content_of(8, 64 << 10), owner="few")
    smallest = cloud.upload(9, content_of(9, 4096), owner="many")
    cloud.start()
    for image in (*many, few):
        cloud.wait_for_state(image, "registered")
    assert opened == [smallest, few, *many]


def test_as_many_images_are_registered_at_a_time_as_the_operator_wants(
    tmp_path: pathlib.Path,
) -> None:
    cloud = Cloud(tmp_path, workers="2")
    together = threading.Barrier(2, timeout=20)

    def meet() -> None:
        together.wait()

    cloud.service.faults = [
        faulty.Fault(faulty.Operation.OPEN, faulty.Effect.ACTION, call=call, action=meet)
        for call in (1, 2)
    ]
    images = [cloud.upload(number) for number in (1, 2, 3)]
    cloud.start()
    try:
        for image in images:
            cloud.wait_for_state(image, "registered")
        assert not together.broken
    finally:
        cloud.stop()

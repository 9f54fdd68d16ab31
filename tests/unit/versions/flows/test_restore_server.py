"""Putting versions back into servers by a rebuild: the disks, and the refusals."""

import dataclasses
import pathlib
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import VersionRecord
from acstor.versions.host_capture.states import CaptureState
from acstor.versions.services.image_store import VERSION_PROPERTY
from tests.unit.repository.images import image_id
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows.cloud import PROJECT, SERVER, TASK, Cloud, lost
from tests.unit.versions.flows.restored_server import (
    BASE,
    ONE,
    SECOND,
    ask,
    check_end,
    code_of,
    prepared,
    raising,
    result_of,
)


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def test_server_is_rebuilt_from_the_version(cloud: Cloud) -> None:
    ask(cloud)
    task = cloud.work()
    result = result_of(task)
    check_end(cloud, task)
    assert cloud.compute.disks == {SERVER: [result["image_id"]]}
    assert (result["server_id"], result["version_id"]) == (SERVER, ONE)
    assert (result["method"], result["status"]) == ("rebuild", "ACTIVE")
    assert result["reason"]
    assert result["bytes_moved"] == len(cloud.image_store.contents[result["image_id"]])
    assert cloud.versions.get(result["kept_version_id"]).record.disk.device == "vda"
    (request,) = cloud.captures.requests
    assert (request.devices, request.base_image) == (("vda",), BASE)


def test_second_restore_finds_the_image(cloud: Cloud) -> None:
    ask(cloud, keep_current=False)
    first = result_of(cloud.work())
    ask(cloud, SECOND, keep_current=False)
    second = result_of(cloud.work())
    assert (second["image_id"], second["bytes_moved"]) == (first["image_id"], 0)
    assert cloud.compute.disks == {SERVER: [first["image_id"]] * 2}
    assert second["kept_version_id"] is None
    check_end(cloud, cloud.task(SECOND))


@pytest.mark.parametrize("stays_running", [False, True])
def test_server_that_was_shut_off_is_so_again(cloud: Cloud, stays_running: bool) -> None:
    cloud.compute.change(SERVER, status="SHUTOFF")
    cloud.compute.stays_running = stays_running
    ask(cloud)
    task = cloud.work()
    assert result_of(task)["status"] == "SHUTOFF"
    assert cloud.compute.known[SERVER].status == "SHUTOFF"
    check_end(cloud, task)


def test_server_that_cannot_be_shut_off_again_is_restored(cloud: Cloud) -> None:
    cloud.compute.change(SERVER, status="SHUTOFF")
    cloud.compute.stays_running = True
    cloud.switch.on_call["MemoryCompute.stop"] = raising(lost)
    ask(cloud)
    assert result_of(cloud.work())["status"] == "ACTIVE"


def test_broken_server_is_restored_where_its_disk_may_be_lost(cloud: Cloud) -> None:
    cloud.compute.change(SERVER, status="ERROR")
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.server.without_host"
    assert task.error is not None
    assert "--discard-current" in task.error.hint
    check_end(cloud, task)
    ask(cloud, SECOND, keep_current=False)
    assert result_of(cloud.work())["status"] == "ACTIVE"
    check_end(cloud, cloud.task(SECOND))


@pytest.mark.parametrize(
    ("server", "code", "text"),
    [
        ({"project": "p2"}, "acstor.not_found", "does not exist"),
        ({"status": "SHELVED_OFFLOADED"}, "acstor.fenced", "SHELVED_OFFLOADED"),
        ({"image": None}, "acstor.unsupported", "boots from a volume"),
        ({"root_device": "vdb"}, "acstor.unsupported", "root disk is vdb"),
        ({"ephemeral_gib": 1}, "acstor.unsupported", "ephemeral disk"),
        ({"swap_mib": 1}, "acstor.unsupported", "swap disk"),
        ({"flavor_specs": {"hw:tpm_version": "2.0"}}, "acstor.unsupported", "vtpm"),
        ({"is_locked": True, "lock_reason": "mine"}, "acstor.server.busy", "is locked"),
        ({"is_locked": True}, "acstor.server.busy", "is locked"),
    ],
)
def test_server_that_cannot_be_rebuilt_is_left_alone(
    tmp_path: pathlib.Path, server: dict[str, Any], code: str, text: str
) -> None:
    cloud = prepared(tmp_path, **server)
    before = cloud.compute.known[SERVER]
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == code
    assert task.error is not None
    assert text in task.error.message
    assert cloud.compute.known[SERVER] == before
    assert (cloud.captures.requests, cloud.image_store.images) == ([], {})
    assert cloud.versions.get(ONE).record.uses == ()


@pytest.mark.parametrize(
    ("properties", "loss"),
    [({"hw_firmware_type": "uefi"}, "uefi variables"), ({"hw_tpm_version": "2.0"}, "vtpm")],
)
def test_server_with_more_than_a_disk_is_left_alone(
    cloud: Cloud, properties: dict[str, str], loss: str
) -> None:
    cloud.images.found[BASE] = properties
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    assert task.error is not None
    assert loss in task.error.message
    assert "boot" in task.error.hint
    check_end(cloud, task)


def test_uefi_that_only_its_host_knows_of_is_found_in_time(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cloud.captures._record

    def with_nvram(*arguments: Any) -> VersionRecord:
        manifest = cloud.versions.get(ONE).record.manifest
        return dataclasses.replace(found(*arguments), nvram=manifest)

    monkeypatch.setattr(cloud.captures, "_record", with_nvram)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    assert cloud.compute.disks == {}
    check_end(cloud, task)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"version_id": version_id(9)}, "acstor.not_found"),
        ({"version_id": None, "versions": [ONE, version_id(2)]}, "acstor.unsupported"),
        ({"method": "sideways"}, "acstor.unsupported"),
        ({"owner": SECOND}, "acstor.not_found"),
    ],
)
def test_nonsense_changes_nothing(cloud: Cloud, fields: dict[str, Any], code: str) -> None:
    ask(cloud, **fields)
    task = cloud.work()
    assert code_of(task) == code
    check_end(cloud, task)


def test_version_of_another_project_does_not_exist(cloud: Cloud) -> None:
    cloud.versions.publish(version_id(2), committed(project="p2"))
    ask(cloud, version_id=version_id(2))
    assert code_of(cloud.work()) == "acstor.not_found"


def test_flavor_that_is_too_small(cloud: Cloud) -> None:
    cloud.versions.publish(version_id(2), committed(project=PROJECT, size_bytes=3 << 30))
    ask(cloud, version_id=version_id(2))
    task = cloud.work()
    assert code_of(task) == "acstor.invalid"
    assert task.error is not None
    assert task.error.hint == "resize the server first"


def test_disk_that_cannot_be_kept(cloud: Cloud) -> None:
    cloud.captures.unreadable.add("vda")
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    assert task.error is not None
    assert task.error.message.startswith("the present disk cannot be kept")
    assert "--discard-current" in task.error.hint
    check_end(cloud, task)


@pytest.mark.parametrize("state", [CaptureState.HELD, CaptureState.COMMITTED])
def test_capture_that_fails_leaves_the_server_alone(cloud: Cloud, state: CaptureState) -> None:
    cloud.captures.fails_in = state
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.exhausted"
    cloud.captures.held.clear()
    check_end(cloud, task)
    assert cloud.compute.disks == {}


def test_version_of_a_server_that_was_replaced(cloud: Cloud) -> None:
    """A server was brought back as another one, and that one as a third."""
    old, middle = str(uuid.UUID(int=80)), str(uuid.UUID(int=81))
    first, second = image_id(6), image_id(7)
    known = cloud.versions.get(ONE).record
    for number, owner, base in ((2, old, BASE), (3, middle, first)):
        disk_name = type(known.disk)(known.disk.kind, owner, "vda")
        record = committed(
            project=PROJECT,
            size_bytes=known.size_bytes,
            manifest=known.manifest,
            base_image=base,
            disk=disk_name,
        )
        cloud.versions.publish(version_id(number), record)
    cloud.images.found[first] = {VERSION_PROPERTY: version_id(2)}
    cloud.images.found[second] = {VERSION_PROPERTY: version_id(3)}
    cloud.compute.change(SERVER, image=second)
    ask(cloud, version_id=version_id(2), keep_current=False)
    result_of(cloud.work())


@pytest.mark.parametrize("text", [version_id(9), "nonsense", ""])
def test_version_of_another_server_is_refused(cloud: Cloud, text: str) -> None:
    known = cloud.versions.get(ONE).record
    other = type(known.disk)(known.disk.kind, str(uuid.UUID(int=80)), "vda")
    cloud.versions.publish(version_id(2), committed(project=PROJECT, disk=other))
    cloud.images.found[BASE] = {VERSION_PROPERTY: text}
    ask(cloud, version_id=version_id(2))
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    assert task.error is not None
    assert "of another server" in task.error.message


def test_owner_cannot_interfere_meanwhile(cloud: Cloud) -> None:
    refused: list[str] = []

    def interfere() -> None:
        with pytest.raises(exception.ConflictError, match="locked"):
            cloud.compute.stop_by_user(SERVER)
        with pytest.raises(exception.ConflictError, match="locked"):
            cloud.compute.rebuild_by_user(SERVER, BASE)
        refused.append(SERVER)

    cloud.switch.on_call["MemoryCaptures.start"] = interfere
    cloud.switch.on_call["MemoryCompute.rebuild"] = interfere
    ask(cloud)
    check_end(cloud, cloud.work())
    assert len(refused) == 2
    cloud.compute.stop_by_user(SERVER)


def test_second_restore_of_a_server_waits(cloud: Cloud) -> None:
    ask(cloud)
    ask(cloud, SECOND)

    def look() -> None:
        assert cloud.stores.tasks.take("another", 30.0) is None

    cloud.switch.on_call["MemoryCompute.rebuild"] = look
    assert cloud.work().id == TASK
    del cloud.switch.on_call["MemoryCompute.rebuild"]
    assert result_of(cloud.work())["server_id"] == SERVER
    assert cloud.task(SECOND).is_finished

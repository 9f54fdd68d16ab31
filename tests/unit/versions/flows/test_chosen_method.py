"""Restores of servers whose method the worker chooses: the choice, the record, and the end."""

import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions import rebuilding
from acstor.versions.database.tasks import CHOSEN, Task
from acstor.versions.database.version_index import IndexedVersion
from tests.unit.repository.images import register
from tests.unit.repository.versions.records import HOUR, NOON, committed, version_id
from tests.unit.versions.flows.cloud import PROJECT, SERVER, Cloud, Killed, lost
from tests.unit.versions.flows.restored_server import (
    BASE,
    CONTENT,
    ONE,
    ask,
    code_of,
    prepared,
    raising,
    result_of,
)

SWAP = {"disk_gib": 0, "swap_mib": 1}


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    """A server whose flavor does not say how large its disk is, so that it was not resized."""
    return prepared(tmp_path, disk_gib=0)


def chosen(cloud: Cloud) -> tuple[str, str]:
    found = cloud.task().parameters[CHOSEN]
    return found["method"], found["reason"]


def add_newest(cloud: Cloud, **fields: Any) -> None:
    """Have a version tell what the disk has now."""
    manifest = register(cloud.versions.repository, 6, CONTENT[::-1]).manifest
    known = {"project": PROJECT, "size_bytes": len(CONTENT), "manifest": manifest}
    later = {"base_image": BASE, "created_at": NOON + HOUR}
    record = committed(**{**known, **later, **fields})
    cloud.versions.publish(version_id(2), record)
    cloud.stores.versions.put(IndexedVersion.of(version_id(2), record))


def test_fewer_bytes_are_moved_in_place(cloud: Cloud) -> None:
    ask(cloud)
    task = cloud.work()
    result = result_of(task)
    assert (result["method"], cloud.restores.disks[SERVER]) == ("in_place", ONE)
    method, reason = chosen(cloud)
    assert method == "in_place"
    assert reason.startswith("0 to 0 bytes are moved, by a rebuild ")
    assert result["reason"].startswith(f"{reason}; 80 bytes")
    assert cloud.compute.disks == {}


def test_image_that_is_there_is_rebuilt_from(cloud: Cloud) -> None:
    cloud.versions.begin_use(ONE, f"image/{version_id(3)}")
    ask(cloud)
    result = result_of(cloud.work())
    assert (result["method"], result["reason"]) == chosen(cloud)
    assert result["method"] == "rebuild"
    assert "in place 0" in result["reason"]


def test_what_a_rebuild_would_destroy_decides(tmp_path: pathlib.Path) -> None:
    cloud = prepared(tmp_path, **SWAP)
    cloud.versions.begin_use(ONE, f"image/{version_id(3)}")
    ask(cloud)
    assert result_of(cloud.work())["method"] == "in_place"
    assert "swap disk" in chosen(cloud)[1]


@pytest.mark.parametrize(
    ("server", "wanted", "words"),
    [
        ({"disk_gib": 1}, {}, "it was resized"),
        ({"disk_gib": 0, "status": "ERROR"}, {"keep_current": False}, "way back"),
        ({"disk_gib": 0}, {"keep_current": False}, "way back"),
    ],
)
def test_where_in_place_cannot_be_it_is_rebuilt(
    tmp_path: pathlib.Path, server: dict[str, Any], wanted: dict[str, Any], words: str
) -> None:
    cloud = prepared(tmp_path, **server)
    ask(cloud, **wanted)
    result = result_of(cloud.work())
    assert result["method"] == "rebuild"
    assert words in result["reason"]
    assert cloud.restores.requests == []


def test_size_of_the_newest_version_tells_of_a_resize(cloud: Cloud) -> None:
    add_newest(cloud, size_bytes=2 * len(CONTENT), manifest=None)
    ask(cloud)
    assert result_of(cloud.work())["method"] == "rebuild"
    assert "resized" in chosen(cloud)[1]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exception.UnsupportedError("the agent of host h1 does not know restore_progress"), "h1"),
        (exception.DeadlineError("host h1 did not answer"), "did not answer"),
    ],
)
def test_host_that_cannot_is_not_asked_to(
    cloud: Cloud, error: exception.AcstorError, words: str
) -> None:
    cloud.switch.on_call["MemoryRestores.progress"] = raising(lambda: error)
    ask(cloud)
    assert result_of(cloud.work())["method"] == "rebuild"
    assert words in chosen(cloud)[1]


def test_host_that_restarts_is_waited_for(tmp_path: pathlib.Path) -> None:
    cloud = prepared(tmp_path, **SWAP)
    cloud.restores.silent.add("h1")
    cloud.control.on_pause = cloud.restores.silent.clear
    ask(cloud)
    assert result_of(cloud.work())["method"] == "in_place"


def test_disk_that_was_exchanged_is_compared_with_its_image(cloud: Cloud) -> None:
    add_newest(cloud, trigger=Trigger.RESTORE)
    ask(cloud)
    assert result_of(cloud.work())["method"] == "in_place"
    assert chosen(cloud)[1].startswith("0 to 0 bytes")


def test_what_is_not_known_is_rebuilt(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Any:
        raise exception.UnavailableError("the origin is away")

    monkeypatch.setattr("acstor.versions.moved_bytes.estimate", away)
    ask(cloud)
    result = result_of(cloud.work())
    assert result["method"] == "rebuild"
    assert "not known: the origin is away" in result["reason"]


def test_services_that_are_away_fail_no_task(cloud: Cloud) -> None:
    calls = iter([lost()])

    def once() -> None:
        if (error := next(calls, None)) is not None:
            raise error

    cloud.switch.on_call["MemoryCompute.find_server"] = once
    ask(cloud)
    assert result_of(cloud.work())["method"] == "rebuild"
    assert "not known" in chosen(cloud)[1]


def test_server_that_neither_can_restore_is_refused(tmp_path: pathlib.Path) -> None:
    cloud = prepared(tmp_path, disk_gib=1, swap_mib=1)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    assert task.error is not None
    assert "swap disk" in task.error.message
    assert "not in place: " in chosen(cloud)[1]


def test_disk_that_is_half_written_is_mended(cloud: Cloud) -> None:
    reason = rebuilding.torn_lock_reason("t")
    cloud.compute.change(SERVER, is_locked=True, lock_reason=reason, status="SHUTOFF")
    ask(cloud)
    assert result_of(cloud.work())["method"] == "in_place"
    assert not cloud.compute.known[SERVER].is_locked


@pytest.mark.parametrize("method", ["rebuild", "in_place"])
def test_method_that_is_asked_for_is_not_chosen(cloud: Cloud, method: str) -> None:
    ask(cloud, method=method)
    task = cloud.work()
    assert result_of(task)["method"] == method
    assert CHOSEN not in task.parameters


def test_choice_is_kept_when_the_worker_dies(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryRestores.start"] = raising(lambda: Killed("now"))
    ask(cloud)
    with pytest.raises(Killed):
        cloud.work()
    before = chosen(cloud)
    assert before[0] == "in_place"
    del cloud.switch.on_call["MemoryRestores.start"]
    cloud.versions.begin_use(ONE, f"image/{version_id(3)}")  # a rebuild moves less now
    cloud.clock.advance(seconds=31)
    task: Task = cloud.work()
    assert result_of(task)["method"] == "in_place"
    assert chosen(cloud) == before

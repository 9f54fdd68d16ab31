"""Preloading: what comes of it, and that every death and every fault leads to an end."""

import pathlib
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.control.protocol import PreloadWhat
from acstor.preload.states import AdmittedPreloadState
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task, TaskKind
from acstor.versions.flows import patience as patience_of_flows
from acstor.versions.flows import preload_image
from testbed.doubles.memory_host_preloads import TOTAL_BYTES
from tests.unit.versions.flows.cloud import TASK, Cloud
from tests.unit.versions.flows.kills import WholeRun

IMAGE = str(uuid.UUID(int=72))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few questions be many."""
    monkeypatch.setattr(preload_image, "STALL_SECONDS", 16.0)
    monkeypatch.setattr(preload_image, "SILENCE_SECONDS", 8.0)
    monkeypatch.setattr(preload_image, "START_SECONDS", 6.0)
    monkeypatch.setattr(preload_image, "UNDO_SECONDS", 6.0)
    monkeypatch.setattr(patience_of_flows, "SILENCE_SECONDS", 6.0)


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return Cloud(tmp_path)


def ask(cloud: Cloud, **more: Any) -> Task:
    known = {"image": IMAGE, "hosts": "all", "rate_mib": 200}
    return cloud.ask(TaskKind.PRELOAD, f"image/{IMAGE}", **{**known, **more})


def result_of(task: Task) -> dict[str, Any]:
    assert task.state is TaskState.DONE, task.error
    assert task.result is not None
    return dict(task.result)


def test_all_hosts_get_the_image(cloud: Cloud) -> None:
    ask(cloud)
    task = cloud.work()
    assert result_of(task) == {
        "preload_id": TASK,
        "hosts_whole": 2,
        "hosts_failed": 0,
        "failed": {},
        "bytes": 2 * TOTAL_BYTES,
    }
    assert (task.bytes_done, task.bytes_total) == (2 * TOTAL_BYTES, 2 * TOTAL_BYTES)
    assert {host for host, _ in cloud.preloads.begun} == {"h1", "h2"}
    (request,) = {request for _, request in cloud.preloads.begun}
    assert (request.rate_bytes_per_s, request.what) == (200 << 20, PreloadWhat.WORKING_SET)
    assert cloud.books_left() == 0


def test_named_hosts_get_it_and_no_other(cloud: Cloud) -> None:
    ask(cloud, hosts=["h2"], rate_mib=None)
    result_of(cloud.work())
    ((host, request),) = cloud.preloads.begun
    assert (host, request.rate_bytes_per_s) == ("h2", None)


def test_progress_is_summed_over_the_hosts(cloud: Cloud) -> None:
    ask(cloud)
    seen: list[tuple[int, int | None]] = []
    cloud.control.on_pause = lambda: seen.append(
        (cloud.task().bytes_done, cloud.task().bytes_total)
    )
    cloud.work()
    assert seen == [(0, 2 * TOTAL_BYTES), (TOTAL_BYTES, 2 * TOTAL_BYTES)]


def test_host_that_never_answers_is_named(cloud: Cloud) -> None:
    cloud.preloads.silent = {"h2"}
    ask(cloud)
    found = result_of(cloud.work())
    assert (found["hosts_whole"], found["hosts_failed"]) == (1, 1)
    assert "did not answer" in found["failed"]["h2"]
    assert cloud.seconds >= preload_image.START_SECONDS


def test_host_that_answers_late_gets_it(cloud: Cloud) -> None:
    cloud.preloads.silent = {"h2"}
    cloud.control.on_pause = cloud.preloads.silent.clear
    ask(cloud)
    assert result_of(cloud.work())["hosts_whole"] == 2


def test_host_that_fails_is_named(cloud: Cloud) -> None:
    cloud.preloads.stuck = {"h2"}
    ask(cloud)
    failed = AdmittedPreloadState.FAILED
    cloud.control.on_pause = lambda: cloud.preloads.end("h2", TASK, failed, "the disk is full")
    found = result_of(cloud.work())
    assert found["failed"].keys() == {"h2"}
    assert "the disk is full" in found["failed"]["h2"]


def test_silence_is_borne_for_a_while_only(cloud: Cloud) -> None:
    cloud.preloads.stuck = {"h2"}
    ask(cloud)
    cloud.control.on_pause = lambda: cloud.preloads.silent.add("h2")
    found = result_of(cloud.work())
    assert 8.0 < cloud.seconds < 16.0
    assert "did not answer" in found["failed"]["h2"]


def test_host_that_refuses_is_named(cloud: Cloud) -> None:
    cloud.preloads.refusing["h1"] = exception.ExhaustedError("no room")
    ask(cloud)
    found = result_of(cloud.work())
    assert "no room" in found["failed"]["h1"]
    assert cloud.seconds < preload_image.START_SECONDS, "nobody asks again"


def test_preload_that_does_not_move_ends(cloud: Cloud) -> None:
    cloud.preloads.stuck = {"h2"}
    ask(cloud)
    found = result_of(cloud.work())
    assert "nothing has come" in found["failed"]["h2"]
    assert cloud.preloads.active == set()


@pytest.mark.parametrize("fault", ["silent", "refusing", "stuck", "none"])
def test_task_fails_where_no_host_gets_it(cloud: Cloud, fault: str) -> None:
    for host in ("h1", "h2"):
        if fault == "silent":
            cloud.preloads.silent.add(host)
        elif fault == "refusing":
            cloud.preloads.refusing[host] = exception.NotFoundError("no such image")
        elif fault == "stuck":
            cloud.preloads.stuck.add(host)
        else:
            cloud.preloads.alive = []
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert cloud.preloads.active == set()
    assert cloud.books_left() == 0


def test_cancelled_preload_is_stopped_on_the_hosts(cloud: Cloud) -> None:
    ask(cloud)

    def cancel() -> None:
        cloud.stores.tasks.cancel(TASK)
        cloud.control.is_cancelled = True

    cloud.control.on_pause = cancel
    assert cloud.work().state is TaskState.CANCELLED
    assert {one.state for one in cloud.preloads.held.values()} == {AdmittedPreloadState.STOPPED}
    assert cloud.books_left() == 0


def test_cancelled_preload_ends_though_a_host_is_silent(cloud: Cloud) -> None:
    ask(cloud)

    def cancel() -> None:
        cloud.stores.tasks.cancel(TASK)
        cloud.control.is_cancelled = True
        cloud.preloads.silent = {"h2"}

    cloud.control.on_pause = cancel
    assert cloud.work().state is TaskState.CANCELLED
    assert cloud.preloads.active == {"h2"}


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("is_refused", [False, True])
def test_killed_at_every_call_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, is_refused: bool, is_after: bool
) -> None:
    def ready() -> Cloud:
        cloud = Cloud(tmp_path)
        if is_refused:
            cloud.preloads.stuck = {"h1", "h2"}
        ask(cloud)
        return cloud

    whole = WholeRun(ready())
    for at in calls_that_differ(whole, is_after=is_after):
        cloud = ready()
        cloud.switch.arm(at, is_after=is_after)
        task = cloud.work_on()
        where = f"killed at call {at}: {whole.names[at - 1]}"
        assert task.state is (TaskState.FAILED if is_refused else TaskState.DONE), where
        cloud.sweep()
        assert cloud.preloads.active == set(), where
        assert cloud.books_left() == 0, where
        begun = [host for host, _ in cloud.preloads.begun]
        assert sorted(begun) == ["h1", "h2"], where


def calls_that_differ(whole: WholeRun, *, is_after: bool) -> list[int]:
    """Return the calls to kill at, without those that only ask again how far it is."""
    asked = [at for at, name in enumerate(whole.names, 1) if name.endswith(".status")]
    return [at for at in whole.calls(is_after=is_after) if at not in asked[2:]]

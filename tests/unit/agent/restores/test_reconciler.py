"""The agent's restores: what it notes and when, and what deaths leave."""

import dataclasses
import os
import pathlib
import threading
import uuid
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.agent.captures.orders import OriginOrder
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.reconciler import GONE_LOOK_SECONDS, RestoreReconciler
from acstor.agent.restores.table import RestoreRecord, RestoreTable
from acstor.agent.restores.writing import Written
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore.request import RestoredDisk, RestoreRequest
from acstor.versions.host_restore.states import RestoreState
from testbed.fixtures.conditions import wait_for

TASK, OTHER, SERVER, ONE, TWO = (str(uuid.UUID(int=number)) for number in range(1, 6))
REQUEST = RestoreRequest(TASK, SERVER, "vda", ONE, "a project")
SET = dataclasses.replace(REQUEST, further=(RestoredDisk("vdb", TWO),))
DONE = RestoreReport(Written(10, 1, 2, 3), is_touched=True)


def failed(*, is_touched: bool) -> RestoreReport:
    failure = Failure.of(exception.UnavailableError("the origin is away"))
    return RestoreReport(Written(), is_touched, failure)


def order_of(request: RestoreRequest) -> RestoreOrder:
    origin = OriginOrder("file:///srv", 60.0, "h1")
    return RestoreOrder(origin, request, 0, 0, "", uses_monitor=False, nice=0)


class Processes:
    """Ends as it is told."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.ends: list[RestoreReport | BaseException] = []
        self.orders: list[RestoreOrder] = []
        self.states: list[RestoreState] = []
        """States that were written down when a process began."""
        self.waits = threading.Event()
        self.waits.set()
        self.is_asking = False
        """Set where a process asks whether it is wanted before it ends."""

    def do(
        self,
        order: RestoreOrder,
        progress: Callable[[int, int], None],
        is_wanted: Callable[[], bool],
        seconds: float,
    ) -> RestoreReport:
        self.orders.append(order)
        path = self._folder / f"{order.request.task}.json"
        self.states.append(RestoreRecord.parse(path.read_bytes(), "it").state)
        progress(5, 10)
        while not self.waits.wait(0.01):
            if not is_wanted():
                return failed(is_touched=True)
        if self.is_asking and not is_wanted():
            return failed(is_touched=True)
        end = self.ends.pop(0) if self.ends else DONE
        if isinstance(end, BaseException):
            raise end
        return end


class Host:
    """A host and its agent."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.processes = Processes(folder)
        self.gone: set[str] = set()
        self.now = 0.0
        self.start_agent()

    def start_agent(self) -> None:
        """Start an agent, as after the death of the one before."""
        self.table = RestoreTable(str(self.folder), "h1")
        self.agent = RestoreReconciler(
            self.table,
            self.processes,
            order_of,
            self.gone.__contains__,
            clock=lambda: self.now,
        )
        self.agent.take_stock()

    def work(self) -> RestoreState:
        """Have the restore come to its end, and return its state."""
        self.agent.step()

        def ended() -> bool:
            self.agent.step()
            found = self.table.records[TASK].state
            return found not in (RestoreState.QUEUED, RestoreState.WRITING)

        wait_for("the end of the restore", ended)
        return self.state

    def stepped(self) -> list[str]:
        """Have the agent go on, and return its problems."""
        self.agent.step()
        return self.problems

    @property
    def state(self) -> RestoreState:
        return self.agent.progress_of(TASK, 9).state

    @property
    def problems(self) -> list[str]:
        return list(self.agent.reconcile(None).values())  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_restore_comes_to_its_end_and_is_forgotten(host: Host) -> None:
    begun = host.agent.start_restore(REQUEST, 1)
    assert begun.state is RestoreState.QUEUED
    assert host.work() is RestoreState.DONE
    assert host.processes.states == [RestoreState.WRITING]
    found = host.agent.progress_of(TASK, 9)
    assert (found.fetched_bytes, found.local_bytes, found.written_bytes) == (1, 2, 3)
    assert host.agent.discard(TASK, 9)
    assert host.agent.discard(TASK, 9)
    assert os.listdir(host.folder) == []


def test_asked_twice_it_is_done_once(host: Host) -> None:
    host.agent.start_restore(REQUEST, 1)
    host.agent.start_restore(REQUEST, 1)
    host.work()
    assert host.agent.start_restore(REQUEST, 9).state is RestoreState.DONE
    assert len(host.processes.orders) == 1


def test_older_epoch_is_refused(host: Host) -> None:
    host.agent.start_restore(REQUEST, 5)
    for ask in (
        lambda: host.agent.start_restore(REQUEST, 4),
        lambda: host.agent.progress_of(TASK, 4),
        lambda: host.agent.abort(TASK, 4),
        lambda: host.agent.discard(TASK, 4),
    ):
        with pytest.raises(exception.FencedError):
            ask()


def test_failure_before_anything_is_written_leaves_the_disk(host: Host) -> None:
    host.processes.ends = [failed(is_touched=False)]
    host.agent.start_restore(REQUEST, 1)
    assert host.work() is RestoreState.FAILED
    assert host.agent.progress_of(TASK, 9).failure is not None
    assert host.problems == []
    assert host.agent.discard(TASK, 9)


@pytest.mark.parametrize(
    "end", [failed(is_touched=True), exception.UnavailableError("killed"), ValueError("bug")]
)
def test_disk_that_may_be_half_written_is_torn_until_it_is_whole(
    host: Host, end: RestoreReport | BaseException
) -> None:
    host.processes.ends = [end, failed(is_touched=False), DONE]
    host.agent.start_restore(REQUEST, 1)
    assert host.work() is RestoreState.TORN
    assert any("must not be started" in problem for problem in host.problems)
    with pytest.raises(exception.FencedError, match="half written"):
        host.agent.discard(TASK, 9)
    # One that wrote nothing finds it torn, and leaves it so.
    host.agent.start_restore(REQUEST, 9)
    assert host.work() is RestoreState.TORN
    host.agent.start_restore(REQUEST, 9)
    assert host.work() is RestoreState.DONE
    assert host.problems == []


def test_it_is_taken_back_by_another_version(host: Host) -> None:
    host.processes.ends = [failed(is_touched=True), DONE]
    host.agent.start_restore(REQUEST, 1)
    host.work()
    host.agent.start_restore(dataclasses.replace(REQUEST, version=TWO), 9)
    assert host.work() is RestoreState.DONE
    assert [order.request.version for order in host.processes.orders] == [ONE, TWO]


def test_another_version_is_not_written_beside(host: Host) -> None:
    host.processes.waits.clear()
    host.agent.start_restore(REQUEST, 1)
    host.agent.step()
    with pytest.raises(exception.FencedError, match="writes version"):
        host.agent.start_restore(dataclasses.replace(REQUEST, version=TWO), 1)
    with pytest.raises(exception.FencedError, match="restored by task"):
        host.agent.start_restore(dataclasses.replace(REQUEST, task=OTHER), 1)
    host.processes.waits.set()
    assert host.work() is RestoreState.DONE


def test_abort_ends_the_process(host: Host) -> None:
    host.processes.waits.clear()
    host.agent.start_restore(REQUEST, 1)
    host.agent.step()
    assert not host.agent.discard(TASK, 1)
    assert host.work() is RestoreState.TORN


def test_abort_after_the_end_of_the_process_does_not_end_the_next_one(host: Host) -> None:
    host.processes.ends = [failed(is_touched=True)]
    host.processes.is_asking = True
    host.agent.start_restore(REQUEST, 9)
    host.agent.step()
    wait_for("the end of the process", lambda: host.agent._ended)
    host.agent.abort(TASK, 9)
    assert host.work() is RestoreState.TORN
    host.agent.start_restore(REQUEST, 9)
    assert host.work() is RestoreState.DONE


@pytest.mark.parametrize("is_known", [True, False])
def test_start_that_comes_after_the_end_of_its_task_is_refused(host: Host, is_known: bool) -> None:
    if is_known:
        host.agent.start_restore(REQUEST, 1)
        host.work()
    assert host.agent.discard(TASK, 9)
    with pytest.raises(exception.FencedError, match="has ended"):
        host.agent.start_restore(REQUEST, 8)
    assert host.table.records == {}


def test_abort_of_one_that_waits_leaves_the_disk(host: Host) -> None:
    host.agent.start_restore(REQUEST, 1)
    assert host.agent.abort(TASK, 1).state is RestoreState.FAILED
    host.agent.step()
    assert host.processes.orders == []


def test_agent_that_dies_while_a_process_writes_leaves_a_torn_disk(host: Host) -> None:
    host.processes.waits.clear()
    host.agent.start_restore(REQUEST, 1)
    host.agent.step()
    host.start_agent()
    assert host.state is RestoreState.TORN
    host.processes.waits.set()
    host.agent.start_restore(REQUEST, 9)
    assert host.work() is RestoreState.DONE


def test_agent_that_dies_before_it_begins_goes_on(host: Host) -> None:
    host.agent.start_restore(REQUEST, 1)
    host.start_agent()
    assert host.work() is RestoreState.DONE


def test_torn_disk_is_forgotten_with_its_server(host: Host) -> None:
    host.processes.ends = [failed(is_touched=True)]
    host.agent.start_restore(REQUEST, 1)
    host.work()
    host.gone.add(SERVER)
    assert host.agent.discard(TASK, 9)


def test_torn_disk_of_a_server_that_is_gone_is_told_of_no_more(host: Host) -> None:
    """Its task has ended, so nobody discards it."""
    host.processes.ends = [failed(is_touched=True)]
    host.agent.start_restore(REQUEST, 1)
    host.work()
    looks = []
    for is_gone in (False, True, False, True, True):
        host.gone = {SERVER} if is_gone else set()
        host.agent._is_gone = host.gone.__contains__
        host.agent.forget_gone()
        host.agent.forget_gone()  # too early: no look
        looks.append(bool(host.problems))
        host.now += GONE_LOOK_SECONDS
    assert looks == [True, True, True, True, False]
    assert os.listdir(host.folder) == []


def test_torn_disk_is_mended_by_whoever_restores_it_next(host: Host) -> None:
    other = dataclasses.replace(REQUEST, task=OTHER)
    host.processes.ends = [failed(is_touched=True), failed(is_touched=False), DONE]
    host.agent.start_restore(other, 1)
    host.agent.step()
    wait_for("its end", host.stepped)
    host.agent.start_restore(REQUEST, 1)
    assert host.work() is RestoreState.TORN
    host.agent.start_restore(REQUEST, 9)
    assert host.work() is RestoreState.DONE
    assert set(host.table.records) == {TASK}


@pytest.mark.parametrize("is_own", [True, False])
def test_set_that_is_half_written_is_mended_as_a_whole(host: Host, is_own: bool) -> None:
    """The server is started after a restore: none may leave one of its disks half written."""
    first = SET if is_own else dataclasses.replace(SET, task=OTHER)
    host.processes.ends = [failed(is_touched=True), DONE]
    host.agent.start_restore(first, 1)
    host.agent.step()
    wait_for("its end", host.stepped)
    assert any("vda, vdb" in problem for problem in host.problems)
    one_disk = dataclasses.replace(REQUEST, device="vdc" if not is_own else "vda")
    with pytest.raises(exception.FencedError, match=r"half written.* too: .*vdb"):
        host.agent.start_restore(one_disk, 9)
    host.agent.start_restore(SET, 9)
    assert host.work() is RestoreState.DONE
    assert (set(host.table.records), host.problems) == ({TASK}, [])


def test_disk_is_not_written_beside_a_set_that_has_it(host: Host) -> None:
    host.processes.waits.clear()
    host.agent.start_restore(SET, 1)
    host.agent.step()
    other = dataclasses.replace(REQUEST, task=OTHER, device="vdb")
    with pytest.raises(exception.FencedError, match="restored by task"):
        host.agent.start_restore(other, 1)
    host.processes.waits.set()
    assert host.work() is RestoreState.DONE


def test_record_that_cannot_be_written_begins_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.agent.start_restore(REQUEST, 1)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("acstor.files.write_atomically", fail)
        with pytest.raises(exception.UnavailableError, match="No space"):
            host.agent.step()
    assert host.processes.orders == []
    assert host.work() is RestoreState.DONE


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 3}', b"nonsense"])
def test_record_that_is_malformed_is_told(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / f"{TASK}.json").write_bytes(content)
    (tmp_path / "other").write_bytes(b"")
    host = Host(tmp_path)
    assert host.table.records == {}
    assert len(host.problems) == 1


def test_agent_that_has_not_looked_yet_says_so(tmp_path: pathlib.Path) -> None:
    agent = RestoreReconciler(
        RestoreTable(str(tmp_path), "h1"), Processes(tmp_path), order_of, lambda server: False
    )
    with pytest.raises(exception.UnavailableError, match="just been started"):
        agent.start_restore(REQUEST, 1)


def test_threads_of_an_agent_begin_and_end(host: Host) -> None:
    agent = host.agent
    agent.start_restore(REQUEST, 1)
    agent.start()
    wait_for("the end", lambda: agent.progress_of(TASK, 9).state is RestoreState.DONE)
    agent.stop(30.0)

"""Kills of a worker that leave what others leave too."""

import contextlib
import pathlib

from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import TaskKind
from tests.unit.versions.flows.cloud import SERVER, Cloud, Killed
from tests.unit.versions.flows.kills import WholeRun


def ready(folder: pathlib.Path) -> Cloud:
    cloud = Cloud(folder)
    cloud.captures.devices[SERVER] = ("vda",)
    cloud.ask(TaskKind.CREATE, f"server/{SERVER}", kind="server", owner=SERVER)
    return cloud


def left_by(folder: pathlib.Path, at: int, *, is_after: bool) -> object:
    """Return what a worker leaves in the database of tasks that is killed there."""
    cloud = ready(folder)
    cloud.switch.arm(at, is_after=is_after)
    with contextlib.suppress(Killed):
        cloud.work()
    row = cloud.task()
    return row.state, row.step, row.progress, row.error, row.result, cloud.version_ids()


def test_kills_after_calls_are_left_out_where_those_before_the_next_leave_the_same(
    tmp_path: pathlib.Path,
) -> None:
    whole = WholeRun(ready(tmp_path))
    assert whole.task.state is TaskState.DONE
    before, after = whole.calls(is_after=False), whole.calls(is_after=True)
    assert before == list(range(1, len(whole.names) + 1))
    assert len(whole.names) in after
    assert 0 < len(after) < len(before)
    for at in set(before) - set(after):
        same = left_by(tmp_path, at + 1, is_after=False)
        assert left_by(tmp_path, at, is_after=True) == same, whole.names[at - 1]


def test_what_is_written_between_two_calls_is_not_left_out(tmp_path: pathlib.Path) -> None:
    whole = WholeRun(ready(tmp_path))
    differing = {
        at
        for at in range(1, len(whole.names))
        if left_by(tmp_path, at, is_after=True) != left_by(tmp_path, at + 1, is_after=False)
    }
    assert differing
    assert differing <= set(whole.calls(is_after=True))

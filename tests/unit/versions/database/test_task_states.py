"""The states of a task, and that their page says the same as the table."""

import re

from acstor.versions.database import task_states
from acstor.versions.database.task_states import TaskEvent, TaskState
from testbed.fixtures.documents import SOURCE

PAGE = SOURCE / "reference" / "state-machines" / "task.rst"


def test_page_has_the_transitions_of_the_table() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    names: dict[TaskState | None, str] = {None: "absent"}
    names.update({state: state.value for state in TaskState})
    assert rows == [
        (names[state], event.value, names[following])
        for (state, event), following in task_states.TRANSITIONS.items()
    ]


def test_every_state_leads_to_an_end() -> None:
    after = task_states.TRANSITIONS
    ends = set(task_states.FINISHED)
    assert not any(before in ends for before, _ in after)
    reached = set(ends)
    for _ in TaskState:
        reached |= {before for (before, _), state in after.items() if state in reached and before}
    assert reached == set(TaskState)


def test_every_event_is_in_the_table() -> None:
    assert {event for _, event in task_states.TRANSITIONS} == set(TaskEvent)
    assert task_states.states_before(TaskEvent.TAKE) == task_states.UNFINISHED

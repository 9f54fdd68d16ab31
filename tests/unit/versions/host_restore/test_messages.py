"""Requests and progress of restores as they travel, and the page of the states."""

import dataclasses
import json
import re
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore import states
from acstor.versions.host_restore.progress import RestoreProgress, error_of
from acstor.versions.host_restore.request import DISKS_MAX, RestoredDisk, RestoreRequest
from acstor.versions.host_restore.states import RestoreEvent, RestoreState
from testbed.fixtures.documents import SOURCE

PAGE = SOURCE / "reference" / "state-machines" / "restore.rst"
TASK, SERVER, VERSION, IMAGE, OTHER = (str(uuid.UUID(int=number)) for number in range(1, 6))
REQUEST = RestoreRequest(TASK, SERVER, "vda", VERSION, "a project", IMAGE, 60.0)
SET = dataclasses.replace(REQUEST, further=(RestoredDisk("vdb", OTHER),), nvram=VERSION)
FURTHER = {"device": "vdb", "version": OTHER}
PROGRESS = RestoreProgress(
    TASK,
    3,
    "h1",
    VERSION,
    RestoreState.TORN,
    1,
    2,
    3,
    4,
    5,
    Failure.of(exception.CorruptError("damaged", hint="look")),
)


@pytest.mark.parametrize("request_", [REQUEST, SET, dataclasses.replace(REQUEST, nvram=OTHER)])
def test_request_arrives_as_it_was_sent(request_: RestoreRequest) -> None:
    arguments = json.loads(json.dumps(request_.to_arguments()))
    assert RestoreRequest.from_arguments(arguments) == request_


def test_request_of_one_disk_is_as_older_hosts_know_it() -> None:
    assert not REQUEST.is_set
    assert REQUEST.to_arguments().keys() == {
        "task", "server", "device", "version", "project", "base_image", "deadline_s",
    }  # fmt: skip
    assert SET.is_set
    assert SET.devices == {"vda", "vdb"}
    assert [disk.version for disk in SET.disks] == [VERSION, OTHER]


def test_request_may_leave_out_the_base_and_the_deadline() -> None:
    arguments = REQUEST.to_arguments()
    del arguments["base_image"], arguments["deadline_s"]
    found = RestoreRequest.from_arguments(arguments)
    assert found.base_image is None


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "x"},
        {"server": SERVER.upper().replace("0", "A")},
        {"version": None},
        {"device": "../vda"},
        {"device": "vda\n"},
        {"device": ""},
        {"project": ""},
        {"project": "p" * 300},
        {"base_image": 3},
        {"deadline_s": 0},
        {"deadline_s": float("nan")},
        {"other": 1},
        {"further": "vdb"},
        {"further": [{"device": "vdb"}]},
        {"further": [{**FURTHER, "other": 1}]},
        {"further": [{**FURTHER, "device": "../vdb"}]},
        {"further": [{**FURTHER, "version": "x"}]},
        {"further": [FURTHER, FURTHER]},
        {"further": [{**FURTHER, "device": "vda"}]},
        {"further": [{**FURTHER, "device": f"vd{n}"} for n in range(DISKS_MAX)]},
        {"nvram": "x"},
    ],
)
def test_malformed_requests_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(exception.InvalidError):
        RestoreRequest.from_arguments({**REQUEST.to_arguments(), **changed})


@pytest.mark.parametrize("progress", [PROGRESS, dataclasses.replace(PROGRESS, failure=None)])
def test_progress_arrives_as_it_was_sent(progress: RestoreProgress) -> None:
    answer = json.loads(json.dumps(progress.to_answer()))
    assert RestoreProgress.from_answer(answer) == progress
    assert error_of(progress).message


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "x"},
        {"epoch": 0},
        {"host": 3},
        {"version": None},
        {"state": "merged"},
        {"done_bytes": -1},
        {"written_bytes": 1.5},
        {"failure": "so"},
    ],
)
def test_nonsense_is_no_progress(changed: dict[str, Any]) -> None:
    with pytest.raises(exception.InvalidError):
        RestoreProgress.from_answer({**PROGRESS.to_answer(), **changed})
    with pytest.raises(exception.InvalidError):
        RestoreProgress.from_answer([])


def test_page_has_the_table_of_the_code() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    names: dict[RestoreState | None, str] = {None: "absent"}
    names.update({state: state.value for state in RestoreState})
    assert rows == [
        (names[state], event.value, names[following])
        for (state, event), following in states.TRANSITIONS.items()
    ]


def test_every_state_can_be_left_and_every_event_happens() -> None:
    assert {event for _, event in states.TRANSITIONS} == set(RestoreEvent)
    for state in RestoreState:
        assert any(before is state for before, _ in states.TRANSITIONS)
        assert (state in states.ENDED) == ((state, RestoreEvent.DISCARD) in states.TRANSITIONS)

"""Requests and progress of captures as they travel, and the page of the states."""

import dataclasses
import datetime
import re
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import Consistency, DiskKind, Trigger
from acstor.versions.host_capture import states
from acstor.versions.host_capture.progress import CapturedDisk, CaptureProgress, Failure
from acstor.versions.host_capture.request import (
    CaptureRequest,
    VersionFields,
    WantedConsistency,
    version_id_of,
)
from acstor.versions.host_capture.states import CaptureEvent, CaptureState
from testbed.fixtures.documents import SOURCE

PAGE = SOURCE / "reference" / "state-machines" / "capture.rst"
TASK, SERVER, PARENT, IMAGE = (str(uuid.UUID(int=number)) for number in range(1, 5))
REQUEST = CaptureRequest(
    TASK,
    DiskKind.INSTANCE,
    SERVER,
    VersionFields(
        "a project",
        Trigger.SCHEDULE,
        name="nightly",
        schedule="nightly",
        slot="2026-11-27",
        expires_at=datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC),
        labels={"a": "b"},
    ),
    devices=("vda", "vdb"),
    parents={"vda": PARENT},
    base_image=IMAGE,
    consistency=WantedConsistency.FS,
    deadline_s=60.0,
)


def test_request_arrives_as_it_was_sent() -> None:
    assert CaptureRequest.from_arguments(REQUEST.to_arguments()) == REQUEST


def test_request_may_leave_out_all_but_what_it_is_about() -> None:
    found = CaptureRequest.from_arguments(
        {"task": TASK, "kind": "volume", "owner": SERVER, "version": {"project": "p"}}
    )
    assert (found.devices, found.parents, found.base_image) == (None, {}, None)
    assert found.consistency is WantedConsistency.BEST
    assert found.version == VersionFields("p")


def test_expiry_is_in_whole_seconds_as_records_have_it() -> None:
    arguments = REQUEST.to_arguments()
    version = {**arguments["version"], "expires_at": "2026-12-01T01:00:00.5+01:00"}
    found = CaptureRequest.from_arguments({**arguments, "version": version})
    assert found.version.expires_at == REQUEST.version.expires_at


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "x"},
        {"task": TASK.upper().replace("0", "A")},
        {"kind": "disk"},
        {"owner": 3},
        {"version": None},
        {"version": {}},
        {"version": {"project": "p", "color": "red"}},
        {"version": {"project": "p", "labels": {"a": 1}}},
        {"version": {"project": "p", "expires_at": "soon"}},
        {"devices": []},
        {"devices": "vda"},
        {"devices": ["vda", "vda"]},
        {"devices": ["../vda"]},
        {"devices": [f"vd{number}" for number in range(65)]},
        {"parents": {"vda": "x"}},
        {"parents": {"": PARENT}},
        {"parents": ["vda"]},
        {"base_image": "x"},
        {"consistency": "fine"},
        {"deadline_s": 0},
        {"deadline_s": float("nan")},
        {"deadline_s": True},
        {"more": 1},
    ],
)
def test_malformed_requests_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(exception.InvalidError):
        CaptureRequest.from_arguments({**REQUEST.to_arguments(), **changed})


def test_volume_has_no_device() -> None:
    with pytest.raises(exception.InvalidError, match="no device"):
        CaptureRequest.from_arguments({**REQUEST.to_arguments(), "kind": "volume"})


def test_version_ids_follow_from_task_and_disk() -> None:
    assert REQUEST.version_id("vda") == version_id_of(TASK, "vda")
    assert REQUEST.version_id("vda") != REQUEST.version_id("vdb")
    other = dataclasses.replace(REQUEST, task=PARENT)
    assert other.version_id("vda") != REQUEST.version_id("vda")


def test_progress_arrives_as_it_was_told() -> None:
    told = CaptureProgress(
        TASK,
        7,
        "h1",
        CaptureState.FAILED,
        (CapturedDisk(REQUEST.version_id("vda"), "vda", 1 << 30, 5, has_nvram=True),),
        {"vdb": "it is on Ceph"},
        Consistency.FS,
        "",
        3,
        5,
        1.5,
        Failure(exception.ErrorKind.EXHAUSTED, "no room", "make some"),
    )
    assert CaptureProgress.from_answer(told.to_answer()) == told


@pytest.mark.parametrize(
    "answer", [None, {}, {"task": TASK, "epoch": 1, "host": "h", "state": "odd"}, [1]]
)
def test_malformed_progress_is_refused(answer: object) -> None:
    with pytest.raises(exception.InvalidError):
        CaptureProgress.from_answer(answer)


def test_failure_is_the_error_that_it_was() -> None:
    error = exception.ExhaustedError("no room", hint="make some")
    found = Failure.of(error).to_error()
    assert (type(found), found.message, found.hint) == (type(error), "no room", "make some")
    assert Failure.of(KeyError("x")).kind is exception.ErrorKind.INTERNAL


def test_page_has_the_transitions_of_the_table() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    names: dict[CaptureState | None, str] = {None: "absent"}
    names.update({state: state.value for state in CaptureState})
    assert rows == [
        (names[state], event.value, names[following])
        for (state, event), following in states.TRANSITIONS.items()
    ]


def test_every_state_can_be_left_and_every_event_happens() -> None:
    assert {event for _, event in states.TRANSITIONS} == set(CaptureEvent)
    for state in CaptureState:
        assert any(before is state for before, _ in states.TRANSITIONS)
        assert (state in states.ENDED) == ((state, CaptureEvent.DISCARD) in states.TRANSITIONS)

"""Admitted preloads: states, file, what comes over a wire."""

import json
import pathlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.control.protocol import PreloadWhat
from acstor.preload import admitted_preload, states
from acstor.preload.admitted_preload import (
    FILE_VERSION,
    AdmittedPreload,
    AdmittedPreloadFile,
    decode,
    encode,
)
from acstor.preload.request import PreloadRequest
from acstor.preload.states import (
    ACTIVE,
    TRANSITIONS,
    AdmittedPreloadEvent,
    AdmittedPreloadState,
    next_state,
)
from acstor.states import IllegalTransitionError

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "admitted-preloads-v1.json"
PAGE = ROOT / "doc" / "source" / "reference" / "state-machines" / "admitted-preload.rst"
IMAGE = str(uuid.UUID(int=1))


def golden_preloads() -> list[AdmittedPreload]:
    return [
        AdmittedPreload(
            id=str(uuid.UUID(int=7)),
            image=IMAGE,
            what=PreloadWhat.WORKING_SET,
            pin=False,
            rate_bytes_per_s=52428800,
            is_rate_fixed=True,
            deadline_at=1795600600.5,
            promised_at=1795600000.5,
            total_bytes=300 << 20,
            missing_bytes=200 << 20,
            remaining_bytes=100 << 20,
        ),
        AdmittedPreload(
            id=str(uuid.UUID(int=8)),
            image=str(uuid.UUID(int=2)),
            what=PreloadWhat.FULL,
            pin=True,
            rate_bytes_per_s=65536,
            is_rate_fixed=False,
            deadline_at=None,
            promised_at=1795600001.0,
            total_bytes=1 << 30,
            missing_bytes=1 << 30,
            state=AdmittedPreloadState.FAILED,
            ended_at=1795600002.0,
            error="the chunk store has no room",
            remaining_bytes=1 << 30,
        ),
    ]


def test_file_version_requires_update() -> None:
    assert FILE_VERSION == 1
    assert encode(golden_preloads()) == GOLDEN.read_bytes()
    assert decode(GOLDEN.read_bytes()) == golden_preloads()


def test_saved_admitted_preloads_are_loaded(tmp_path: pathlib.Path) -> None:
    file = AdmittedPreloadFile(str(tmp_path / "agent" / "preloads.json"))
    assert file.load() == []
    file.save(golden_preloads())
    assert file.load() == golden_preloads()
    file.save([])
    assert file.load() == []


def test_admitted_preload_that_was_running_waits_for_its_job_after_a_restart() -> None:
    running, _ = golden_preloads()
    running.move(AdmittedPreloadEvent.RESUME, 0.0)
    (loaded,) = decode(encode([running]))
    assert loaded.state is AdmittedPreloadState.WAITING


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"image": "../../etc/passwd"},
        {"what": "half"},
        {"pin": 1},
        {"state": "dreaming"},
        {"rate_bytes_per_s": -1},
        {"rate_bytes_per_s": 1 << 50},
        {"total_bytes": 1.5},
        {"deadline_at": "tomorrow"},
        {"promised_at": -1},
        {"error": "x" * 501},
    ],
)
def test_malformed_admitted_preload_is_corrupt(change: dict[str, object]) -> None:
    fields = json.loads(GOLDEN.read_bytes())
    fields["promises"][0].update(change)
    with pytest.raises(exception.CorruptError):
        decode(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"version": 1, "promises": 7}', b"[" * 9999, b" " * (5 << 20)]
)
def test_what_is_no_file_of_admitted_preloads_is_corrupt(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        decode(content)


def test_too_many_admitted_preloads_are_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admitted_preload, "ADMITTED_MAX", 1)
    with pytest.raises(exception.CorruptError):
        decode(GOLDEN.read_bytes())


def test_file_of_a_newer_release_is_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        decode(b'{"version": 2, "promises": []}')


def test_page_lists_exactly_the_transitions() -> None:
    listed = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:4])
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ``")
    }
    assert listed == {
        (state.value, event.value, after.value) for (state, event), after in TRANSITIONS.items()
    }


def test_every_pair_of_state_and_event_is_listed_or_refused() -> None:
    for state in AdmittedPreloadState:
        for event in AdmittedPreloadEvent:
            if (state, event) in TRANSITIONS:
                assert next_state(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_state(state, event)


def test_everything_may_happen_while_a_admitted_preload_goes_on() -> None:
    assert {state for state in AdmittedPreloadState if not state.has_ended} == states.ACTIVE
    for state in ACTIVE:
        for event in AdmittedPreloadEvent:
            next_state(state, event)


@given(st.lists(st.sampled_from(AdmittedPreloadEvent), max_size=20))
def test_admitted_preload_that_has_ended_never_goes_on(events: list[AdmittedPreloadEvent]) -> None:
    each = golden_preloads()[0]
    has_ended = False
    for event in events:
        try:
            each.move(event, 1.0)
        except IllegalTransitionError:
            assert has_ended
        assert not has_ended or each.state.has_ended
        has_ended = each.state.has_ended
        assert (each.ended_at is not None) == has_ended


def test_admitted_preload_is_late_only_while_it_goes_on() -> None:
    each = golden_preloads()[0]
    assert each.deadline_at is not None
    assert not each.is_late(each.deadline_at)
    assert each.is_late(each.deadline_at + 1)
    each.move(AdmittedPreloadEvent.FINISH_LATE, each.deadline_at + 1)
    assert not each.is_late(each.deadline_at + 2)
    assert each.state is AdmittedPreloadState.MISSED


def arguments(**changes: Any) -> dict[str, Any]:
    plain = PreloadRequest(IMAGE, PreloadWhat.FULL, 1 << 20, 60.0, True).to_arguments()
    return {**plain, **changes}


def test_request_survives_the_wire() -> None:
    request = PreloadRequest(IMAGE, PreloadWhat.FULL, 1 << 20, 60.0, True)
    assert PreloadRequest.from_arguments(json.loads(json.dumps(request.to_arguments()))) == request
    bare = PreloadRequest(IMAGE, PreloadWhat.WORKING_SET)
    assert PreloadRequest.from_arguments(bare.to_arguments()) == bare


@pytest.mark.parametrize(
    "change",
    [
        {"image": None},
        {"image": 7},
        {"image": IMAGE.upper().replace("0", "A")},
        {"image": "{" + IMAGE + "}"},
        {"what": None},
        {"what": ["full"]},
        {"rate_bytes_per_s": 0},
        {"rate_bytes_per_s": True},
        {"rate_bytes_per_s": 1e6},
        {"rate_bytes_per_s": 1 << 41},
        {"deadline_s": 0},
        {"deadline_s": -5},
        {"deadline_s": float("nan")},
        {"deadline_s": float("inf")},
        {"deadline_s": "60"},
        {"pin": "no"},
        {"force": True},
    ],
)
def test_malformed_request_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(exception.InvalidError):
        PreloadRequest.from_arguments(arguments(**change))

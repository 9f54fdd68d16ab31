"""The registry's entries: format, transitions, page."""

import json
import pathlib

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import image_registry
from acstor.repository.images.image_registry import (
    REGISTRY_VERSION,
    TRANSITIONS,
    Entry,
    EntryEvent,
    EntryState,
    ImageRegistry,
    next_state,
)

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "image-registry-v1.json"
PAGE = ROOT / "doc" / "source" / "reference" / "state-machines" / "image-registry.rst"
IMAGE_ID = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
ENTRY = Entry(
    EntryState.FAILED,
    reason="the image service cannot be reached",
    name="debian",
    pin=True,
    checksum="md5:d41d8cd98f00b204e9800998ecf8427e",
    size_bytes=2147483648,
    glance_updated_at="2026-11-21T14:00:00Z",
    changed_at="2026-11-21T14:05:00+00:00",
    attempts=2,
    retry_at="2026-11-21T14:06:00+00:00",
    registrar="controller/42",
)


def test_registry_version_1_requires_update() -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    assert REGISTRY_VERSION == 1
    assert ENTRY.encode() == GOLDEN.read_bytes()
    assert Entry.parse(GOLDEN.read_bytes(), IMAGE_ID) == ENTRY


def test_page_of_the_states_lists_exactly_the_transitions() -> None:
    listed = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:4])
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ``")
    }
    assert listed == {
        (
            state.value if state else "absent",
            event.value,
            following.value if following else "absent",
        )
        for (state, event), following in TRANSITIONS.items()
    }


def test_what_the_table_does_not_list_is_refused() -> None:
    for state in (None, *EntryState):
        for event in EntryEvent:
            if (state, event) not in TRANSITIONS:
                with pytest.raises(exception.InternalError):
                    next_state(state, event)


def test_every_state_is_reached_and_left() -> None:
    for state in EntryState:
        assert any(following is state for following in TRANSITIONS.values())
        assert any(
            before is state and following is not state
            for (before, _), following in TRANSITIONS.items()
        )


def test_unknown_fields_are_ignored_and_missing_ones_have_their_defaults() -> None:
    content = json.dumps({"version": 1, "state": "left", "later": [1]}).encode()
    assert Entry.parse(content, IMAGE_ID) == Entry(EntryState.LEFT)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": 2}, exception.UnsupportedError),
        ({"state": "lost"}, exception.CorruptError),
        ({"state": None}, exception.CorruptError),
        ({"pin": 1}, exception.CorruptError),
        ({"size_bytes": True}, exception.CorruptError),
        ({"size_bytes": -1}, exception.CorruptError),
        ({"attempts": "1"}, exception.CorruptError),
        ({"name": None}, exception.CorruptError),
        ({"retry_at": "soon"}, exception.CorruptError),
        ({"retry_at": "2026-11-21T14:06:00"}, exception.CorruptError),
        ({"unused_since": 7}, exception.CorruptError),
    ],
)
def test_bad_entry_is_an_error_of_its_kind(
    change: dict[str, object], expected: type[exception.AcstorError]
) -> None:
    fields = {**json.loads(ENTRY.encode()), **change}
    with pytest.raises(expected, match=IMAGE_ID):
        Entry.parse(json.dumps(fields).encode(), IMAGE_ID)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff", b'{"version": 1}'])
def test_nonsense_is_corrupt(content: bytes) -> None:
    with pytest.raises(exception.CorruptError, match=IMAGE_ID) as caught:
        Entry.parse(content, IMAGE_ID)
    assert "the registrar writes it anew" in caught.value.hint


def test_entries_change_by_compare_and_swap() -> None:
    found = ImageRegistry(MemoryOrigin())
    assert found.find(IMAGE_ID) is None
    first = found.replace(IMAGE_ID, None, Entry(EntryState.WAITING))
    assert first is not None
    with pytest.raises(exception.ConflictError):
        found.replace(IMAGE_ID, None, ENTRY)
    second = found.replace(IMAGE_ID, first, ENTRY)
    assert [listed.entry for listed in found.entries()] == [ENTRY]
    with pytest.raises(exception.ConflictError):
        found.replace(IMAGE_ID, first, None)
    assert found.find(IMAGE_ID.upper()) == second
    assert found.replace(IMAGE_ID, second, None) is None
    assert list(found.ids()) == []


def test_times_survive_writing_and_reading() -> None:
    assert image_registry.parse_time(image_registry.format_time(1_795_270_000.0)) == 1_795_270_000.0

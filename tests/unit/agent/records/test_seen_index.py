"""Memory of statements about the index: its file, and what is an old one."""

import json
import pathlib

import pytest

from acstor.agent.reconcilers.seen_index import (
    CLOCK_SLACK,
    FILE_VERSION,
    SeenIndex,
    SeenStatement,
)
from acstor.repository.images.index_statement import IndexStatement, VerifiedStatement

GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "seen-index-v1.json"
REPOSITORY = "75d745ee-6122-4977-8a4e-8b187136749e"
INDEX, OTHER = "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "ff" * 16
FIRST, SECOND = "a0" * 32, "b1" * 32
TIME = 1795261707


def stated(generation: int = 7, time: int = TIME, index: str = INDEX) -> IndexStatement:
    return IndexStatement(index, generation, 2, "0" * 64, time)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "agent").mkdir()
    return tmp_path / "agent" / "seen-index.json"


def opened(path: pathlib.Path, repository_id: str = REPOSITORY) -> SeenIndex:
    return SeenIndex(str(path), repository_id)


def test_file_version_requires_update(path: pathlib.Path) -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    assert FILE_VERSION == 1
    seen = opened(path)
    seen.note(VerifiedStatement(stated(), FIRST))
    seen.note(VerifiedStatement(stated(3, TIME + 5, OTHER), SECOND))
    assert path.read_bytes() == GOLDEN.read_bytes(), "bump FILE_VERSION"
    again = opened(path)
    assert again.find(FIRST) == SeenStatement(INDEX, 7, TIME)
    assert again.find(SECOND) == SeenStatement(OTHER, 3, TIME + 5)
    assert again.encode() == GOLDEN.read_bytes()


@pytest.mark.parametrize(
    ("statement", "is_old"),
    [
        (stated(), False),
        (stated(8, TIME - 2 * CLOCK_SLACK), False),
        (stated(6, TIME + 5), True),
        (stated(1, TIME - CLOCK_SLACK, OTHER), False),
        (stated(1, TIME - CLOCK_SLACK - 1, OTHER), True),
    ],
)
def test_generation_decides_and_of_another_index_the_time(
    statement: IndexStatement, is_old: bool
) -> None:
    assert SeenStatement(INDEX, 7, TIME).is_newer_than(statement) == is_old


def test_clock_that_was_set_back_leaves_the_later_time(path: pathlib.Path) -> None:
    seen = opened(path)
    seen.note(VerifiedStatement(stated(), FIRST))
    seen.note(VerifiedStatement(stated(8, TIME - 500), FIRST))
    assert seen.find(FIRST) == SeenStatement(INDEX, 8, TIME)


def test_indexes_put_back_one_after_the_other_lead_no_further_back(path: pathlib.Path) -> None:
    """Each is younger than the one before by less than clocks may differ."""
    seen = opened(path)
    seen.note(VerifiedStatement(stated(), FIRST))
    seen.note(VerifiedStatement(stated(3, TIME - CLOCK_SLACK, OTHER), FIRST))
    found = opened(path).find(FIRST)
    assert found == SeenStatement(OTHER, 3, TIME)
    assert found.is_newer_than(stated(1, TIME - CLOCK_SLACK - 1))


def test_file_is_written_when_something_is_new(path: pathlib.Path) -> None:
    seen = opened(path)
    seen.note(VerifiedStatement(stated(), FIRST))
    path.unlink()
    seen.note(VerifiedStatement(stated(), FIRST))
    assert not path.exists()


def test_another_repository_is_begun_anew(path: pathlib.Path) -> None:
    opened(path).note(VerifiedStatement(stated(), FIRST))
    assert opened(path, "another").find(FIRST) is None


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"keys": {"no key": {}}},
        {"keys": {FIRST: {"index": INDEX, "generation": -1, "time": 0}}},
        {"keys": {FIRST: {"index": 5, "generation": 1, "time": 0}}},
        {"keys": []},
    ],
)
def test_file_that_cannot_be_used_is_told_of_and_begun_anew(
    path: pathlib.Path, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(json.dumps(json.loads(GOLDEN.read_bytes()) | change))
    seen = opened(path)
    assert seen.find(FIRST) is None
    assert "an old index of images is taken" in caplog.text
    seen.note(VerifiedStatement(stated(), FIRST))
    assert opened(path).find(FIRST) is not None


def test_disk_that_cannot_be_written_is_told_of(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    seen = SeenIndex(str(tmp_path / "file" / "seen-index.json"), REPOSITORY)
    seen.note(VerifiedStatement(stated(), FIRST))
    assert "cannot be remembered" in caplog.text
    assert seen.find(FIRST) is not None

"""Differences of versions over the API."""

import pytest

from acstor.api.resources import version_diff
from acstor.repository import layout
from acstor.repository.reading.disk_reader import DiskReader
from acstor.repository.repository import Repository
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import DiskState
from testbed.doubles.memory_overlay import MemoryOverlay
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import Setting
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register
from tests.unit.repository.versions.captures import NumberedDisk, take
from tests.unit.repository.versions.records import version_id

PATH = f"/v1/versions/{version_id(2)}/diff"


@pytest.fixture
def owner(api: Setting) -> TestCaller:
    """Return the owner of three versions of a disk."""
    register(api.versions.repository, 0, disk(1, 2, 3, 4))
    manifest = api.versions.repository.get_image(image_id(0)).record.manifest
    for number, numbers in ((1, (1, 2, 3, 4)), (2, (20, 2, 21, 0)), (3, (20, 2, 21, 0))):
        manifest = take(api.versions, number, NumberedDisk(numbers), manifest)
        api.refresh(version_id(number))
    return TestCaller(api.app, "a project", "reader")


def test_extents_are_those_that_changed(owner: TestCaller) -> None:
    answer = owner.get(f"{PATH}?against={version_id(1)}")
    assert answer.json == {
        "diff": {
            "changed_bytes": 3 * CHUNK_SIZE,
            "extents": [[0, CHUNK_SIZE], [2 * CHUNK_SIZE, 2 * CHUNK_SIZE]],
        },
        "links": [],
    }
    answer = owner.get(f"{PATH}?against={version_id(3)}")
    assert answer.json["diff"] == {"changed_bytes": 0, "extents": []}


def test_pages_have_each_extent_once(owner: TestCaller) -> None:
    found, path = [], f"{PATH}?against={version_id(1)}&limit=1"
    for _ in range(5):
        body = owner.get(path).json
        assert body["diff"]["changed_bytes"] == 3 * CHUNK_SIZE
        found += body["diff"]["extents"]
        if not body["links"]:
            break
        path = "/v1/" + body["links"][0]["href"].partition("/v1/")[2]
    assert [extent[0] for extent in found] == [0, 2 * CHUNK_SIZE]


def test_version_that_cannot_be_seen_is_not_compared(owner: TestCaller, api: Setting) -> None:
    hidden = api.add_version()
    for path in (f"{PATH}?against={hidden}", f"/v1/versions/{hidden}/diff?against={version_id(1)}"):
        answer = owner.get(path)
        assert (answer.status_code, first_error(answer)["code"]) == (
            404,
            "acstor.version.not_found",
        )


@pytest.mark.parametrize("query", ["", "against=x", f"against={version_id(1)}&marker=x"])
def test_query_that_makes_no_sense_is_refused(owner: TestCaller, query: str) -> None:
    assert owner.get(f"{PATH}?{query}").status_code == 400


def test_volume_that_was_pushed_since_its_fold_is_read(
    owner: TestCaller, api: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[DiskReader] = []

    def open_disk(repository: Repository, content: DiskState, size_bytes: int) -> DiskReader:
        manifest = repository.load_manifest(str(content.manifest))
        overlay = MemoryOverlay({CHUNK_SIZE: b"x"}) if content.logs else None
        opened.append(DiskReader(repository.origin, size_bytes, manifest, overlay))
        return opened[-1]

    monkeypatch.setattr(version_diff, "open_disk", open_disk)
    known = api.versions.get(version_id(2)).record
    for number in range(1, 66):
        api.origin.put_if_absent(layout.log_key(version_id(9), 1, number), [b"pushed"])
    for count, status in ((1, 200), (65, 400)):
        logs = (LogRange(version_id(9), 1, 1, count),)
        pushed = api.add_version(
            project="a project", manifest=known.manifest, size_bytes=known.size_bytes, logs=logs
        )
        answer = owner.get(f"/v1/versions/{pushed}/diff?against={version_id(2)}")
        assert answer.status_code == status
        if status == 200:
            assert answer.json["diff"]["extents"] == [[CHUNK_SIZE, CHUNK_SIZE]]
    assert len(opened) == 2


def test_capture_has_nothing_to_compare_yet(owner: TestCaller, api: Setting) -> None:
    captured = api.add_version(is_captured=True, project="a project")
    answer = owner.get(f"{PATH}?against={captured}")
    assert (answer.status_code, first_error(answer)["code"]) == (
        409,
        "acstor.version.not_committed",
    )

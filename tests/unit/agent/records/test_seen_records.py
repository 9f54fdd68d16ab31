"""Memory of signed records: its file, and what it forgets."""

import json
import pathlib
import uuid

import pytest

from acstor import exception
from acstor.agent.reconcilers import seen_records
from acstor.agent.reconcilers.seen_records import FILE_VERSION, MANIFESTS_MAX, SeenRecords
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.signed_record import VerifiedRecord
from acstor.repository.signing.signed_document import RefusalReason, UnverifiedError

GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "seen-records-v1.json"
REPOSITORY = "75d745ee-6122-4977-8a4e-8b187136749e"
IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
FIRST, SECOND = "a0" * 32, "b1" * 32


def known(generation: int, key_id: str | None = FIRST, manifest: int = 0) -> VerifiedRecord:
    record = ImageRecord(f"{manifest:064x}", "0" * 64, "", 512, 4096, 1, 1, 0, "raw", "")
    return VerifiedRecord(record, key_id, generation)


def image(number: int) -> str:
    return str(uuid.UUID(int=number))


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "agent" / "seen-records.json"


def opened(path: pathlib.Path, repository_id: str = REPOSITORY) -> SeenRecords:
    seen = SeenRecords(str(path), repository_id)
    seen.load()
    return seen


def test_file_version_requires_update(path: pathlib.Path) -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    assert FILE_VERSION == 1
    path.parent.mkdir()
    path.write_bytes(GOLDEN.read_bytes())
    seen = opened(path)
    assert seen.encode() == GOLDEN.read_bytes(), "bump FILE_VERSION"
    assert seen.has_seen(IMAGE, "ab" * 32)
    with pytest.raises(UnverifiedError) as caught:
        seen.check(IMAGE, known(1795261707499))
    assert caught.value.reason is RefusalReason.ROLLBACK
    seen.check(IMAGE, known(1795261707500))
    with pytest.raises(UnverifiedError):
        seen.check(image(1), known(1795261600000))


def test_generation_is_kept_per_key(path: pathlib.Path) -> None:
    seen = opened(path)
    seen.note(IMAGE, known(1 << 52))
    seen.check(IMAGE, known(7, SECOND))
    seen.note(IMAGE, known(7, SECOND))
    seen.save([])
    again = opened(path)
    again.check(IMAGE, known(7, SECOND))
    for generation, key_id in ((6, SECOND), (7, FIRST)):
        with pytest.raises(UnverifiedError):
            again.check(IMAGE, known(generation, key_id))


def test_what_has_not_changed_is_not_written(path: pathlib.Path) -> None:
    seen = opened(path)
    seen.note(IMAGE, known(7))
    seen.save([])
    path.unlink()
    seen.note(IMAGE, known(7))
    seen.save([])
    assert not path.exists()


def test_manifests_of_an_image_are_bounded(path: pathlib.Path) -> None:
    seen = opened(path)
    for number in range(10):
        seen.note(IMAGE, known(number + 1, manifest=number))
    seen.note(IMAGE, known(11, manifest=7))
    seen.save([])
    again = opened(path)
    found = [number for number in range(10) if again.has_seen(IMAGE, f"{number:064x}")]
    assert found == [6, 7, 8, 9]
    assert len(found) == MANIFESTS_MAX


def test_oldest_former_images_leave_their_generation_behind(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that is forgotten does not come back with an old record."""
    monkeypatch.setattr(seen_records, "FORMER_MAX", 3)
    seen = opened(path)
    for number in range(1, 9):
        seen.note(image(number), known(number * 10))
    seen.save({image(1)})
    again = opened(path)
    fields = json.loads(path.read_text())
    assert set(fields["images"]) == {image(number) for number in (1, 6, 7, 8)}
    assert fields["floors"] == {FIRST: 50}
    again.check(image(1), known(10))
    again.check(image(3), known(51))
    with pytest.raises(UnverifiedError):
        again.check(image(3), known(49))
    again.check(image(3), known(1, SECOND))


@pytest.mark.parametrize(
    "change",
    [
        {"images": []},
        {"images": {"no id": {"generations": {FIRST: 1}, "manifests": []}}},
        {"images": {IMAGE: {"generations": {}, "manifests": []}}},
        {"images": {IMAGE: {"generations": {FIRST: -1}, "manifests": []}}},
        {"images": {IMAGE: {"generations": {"short": 1}, "manifests": []}}},
        {"images": {IMAGE: {"generations": {FIRST: 1}, "manifests": [7]}}},
        {"images": {IMAGE: {"generations": {FIRST: 1}}}},
        {"floors": {FIRST: "1"}},
        {"repository": 7},
    ],
)
def test_damaged_file_is_put_aside(path: pathlib.Path, change: dict[str, object]) -> None:
    path.parent.mkdir()
    fields = {"version": 1, "repository": None, "floors": {}, "images": {}, **change}
    path.write_text(json.dumps(fields))
    seen = opened(path)
    assert not path.exists()
    assert path.with_name("seen-records.json.damaged").exists()
    seen.check(IMAGE, known(1))
    assert not seen.is_signed(IMAGE)


def test_newer_file_is_left_alone(path: pathlib.Path) -> None:
    path.parent.mkdir()
    path.write_text('{"version": 2}')
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        opened(path)
    assert path.read_text() == '{"version": 2}'


def test_other_repository_is_refused_until_the_file_is_removed(path: pathlib.Path) -> None:
    seen = opened(path)
    seen.note(IMAGE, known(7))
    seen.save([])
    other = opened(path, image(5))
    with pytest.raises(UnverifiedError, match=REPOSITORY) as caught:
        other.check(image(1), known(8))
    assert str(path) in caught.value.hint
    path.unlink()
    opened(path, image(5)).check(image(1), known(8))

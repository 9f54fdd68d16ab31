"""Disks of versions over the API: whole, in parts, and what happens where that fails."""

import dataclasses
import hashlib

import pytest

from acstor import exception
from acstor.api import version_files
from acstor.repository import layout
from acstor.repository.reading.disk_reader import DiskReader
from acstor.repository.reading.image_files import PIECE_SIZE, ImageFormat
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import Setting
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register
from tests.unit.repository.versions.captures import NumberedDisk, take
from tests.unit.repository.versions.records import version_id

PATH = f"/v1/versions/{version_id(1)}/data"
RAW = f"{PATH}?format=raw"
NUMBERS = (20, 2, 21, 0)
CONTENT = disk(*NUMBERS)


@pytest.fixture
def member(api: Setting) -> TestCaller:
    """Return the owner of a version of a disk."""
    register(api.versions.repository, 0, disk(1, 2, 3, 4))
    manifest = api.versions.repository.get_image(image_id(0)).record.manifest
    take(api.versions, 1, NumberedDisk(NUMBERS), manifest)
    api.refresh(version_id(1))
    return TestCaller(api.app, "a project", "member")


def test_disk_comes_whole(member: TestCaller) -> None:
    answer = member.get(RAW)
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["accept-ranges"] == "bytes"


def test_qcow2_is_what_comes_unasked(member: TestCaller) -> None:
    answer = member.get(PATH)
    assert answer.content[:4] == b"QFI\xfb"
    assert answer.content == member.get(f"{PATH}?format=qcow2").content
    assert answer.headers["content-length"] == str(len(answer.content))


@pytest.mark.parametrize("path", [PATH, RAW])
def test_head_has_the_headers_of_the_whole(member: TestCaller, path: str) -> None:
    head, whole = member.ask("HEAD", path), member.get(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "etag", "accept-ranges"):
        assert head.headers[name] == whole.headers[name]


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-", 0, len(CONTENT)),
        ("bytes=0-0", 0, 1),
        ("bytes=5000-", 5000, len(CONTENT)),
        ("bytes=4095-4096", 4095, 4097),
        ("bytes=100-99999999", 100, len(CONTENT)),
        ("bytes=-10", len(CONTENT) - 10, len(CONTENT)),
        ("bytes=-99999999", 0, len(CONTENT)),
    ],
)
def test_part_comes_alone(member: TestCaller, wanted: str, start: int, end: int) -> None:
    answer = member.get(RAW, Range=wanted)
    assert (answer.status_code, answer.content) == (206, CONTENT[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("wanted", [f"bytes={len(CONTENT)}-", "bytes=99999999-"])
def test_part_past_the_end_is_refused(member: TestCaller, wanted: str) -> None:
    answer = member.get(RAW, Range=wanted)
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"
    assert first_error(answer)["code"] == "acstor.range.not_satisfiable"


@pytest.mark.parametrize("wanted", ["bytes=a-b", "bytes=5-4", "bytes=0-1,3-4"])
def test_malformed_range_is_refused(member: TestCaller, wanted: str) -> None:
    assert member.get(RAW, Range=wanted).status_code == 400


def test_other_units_are_ignored(member: TestCaller) -> None:
    assert member.get(RAW, Range="chunks=0-1").content == CONTENT


def test_rest_comes_only_of_what_was_begun(member: TestCaller) -> None:
    etag = member.ask("HEAD", RAW).headers["etag"]
    rest = member.get(RAW, Range="bytes=8192-", **{"If-Range": etag})
    assert (rest.status_code, rest.content) == (206, CONTENT[8192:])
    other = member.get(RAW, Range="bytes=8192-", **{"If-Range": '"another"'})
    assert (other.status_code, other.content) == (200, CONTENT)


def test_name_is_of_content_and_format(member: TestCaller, api: Setting) -> None:
    register(api.versions.repository, 1, CONTENT)
    manifest = api.versions.repository.get_image(image_id(1)).record.manifest
    take(api.versions, 2, NumberedDisk((0, 0, 21, 0)), manifest)
    api.refresh(version_id(2))
    paths = (PATH, RAW, PATH.replace(version_id(1), version_id(2)))
    names = {member.ask("HEAD", path).headers["etag"] for path in paths}
    assert len(names) == 3


def test_reader_may_not_download(member: TestCaller) -> None:
    reader = member.as_role("reader")
    assert reader.get(RAW).status_code == reader.ask("HEAD", RAW).status_code == 403


def test_capture_has_nothing_yet(member: TestCaller, api: Setting) -> None:
    captured = api.add_version(is_captured=True, project="a project")
    answer = member.get(f"/v1/versions/{captured}/data")
    assert answer.status_code == 409
    assert first_error(answer)["code"] == "acstor.version.not_committed"


def test_one_too_many_is_told_to_come_back(member: TestCaller, api: Setting) -> None:
    record = api.versions.find(version_id(1))
    assert record is not None
    others = dataclasses.replace(record, record=dataclasses.replace(record.record, project="p2"))
    under_way = api.backends.files.download(record, ImageFormat.RAW)
    # Of the two places one project has one.
    answer = member.get(RAW)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    # What is short has places of its own.
    assert member.ask("HEAD", RAW).status_code == 200
    of_others = api.backends.files.download(others, ImageFormat.RAW)
    under_way.close()
    under_way.close()
    assert list(under_way) == []
    assert member.get(RAW).status_code == 200
    # Twice closed, it gave one place back.
    again = api.backends.files.download(record, ImageFormat.RAW)
    assert member.get(RAW).status_code == 503
    again.close()
    of_others.close()
    assert member.get(RAW).status_code == 200


def test_files_that_nobody_reads_are_closed_but_for_a_few(
    member: TestCaller, api: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[DiskReader] = []
    monkeypatch.setattr(DiskReader, "close", lambda disk: closed.append(disk))
    monkeypatch.setattr(version_files, "FILES_MAX", 1)
    for path in (RAW, PATH, RAW):
        assert member.get(path).status_code == 200
    assert len(closed) == 2


def test_place_is_free_again_after_each_end(member: TestCaller) -> None:
    for _ in range(5):
        assert member.get(RAW).status_code == 200
        assert member.get(RAW, Range="bytes=99999999-").status_code == 416
        assert member.get(RAW, Range="bytes=x").status_code == 400


def test_damaged_disk_is_never_sent(member: TestCaller, api: Setting) -> None:
    for key in list(api.origin.list(layout.PACK_PREFIX)):
        content = bytearray(api.origin.get(key, 1 << 20))
        content[5000] ^= 1
        api.origin.delete(key)
        api.origin.put_if_absent(key, [content])
    with pytest.raises(exception.CorruptError):
        member.get(RAW)


def test_memory_is_bounded_by_a_piece(
    member: TestCaller, api: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read = DiskReader.read

    def noted(self: DiskReader, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(DiskReader, "read", noted)
    digest = hashlib.sha256(member.get(RAW).content).digest()
    assert digest == hashlib.sha256(CONTENT).digest()
    assert max(sizes) <= PIECE_SIZE
    assert CHUNK_SIZE <= PIECE_SIZE

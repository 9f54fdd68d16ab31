"""Files of versions over the API."""

import dataclasses
import io
import os
import pathlib
import tarfile
from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.api.places import PlaceKind
from acstor.browsing.disk_files import DiskFiles, FileFound, FileKind
from acstor.repository.reading.image_files import ImageFormat
from acstor.repository.versions.version_refs import Version
from testbed.fixtures.api_callers import TestCaller, first_error
from testbed.fixtures.file_systems import make_ext4, make_tree
from tests.unit.api.setting import Setting
from tests.unit.repository.images import image_id, register


def add_version(api: Setting, number: int, disk: bytes) -> str:
    """Return the path of a version that has a disk."""
    register(api.versions.repository, number, disk)
    manifest = api.versions.repository.get_image(image_id(number)).record.manifest
    version_id = api.add_version(manifest=manifest, size_bytes=len(disk))
    return f"/v1/versions/{version_id}"


@pytest.fixture
def version(api: Setting, ext4_disk: bytes) -> str:
    """Return the path of a version whose disk has a few files."""
    return add_version(api, 0, ext4_disk)


def test_partitions_are_listed(api: Setting, version: str) -> None:
    [found] = api.member.get(f"{version}/partitions").json["partitions"]
    assert found["number"] == 0
    assert (found["file_system"], found["label"], found["is_readable"]) == ("ext", "system", True)


def test_directory_is_listed_page_by_page(api: Setting, version: str) -> None:
    names = []
    path = f"{version}/files?path=/many&limit=8"
    while path:
        answer = api.member.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.json["file"]["kind"] == "directory"
        names += [one["name"] for one in answer.json["files"]]
        path = next((one["href"] for one in answer.json["links"]), "").partition("://")[2]
        path = path[path.find("/") :] if path else ""
    assert names == [f"file{number:02}" for number in range(20)]


def test_page_begins_behind_its_marker_wherever_that_is(api: Setting, version: str) -> None:
    for marker in ("file05", "file05.gone", "file05\\xFF"):
        found = api.member.get(f"{version}/files?path=/many&limit=1&marker={marker}").json["files"]
        assert [one["name"] for one in found] == ["file06"], marker


@pytest.mark.parametrize("names", [["a", "a", "a", "b"], ["a"] * 9])
def test_name_that_a_directory_has_many_times_ends(
    api: Setting, version: str, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    one = FileFound("a", FileKind.FILE, 1, 0o644, 0, 0, 0, None)
    monkeypatch.setattr(
        DiskFiles,
        "listing",
        lambda *_: iter([dataclasses.replace(one, name=name) for name in names]),
    )
    marker = "a"
    found = api.member.get(f"{version}/files?path=/many&limit=2&marker={marker}").json["files"]
    assert [each["name"] for each in found] == [name for name in names if name > marker]


def test_file_alone_is_shown(api: Setting, version: str) -> None:
    found = api.member.get(f"{version}/files?path=/etc/hostname").json
    assert found["files"] == []
    assert (found["file"]["size_bytes"], found["file"]["kind"]) == (6, "file")
    assert found["file"]["mode"].startswith("0")
    assert found["file"]["modified_at"].startswith("20")


def test_content_comes_whole_and_in_parts(api: Setting, version: str) -> None:
    expected = bytes(range(256)) * 2000
    path = f"{version}/files/content?path=/etc/deep/large"
    whole = api.member.get(path)
    assert (whole.status_code, whole.content) == (200, expected)
    part = api.member.get(path, Range="bytes=1000-", **{"If-Range": whole.headers["etag"]})
    assert (part.status_code, part.content) == (206, expected[1000:])
    assert api.member.get(path, Range=f"bytes={len(expected)}-").status_code == 416


def test_archive_is_a_tar(api: Setting, version: str) -> None:
    answer = api.member.get(f"{version}/files/archive?path=/etc")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert sorted(archive.getnames()) == [
            "etc", "etc/deep", "etc/deep/large", "etc/hostname", "etc/link",
        ]  # fmt: skip
        member = archive.extractfile("etc/hostname")
        assert member is not None
        assert member.read() == b"web-1\n"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("files?path=/none", 404),
        ("files?path=/etc/hostname/x", 400),
        ("files?path=relative", 400),
        ("files?path=/a%5C", 400),
        ("files?partition=7", 404),
        ("files/content?path=/etc", 400),
        ("files/content?path=/etc/link", 400),
        ("files/content?path=/none", 404),
        ("files/content", 400),
        ("files/archive?path=/none", 404),
    ],
)
def test_what_is_not_there_is_told(api: Setting, version: str, query: str, status: int) -> None:
    answer = api.member.get(f"{version}/{query}")
    assert answer.status_code == status, answer.text
    assert first_error(answer)["detail"]


def test_reader_sees_no_files(api: Setting, version: str) -> None:
    reader = api.member.as_role("reader")
    for path in ("partitions", "files", "files/content?path=/etc/hostname", "files/archive?path=/"):
        assert reader.get(f"{version}/{path}").status_code == 403


def test_stranger_finds_nothing(api: Setting, version: str) -> None:
    stranger: TestCaller = api.stranger
    for path in ("partitions", "files", "files/content?path=/etc/hostname", "files/archive?path=/"):
        assert stranger.get(f"{version}/{path}").status_code == 404


def test_disk_without_files_is_told(api: Setting) -> None:
    path = add_version(api, 1, os.urandom(1 << 16))
    answer = api.member.get(f"{path}/files")
    assert answer.status_code == 400
    assert (
        "no partition of the disk can be looked into (0: unknown)" in first_error(answer)["detail"]
    )
    [found] = api.member.get(f"{path}/partitions").json["partitions"]
    assert not found["is_readable"]
    assert found["reason"]


def test_places_are_given_back(api: Setting, version: str) -> None:
    for _ in range(5):
        assert api.member.get(f"{version}/files?path=/none").status_code == 404
        assert api.member.get(f"{version}/files/content?path=/etc").status_code == 400
    assert api.member.get(f"{version}/files").status_code == 200


SHORT = ("partitions", "files", "files?path=/etc/hostname")
LONG = ("files/content?path=/etc/hostname", "files/archive?path=/etc", "files/diff?against={id}")


def found_of(api: Setting, version: str) -> Version:
    """Return the version of a path."""
    found = api.versions.find(version.rpartition("/")[2])
    assert found is not None
    return found


def statuses(api: Setting, version: str, paths: Sequence[str]) -> list[int]:
    """Return the statuses of answers; each that says to come back says when, and what to do."""
    found = []
    for path in paths:
        answer = api.member.get(f"{version}/{path.format(id=version.rpartition('/')[2])}")
        found.append(answer.status_code)
        if answer.status_code == 503:
            assert answer.headers["retry-after"] == "5"
            assert "[api] " in first_error(answer)["hint"]
    return found


def test_downloads_leave_places_for_short_questions(api: Setting, version: str) -> None:
    found = found_of(api, version)
    downloads = [api.backends.files.download(found, ImageFormat.RAW)]
    other = dataclasses.replace(found, record=dataclasses.replace(found.record, project="p2"))
    downloads.append(api.backends.files.download(other, ImageFormat.RAW))
    assert statuses(api, version, SHORT) == [200] * 3
    assert api.member.ask("HEAD", f"{version}/{LONG[0]}").status_code == 200
    assert statuses(api, version, LONG) == [503] * 3
    for one in downloads:
        one.close()
    assert statuses(api, version, LONG) == [200] * 3


def test_short_questions_are_bounded_and_leave_places_for_downloads(
    api: Setting, version: str
) -> None:
    disk = api.backends.files.disk(found_of(api, version), PlaceKind.LOOK)
    # Of the two places one project has one.
    assert statuses(api, version, SHORT) == [503] * 3
    assert api.member.ask("HEAD", f"{version}/{LONG[0]}").status_code == 503
    assert api.member.ask("HEAD", f"{version}/data").status_code == 503
    assert statuses(api, version, LONG) == [200] * 3
    disk.close()
    disk.close()
    assert statuses(api, version, SHORT) == [200] * 3


def test_short_questions_of_all_projects_are_bounded(api: Setting, version: str) -> None:
    found = found_of(api, version)
    others = [
        dataclasses.replace(found, record=dataclasses.replace(found.record, project=project))
        for project in ("p2", "p3")
    ]
    disks = [api.backends.files.disk(one, PlaceKind.LOOK) for one in others]
    answer = api.member.get(f"{version}/files")
    assert answer.status_code == 503
    detail = first_error(answer)["detail"]
    assert "2 of 2 disks of versions are being looked into" in detail
    assert "0 of 1 of this project" in detail
    disks[0].close()
    assert api.member.get(f"{version}/files").status_code == 200
    disks[1].close()


def test_origin_that_fails_breaks_an_answer_off(
    api: Setting, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise exception.UnavailableError("the origin is away")

    monkeypatch.setattr("acstor.repository.reading.disk_reader.DiskReader.read", fail)
    assert api.member.get(f"{version}/files").status_code == 503


def test_files_of_two_versions_are_compared(
    api: Setting, tmp_path: pathlib.Path, ext4_disk: bytes
) -> None:
    tree = make_tree(tmp_path)
    before = add_version(api, 1, make_ext4(tree, tmp_path / "one"))
    (tree / "etc" / "hostname").write_text("web-2 since today\n")
    (tree / "many" / "file03").unlink()
    (tree / "new").mkdir()
    (tree / "new" / "file").write_text("new")
    after = add_version(api, 2, make_ext4(tree, tmp_path / "two"))
    path = f"{after}/files/diff?against={before.rpartition('/')[2]}"
    answer = api.member.get(path)
    assert answer.status_code == 200, answer.text
    found = [(one["path"], one["change"]) for one in answer.json["files"]]
    assert found == [
        ("/new", "added"),
        ("/etc/hostname", "changed"),
        ("/many/file03", "removed"),
        ("/new/file", "added"),
    ]
    assert "size_bytes" in answer.json["files"][1]["fields"]
    page = api.member.get(f"{path}&limit=1&marker=/etc/hostname").json
    assert [one["path"] for one in page["files"]] == ["/many/file03"]
    assert page["links"]

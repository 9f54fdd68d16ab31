"""Fronts of manifests: what is brought before an image is attached."""

import os
import pathlib
from typing import Any, cast

import pytest

from acstor import exception
from acstor.agent.reconcilers import manifest_fetching
from acstor.agent.reconcilers.image_following import ImageFollower
from acstor.agent.reconcilers.image_records import ImageRecords
from acstor.agent.reconcilers.manifest_fetching import FRONT_BYTES, fetch_front, fetch_whole
from acstor.agent.reconcilers.seen_records import SeenRecords
from acstor.agent.reconcilers.usage_publication import UsagePublisher
from acstor.control.client import AdminClient
from acstor.files import copy_data, write_atomically
from acstor.origin.faulty import FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository import disk_manifest, layout
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.repository import COMPRESSED_VERSION, Repository
from acstor.repository.signing.trusted_keys import TrustedKeys
from testbed.doubles.manifests import (
    CHUNK_SIZE,
    make_manifest,
    make_paged_manifest,
    register_dense_disk,
    store_dense_disk,
)

IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"


@pytest.fixture
def origin() -> FaultyOrigin:
    return FaultyOrigin(MemoryOrigin())


class AttachingDataPlane:
    """The admin calls of a data plane that takes manifests.

    :param knows_partial: whether it is of a release that fetches pages.
    """

    def __init__(self, *, knows_partial: bool = True) -> None:
        self._knows_partial = knows_partial
        self.images: list[dict[str, Any]] = []
        self.attached: list[tuple[int, bool]] = []
        """Length of each manifest that was handed over, and whether it had holes."""

    def user(self) -> int | None:
        return None

    def call(self, method: str, **arguments: Any) -> Any:
        if method == "image.list":
            return self.images
        assert method == "image.attach"
        is_partial = arguments.get("partial", False)
        if is_partial and not self._knows_partial:
            raise exception.InvalidError("image.attach has no parameter 'partial'")
        found = os.stat(arguments["path"])
        has_holes = found.st_blocks * 512 < found.st_size
        assert has_holes == is_partial
        self.attached.append((found.st_size, has_holes))
        return {}


class Following:
    """An agent that follows the images of a repository."""

    def __init__(self, path: pathlib.Path, data_plane: AttachingDataPlane) -> None:
        self.origin = MemoryOrigin()
        Repository.init(self.origin, CHUNK_SIZE, version=COMPRESSED_VERSION)
        self.data_plane = data_plane
        verifier = RecordVerifier("", TrustedKeys(None), require_signatures=False)
        records = ImageRecords(self.origin, verifier, SeenRecords(str(path / "seen.json"), ""))
        publisher = UsagePublisher(self.origin, "h1")
        client = cast("AdminClient", data_plane)
        self._follower = ImageFollower(self.origin, client, str(path), publisher, records)

    def follow(self) -> None:
        report = self._follower.reconcile()
        assert report.problems == {}
        assert list(report.offered) == [IMAGE]


@pytest.mark.parametrize("knows_partial", [True, False])
def test_new_image_is_attached_with_the_front_where_the_data_plane_fetches_pages(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *, knows_partial: bool
) -> None:
    monkeypatch.setattr(manifest_fetching, "WHOLE_BYTES_MAX", 0)
    host = Following(tmp_path, AttachingDataPlane(knows_partial=knows_partial))
    _, length = register_dense_disk(host.origin, IMAGE, 4)
    host.follow()
    assert host.data_plane.attached == [(length, knows_partial)]


def test_manifest_in_the_place_of_another_is_handed_over_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_fetching, "WHOLE_BYTES_MAX", 0)
    host = Following(tmp_path, AttachingDataPlane())
    former, _ = register_dense_disk(host.origin, IMAGE, 4)
    host.data_plane.images = [{"id": IMAGE, "manifest": former, "hidden": False}]
    _, length = register_dense_disk(host.origin, IMAGE, 4, salt=1)
    host.follow()
    assert host.data_plane.attached == [(length, False)]
    host.data_plane.images[0].update(manifest_state="damaged")
    register_dense_disk(host.origin, IMAGE, 4)
    host.follow()
    assert host.data_plane.attached[1:] == [(length, True)], "its file was damaged"


def put(origin: FaultyOrigin, name: str, content: bytes) -> None:
    origin.put_if_absent(layout.manifest_key(name), [content])


def test_front_of_a_long_manifest_is_one_read(
    origin: FaultyOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_fetching, "WHOLE_BYTES_MAX", FRONT_BYTES)
    name, length = store_dense_disk(origin, IMAGE, 2)
    content = origin.get(layout.manifest_key(name), length)
    before = origin.calls[Operation.READ]
    fetched = fetch_front(origin, name)
    assert origin.calls[Operation.READ] == before + 1
    assert (fetched.disk_id, fetched.size) == (IMAGE, length)
    assert fetched.is_partial
    assert fetched.content == content[:FRONT_BYTES]
    whole = fetch_whole(origin, name)
    assert (whole.content, whole.is_partial) == (content, False)


def test_short_manifests_and_those_of_version_1_are_brought_whole(
    origin: FaultyOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, length = store_dense_disk(origin, IMAGE, 2)
    assert FRONT_BYTES < length < manifest_fetching.WHOLE_BYTES_MAX
    assert len(fetch_front(origin, name).content) == length
    monkeypatch.setattr(manifest_fetching, "WHOLE_BYTES_MAX", 0)
    version_1 = make_manifest(IMAGE, 4096, content=1)
    put(origin, version_1.digest, version_1.to_bytes())
    fetched = fetch_front(origin, version_1.digest)
    assert (fetched.content, fetched.is_partial) == (version_1.to_bytes(), False)


def test_damage_of_what_was_fetched_is_refused(
    origin: FaultyOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, length = store_dense_disk(origin, IMAGE, 2)
    content = bytearray(origin.get(layout.manifest_key(name), length))
    for position, whole_bytes_max in ((100, 0), (length - 1, length)):
        monkeypatch.setattr(manifest_fetching, "WHOLE_BYTES_MAX", whole_bytes_max)
        damaged = content.copy()
        damaged[position] ^= 1
        other = FaultyOrigin(MemoryOrigin())
        put(other, name, bytes(damaged))
        with pytest.raises(exception.CorruptError):
            fetch_front(other, name)


def test_manifest_that_is_longer_than_any_is_not_read(
    origin: FaultyOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = make_paged_manifest(IMAGE)
    put(origin, "0" * 64, content)
    monkeypatch.setattr(disk_manifest, "SIZE_MAX", len(content) - 1)
    with pytest.raises(exception.CorruptError, match="more than any has"):
        fetch_front(origin, "0" * 64)
    assert origin.calls[Operation.READ] == 0


def test_holes_of_a_file_are_left_in_its_copy(tmp_path: pathlib.Path) -> None:
    path, copy = tmp_path / "front", tmp_path / "copy"
    size = 64 << 20
    write_atomically(str(path), b"front" * 2000, size=size)
    with path.open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"a page" * 1000)
    with path.open("rb") as source, copy.open("wb") as target:
        copy_data(source.fileno(), target.fileno())
    assert copy.read_bytes() == path.read_bytes()
    assert copy.stat().st_size == size
    assert copy.stat().st_blocks * 512 < 1 << 20
    for content in (b"", b"short", bytes(10_000)):
        path.write_bytes(content)
        with path.open("rb") as source, copy.open("wb") as target:
            copy_data(source.fileno(), target.fileno())
        assert copy.read_bytes() == content
        assert os.path.getsize(copy) == len(content)

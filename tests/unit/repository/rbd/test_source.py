"""Registering the disk in a snapshot: what is not there is not read, and every byte is hashed."""

import contextlib
import hashlib
import pathlib
import shutil
from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.checksum import Checksum
from acstor.repository.images import inspection, registration
from acstor.repository.repository import Repository
from acstor.repository.source import raw
from acstor.repository.source.base import SourceFile
from acstor.repository.source.rbd.data_ranges import GRAIN
from acstor.repository.source.rbd.faulty import Effect, Fault, FaultySnapshot, Operation
from acstor.repository.source.rbd.memory import MemorySnapshot
from acstor.repository.source.rbd.retrying import ATTEMPTS_MAX, RetryingSnapshot
from acstor.repository.source.rbd.source import HEAD_SIZE, RbdSource
from tests.unit.repository.images import CHUNK_SIZE, SETTINGS, image_id, open_repository, read_back

needs_qemu = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")
SIZE = 200 * GRAIN + 700
DATA = [(3 * GRAIN, 2 * GRAIN), (90 * GRAIN, 100), (200 * GRAIN, 700)]


def sparse_content(size: int = SIZE, data: Sequence[tuple[int, int]] = DATA) -> bytes:
    content = bytearray(size)
    for offset, length in data:
        content[offset : offset + length] = hashlib.shake_128(b"%d" % offset).digest(length)
    return bytes(content)


CONTENT = sparse_content()
DECLARED = f"sha512:{hashlib.sha512(CONTENT).hexdigest()}"


def faulty(*faults: Fault, content: bytes = CONTENT) -> FaultySnapshot:
    return FaultySnapshot(MemorySnapshot(content, DATA), faults)


def register(
    repository: Repository, snapshot: FaultySnapshot, checksum: str | None = DECLARED
) -> registration.Report:
    source = RbdSource(RetryingSnapshot(snapshot, sleep=lambda seconds: None))
    declared = Checksum.parse(checksum) if checksum else None
    with contextlib.closing(source):
        return registration.Registrar(repository, SETTINGS).register(
            registration.Request(image_id(1), "name", source, "raw", declared)
        )


@pytest.fixture
def repository() -> Repository:
    return open_repository(MemoryOrigin())


def test_content_is_registered_and_holes_are_not_read(repository: Repository) -> None:
    snapshot = faulty()
    report = register(repository, snapshot)
    assert report.size_bytes == SIZE + -SIZE % 512
    assert read_back(repository, 1)[:SIZE] == CONTENT
    assert snapshot.bytes_read < 6 * GRAIN
    assert snapshot.is_closed


def test_checksum_of_the_whole_disk_is_verified(repository: Repository) -> None:
    with pytest.raises(exception.ChecksumMismatchError, match="memory has md5"):
        register(repository, faulty(), f"md5:{'0' * 32}")
    assert repository.find_image(image_id(1)) is None


@pytest.mark.parametrize("size", [1, CHUNK_SIZE, 5 * CHUNK_SIZE + 1, 3 * GRAIN])
def test_checksum_counts_no_padding(repository: Repository, size: int) -> None:
    content = sparse_content(size, [(0, size)])
    snapshot = FaultySnapshot(MemorySnapshot(content))
    register(repository, snapshot, f"sha256:{hashlib.sha256(content).hexdigest()}")
    assert read_back(repository, 1)[:size] == content


def test_disk_of_nothing_but_holes_is_hashed_without_a_read(repository: Repository) -> None:
    snapshot = FaultySnapshot(MemorySnapshot(bytes(SIZE), []))
    register(repository, snapshot, f"sha512:{hashlib.sha512(bytes(SIZE)).hexdigest()}")
    assert snapshot.bytes_read == 0


def test_corrupt_read_is_found(repository: Repository) -> None:
    with pytest.raises(exception.ChecksumMismatchError):
        register(repository, faulty(Fault(Operation.READ, Effect.CORRUPTION, call=2)))


@pytest.mark.parametrize("operation", list(Operation))
def test_call_that_fails_for_a_time_is_repeated(
    repository: Repository, operation: Operation
) -> None:
    snapshot = faulty(Fault(operation, Effect.ERROR, call=1))
    register(repository, snapshot)
    assert read_back(repository, 1)[:SIZE] == CONTENT


@pytest.mark.parametrize("operation", list(Operation))
def test_call_that_goes_on_failing_ends_the_registration(
    repository: Repository, operation: Operation
) -> None:
    snapshot = faulty(Fault(operation, Effect.ERROR))
    with pytest.raises(exception.UnavailableError, match="on purpose"):
        register(repository, snapshot)
    assert snapshot.calls[operation] >= ATTEMPTS_MAX
    assert snapshot.is_closed
    assert repository.find_image(image_id(1)) is None


def test_refusal_is_not_repeated(repository: Repository) -> None:
    snapshot = faulty(Fault(Operation.LIST, Effect.ERROR, error=exception.InvalidError))
    with pytest.raises(exception.InvalidError):
        register(repository, snapshot)
    assert snapshot.calls[Operation.LIST] == 1


def test_snapshot_that_is_removed_meanwhile_is_not_registered_as_zeros(
    repository: Repository,
) -> None:
    inner = MemorySnapshot(CONTENT, DATA)

    def remove() -> None:
        inner.is_removed = True

    snapshot = FaultySnapshot(inner, [Fault(Operation.READ, Effect.ACTION, 2, action=remove)])
    with pytest.raises(exception.ImageRefusedError, match="was removed"):
        register(repository, snapshot, checksum=None)
    assert repository.find_image(image_id(1)) is None


def test_beginning_is_read_once_for_inspection() -> None:
    snapshot = faulty(content=sparse_content(2 * HEAD_SIZE, [(0, HEAD_SIZE)]))
    with contextlib.closing(RbdSource(snapshot)) as source:
        content = b"".join(source.read(at, 4096) for at in range(0, HEAD_SIZE, 4096))
        assert content == sparse_content(HEAD_SIZE, [(0, HEAD_SIZE)])
        assert snapshot.calls[Operation.READ] == 1
        assert source.read(2 * HEAD_SIZE - 10, 4096) == bytes(10)
        assert source.read(2 * HEAD_SIZE, 4096) == b""


@needs_qemu
def test_raw_disk_is_inspected() -> None:
    snapshot = faulty()
    with contextlib.closing(inspection.open_rbd_source(snapshot, 30.0)) as source:
        assert source.size_bytes == SIZE + -SIZE % 512
    assert snapshot.is_closed


@needs_qemu
def test_disk_image_inside_the_disk_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nested.qcow2"
    path.write_bytes(b"QFI\xfb" + (2).to_bytes(4, "big") + bytes(1 << 20))
    snapshot = FaultySnapshot(MemorySnapshot(path.read_bytes()))
    with pytest.raises(exception.ImageRefusedError):
        inspection.open_rbd_source(snapshot, 30.0)
    assert snapshot.is_closed


def test_too_large_disk_is_refused_before_it_is_read() -> None:
    snapshot = faulty()
    with pytest.raises(exception.DiskTooLargeError):
        inspection.open_rbd_source(snapshot, 30.0, inspection.SizeLimits(SIZE))
    assert snapshot.bytes_read == 0
    assert snapshot.is_closed


def test_disk_of_no_bytes_is_refused() -> None:
    with pytest.raises(exception.ImageRefusedError, match="no bytes"):
        inspection.open_rbd_source(MemorySnapshot(b""), 30.0)


def test_file_of_the_same_content_has_the_same_name(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    register(repository, faulty())
    path = tmp_path / "disk"
    path.write_bytes(CONTENT)
    with contextlib.closing(raw.RawSource(SourceFile(str(path)))) as source:
        report = registration.Registrar(repository, SETTINGS).register(
            registration.Request(image_id(2), "name", source, "raw", Checksum.parse(DECLARED))
        )
    assert report.new == 0

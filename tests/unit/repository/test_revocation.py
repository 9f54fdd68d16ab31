"""Revocations in the origin: the record, its pages, and the chunks that only one image has."""

import pathlib

import pytest

from acstor import exception, native
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import revocation
from acstor.repository.images.exclusive_chunks import find_exclusive_chunks
from acstor.repository.images.revocation import HostProof, Revocation
from acstor.repository.repository import Repository
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository import images

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
IMAGE, OTHER = images.image_id(1), images.image_id(2)
DIGESTS = [bytes([number]) * 32 for number in range(1, 6)]
RECORD = Revocation(IMAGE, "leaked", "2026-11-26T22:00:00+00:00", 7)
PROOF = HostProof("held", 5, 3, 2, "2026-11-26T22:01:00+00:00", "chunks are read")


@pytest.fixture
def origin() -> MemoryOrigin:
    return MemoryOrigin()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "PAGE_DIGESTS_MAX", 2)


def test_revocation_version_requires_update(origin: MemoryOrigin, small_pages: None) -> None:
    assert revocation.VERSION == 1
    revocation.write(origin, RECORD, DIGESTS)
    written = revocation.note_hosts(origin, IMAGE, {"h1": PROOF})
    golden = (GOLDEN / "revocation-v1.json").read_bytes()
    assert written.encode() == golden
    assert Revocation.parse(golden, IMAGE) == written
    page = origin.get_ref(f"revocations/{IMAGE}/000001")
    assert page is not None
    assert page.content == (GOLDEN / "revocation-page-v1.bin").read_bytes()


def test_pages_have_all_digests_in_order(origin: MemoryOrigin, small_pages: None) -> None:
    written = revocation.write(origin, RECORD, DIGESTS)
    assert (written.page_sizes, written.chunks) == ((2, 2, 1), 5)
    pages = [revocation.read_page(origin, written, page) for page in range(3)]
    assert b"".join(pages) == b"".join(DIGESTS)
    for page in (-1, 3):
        with pytest.raises(exception.NotFoundError, match="no page"):
            revocation.read_page(origin, written, page)
    assert list(revocation.list_image_ids(origin)) == [IMAGE]


def test_page_of_another_revocation_is_refused(origin: MemoryOrigin, small_pages: None) -> None:
    written = revocation.write(origin, RECORD, DIGESTS)
    revocation.write(origin, RECORD, DIGESTS[1:])
    with pytest.raises(exception.CorruptError, match="page 0"):
        revocation.read_page(origin, written, 0)


def test_revocation_that_is_forgotten_leaves_nothing(origin: MemoryOrigin) -> None:
    revocation.write(origin, RECORD, DIGESTS)
    with pytest.raises(exception.InvalidError, match="is revoked"):
        revocation.check_not_revoked(origin, IMAGE)
    assert revocation.forget(origin, IMAGE)
    assert not revocation.forget(origin, IMAGE)
    assert list(origin.list_refs()) == []
    revocation.check_not_revoked(origin, IMAGE)
    with pytest.raises(exception.NotFoundError, match="forgotten"):
        revocation.note_hosts(origin, IMAGE, {"h1": PROOF})


def test_record_comes_after_its_pages(origin: MemoryOrigin) -> None:
    """Killed in between, nobody counts on what is not there."""
    faulty = FaultyOrigin(origin, [Fault(Operation.SWAP_REF, Effect.ERROR, call=2)])
    with pytest.raises(exception.UnavailableError):
        revocation.write(faulty, RECORD, DIGESTS)
    assert revocation.find(origin, IMAGE) is None


def test_too_many_chunks_are_refused(origin: MemoryOrigin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "CHUNKS_MAX", 4)
    with pytest.raises(exception.ExhaustedError, match="5 chunks"):
        revocation.write(origin, RECORD, DIGESTS)
    assert list(origin.list_refs()) == []


@pytest.mark.parametrize(
    "changed",
    [
        (b'"version": 1', b'"version": "1"'),
        (b'"shared": 7', b'"shared": -7'),
        (b'"page_sizes": [2, 2, 1]', b'"page_sizes": [2, 2]'),
        (b'"page_sizes": [2, 2, 1]', b'"page_sizes": [2, 2, 0]'),
        (b'"page_sizes": [2, 2, 1]', b'"page_sizes": [2, 2, 40000]'),
        (b'"page_sizes": [2, 2, 1]', b'"page_sizes": {}'),
        (b'"name": "leaked"', b'"name": 7'),
        (b'"hosts": {', b'"hosts": [], "more": {'),
        (b'"held": 5', b'"held": 5.5'),
        (b"{", b"["),
    ],
)
def test_malformed_record_is_refused(changed: tuple[bytes, bytes]) -> None:
    golden = (GOLDEN / "revocation-v1.json").read_bytes()
    content = golden.replace(*changed)
    assert content != golden
    with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
        Revocation.parse(content, IMAGE)


# Chunks of one image only


def digest(number: int) -> bytes:
    return native.digest(images.chunk(number))


def exclusive(repository: Repository) -> tuple[set[bytes], int]:
    found = find_exclusive_chunks(repository, IMAGE)
    assert list(found.digests) == sorted(found.digests)
    return set(found.digests), found.shared


def test_chunks_of_other_images_are_shared(origin: MemoryOrigin) -> None:
    repository = images.open_repository(origin)
    images.register(repository, 1, images.disk(1, 2, 0, 3, 3))
    assert exclusive(repository) == ({digest(1), digest(2), digest(3)}, 0)
    images.register(repository, 2, images.disk(0, 2, 4))
    assert exclusive(repository) == ({digest(1), digest(3)}, 1)
    images.register(repository, 3, images.disk(1, 2, 3))
    assert exclusive(repository) == (set(), 3)


def test_image_that_only_hosts_have_is_known_by_what_they_have_attached(
    origin: MemoryOrigin,
) -> None:
    repository = images.open_repository(origin)
    images.register(repository, 1, images.disk(1, 2))
    images.register(repository, 2, images.disk(2, 3))
    manifests = {repository.get_image(image).record.manifest: image for image in (IMAGE, OTHER)}
    write_usage(origin, "h1", manifests=manifests)
    repository.remove_image(IMAGE)
    repository.remove_image(OTHER)
    assert exclusive(repository) == ({digest(1)}, 1)


def test_image_that_nobody_knows_is_not_found(origin: MemoryOrigin) -> None:
    repository = images.open_repository(origin)
    with pytest.raises(exception.NotFoundError, match="not registered"):
        find_exclusive_chunks(repository, IMAGE)


def test_other_disk_that_cannot_be_read_does_not_hold_up_a_revocation(
    origin: MemoryOrigin,
) -> None:
    repository = images.open_repository(origin)
    images.register(repository, 1, images.disk(1, 2))
    write_usage(origin, "h1", manifests={"ab" * 32: OTHER})
    assert exclusive(repository) == ({digest(1), digest(2)}, 0)


def test_revoked_image_is_not_registered_again(origin: MemoryOrigin) -> None:
    repository = images.open_repository(origin)
    revocation.write(origin, RECORD, DIGESTS)
    with pytest.raises(exception.InvalidError, match="is revoked"):
        images.register(repository, 1, images.disk(1, 2))
    assert repository.find_image(IMAGE) is None
    revocation.forget(origin, IMAGE)
    images.register(repository, 1, images.disk(1, 2))

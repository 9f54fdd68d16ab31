"""Beginning of a revocation, interrupted anywhere."""

import pytest

from acstor import exception
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import revocation
from acstor.repository.images.revocation import HostProof
from acstor.repository.repository import Repository
from acstor.revocation.beginning import begin
from tests.unit.repository import images

IMAGE = images.image_id(1)


@pytest.fixture
def repository() -> Repository:
    repository = images.open_repository(MemoryOrigin())
    images.register(repository, 1, images.disk(1, 2, 3))
    images.register(repository, 2, images.disk(3, 4))
    return repository


def test_image_goes_and_what_hosts_are_to_discard_stays(repository: Repository) -> None:
    found = begin(repository, IMAGE, clock=lambda: 0.0)
    assert repository.find_image(IMAGE) is None
    assert (found.name, found.chunks, found.shared) == ("image 1", 2, 1)
    assert found.time == "1970-01-01T00:00:00+00:00"
    assert revocation.find(repository.origin, IMAGE) == found


def test_repeated_it_finds_what_it_did(repository: Repository) -> None:
    found = begin(repository, IMAGE)
    noted = revocation.note_hosts(repository.origin, IMAGE, {"h1": HostProof("absent")})
    assert begin(repository, IMAGE) == noted
    assert noted.page_names == found.page_names


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
def test_killed_anywhere_it_goes_on(repository: Repository, number: int, effect: Effect) -> None:
    """An image that is gone always has its revocation."""
    faulty = FaultyOrigin(repository.origin, [Fault(Operation.SWAP_REF, effect, call=number)])
    seen = Repository.open(faulty)
    try:
        begin(seen, IMAGE)
    except exception.UnavailableError:
        if repository.find_image(IMAGE) is None:
            assert revocation.find(repository.origin, IMAGE) is not None
    found = begin(repository, IMAGE)
    assert repository.find_image(IMAGE) is None
    assert found.chunks == 2


def test_image_that_is_unknown_is_not_revoked(repository: Repository) -> None:
    with pytest.raises(exception.NotFoundError):
        begin(repository, images.image_id(9))
    assert list(revocation.list_image_ids(repository.origin)) == []

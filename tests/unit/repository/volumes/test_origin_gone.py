"""An origin whose file system is not mounted: nothing in it, and nothing was deleted."""

import pathlib
import uuid

import pytest

from acstor import exception
from acstor.origin.posix import PosixOrigin
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore

VOLUME = "6f5a3a1c-63c5-4a3b-9a0c-1b1a8f0e7d21"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "origin"
    path.mkdir()
    return path


@pytest.fixture
def store(root: pathlib.Path) -> VolumeStore:
    found = VolumeStore(Repository.init(PosixOrigin(str(root))))
    found.create(NewVolume(VOLUME, 1 << 30))
    return found


def test_volume_is_not_taken_for_deleted(store: VolumeStore, root: pathlib.Path) -> None:
    assert store.find(str(uuid.uuid4())) is None
    root.rename(root.with_name("mounted"))
    root.mkdir()
    absent = "no repository|not there any more"
    for call in (store.find, store.get):
        with pytest.raises(exception.UnavailableError, match=absent) as raised:
            call(VOLUME)
        assert "mounted" in str(raised.value.hint)
    root.rmdir()
    root.with_name("mounted").rename(root)
    assert store.get(VOLUME).id == VOLUME


def test_other_repository_in_its_place_says_nothing_of_the_volume(
    store: VolumeStore, root: pathlib.Path
) -> None:
    root.rename(root.with_name("mounted"))
    root.mkdir()
    Repository.init(PosixOrigin(str(root)))
    with pytest.raises(exception.UnavailableError, match="another repository"):
        store.find(VOLUME)

"""Copies between origins of every kind, in both directions."""

import pathlib
from collections.abc import Iterator

import pytest

from acstor.origin import base
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes.states import VolumeRecordState, state_of
from acstor.repository.volumes.store import VolumeStore
from tests.compliance.origins import factory_of
from tests.unit.repository.copying.cloud import IN_USE, Cloud, check_content, copy

PAIRS = [
    ("memory", "posix"),
    ("posix", "posix"),
    ("posix", "rados over memory"),
    ("rados over memory", "posix"),
    ("rados over memory", "rados over memory"),
    ("retrying", "retrying over lost answers"),
    ("posix", "rados"),
    ("rados", "posix"),
]


@pytest.fixture(params=PAIRS, ids=lambda pair: " to ".join(pair))
def pair(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[tuple[base.Origin, base.Origin]]:
    opened = []
    for number, name in enumerate(request.param):
        path = tmp_path / str(number)
        path.mkdir()
        opened.append(factory_of(name, request)(path))
    yield opened[0], opened[1]
    for origin in opened:
        origin.close()


def test_backup_is_updated_and_has_everything(pair: tuple[base.Origin, base.Origin]) -> None:
    source, destination = pair
    cloud = Cloud(source)
    first = copy(source, destination, workers=4)
    assert (first.is_complete, first.damages) == (True, {})
    check_content(destination)
    cloud.writer.fold()
    second = copy(source, destination, workers=4, prunes=True)
    assert (second.is_complete, second.damages) == (True, {})
    assert second.objects_copied >= 2, "the pack and the manifest of the fold"
    assert second.objects_removed > 0
    check_content(destination)


def test_restored_repository_is_used(pair: tuple[base.Origin, base.Origin]) -> None:
    source, destination = pair
    Cloud(source)
    report = copy(source, destination, is_restore=True, workers=4)
    assert (report.is_complete, report.damages) == (True, {})
    check_content(destination)
    store = VolumeStore(Repository.open(destination), wait=lambda seconds: None)
    assert state_of(store.get(IN_USE).record) is VolumeRecordState.AVAILABLE
    record = store.acquire(IN_USE, "a").after
    assert record.unsealed is not None
    assert not list(destination.list(layout.log_folder(IN_USE, record.epoch)))

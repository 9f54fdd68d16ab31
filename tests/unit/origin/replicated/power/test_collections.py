"""Collections of a repository one member of which sleeps."""

import pytest

from acstor.origin.replicated.power.record import Desired
from acstor.origin.replicated.power.states import PowerState
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from tests.unit.origin.replicated.power import sleepers
from tests.unit.origin.replicated.power.sleepers import Sleepers
from tests.unit.repository import images


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Sleepers:
    monkeypatch.setattr(sleepers, "check", lambda key, content, others: None)
    found = Sleepers(("home", "near"))
    repository = images.open_repository(found.stores["home"].inner)
    for number in (1, 2):
        images.register(repository, number, images.disk(*range(number * 10, number * 10 + 3)))
    found.run()
    assert objects(found, "near") == objects(found, "home")
    return found


def objects(cloud: Sleepers, name: str) -> set[str]:
    store = cloud.stores[name].inner
    return {key for prefix in ("packs/", "manifests/") for key in store.list(prefix)}


def collect(cloud: Sleepers) -> int:
    """Collect until nothing is left to be deleted; return what was."""
    repository = Repository.open(cloud.origin)
    deleted = 0
    for _ in range(4):
        cloud.clock.now += 10.0
        deleted += Collector(repository, "host", 0.0, clock=cloud.clock).collect().deleted
    return deleted


def test_garbage_is_deleted_meanwhile_and_never_comes_back(cloud: Sleepers) -> None:
    cloud.sleep()
    before = objects(cloud, "home")
    repository = Repository.open(cloud.origin)
    repository.remove_image(images.image_id(1))
    deleted = collect(cloud)
    left = objects(cloud, "home")
    assert 0 < deleted == len(before - left)
    assert images.read_back(repository, 2) == images.disk(20, 21, 22)
    assert len(cloud.notes()) == deleted
    assert cloud.stores["near"].touched_while_off == 0

    images.register(repository, 3, images.disk(30, 31, 32))
    cloud.want(Desired.AWAKE)
    cloud.run_until(PowerState.ACTIVE)
    cloud.run()
    assert objects(cloud, "near") == objects(cloud, "home") >= left
    assert not cloud.notes()
    assert collect(cloud) == 0, "nothing was brought back"


def test_image_is_registered_again_while_its_garbage_is_owed(cloud: Sleepers) -> None:
    cloud.sleep()
    repository = Repository.open(cloud.origin)
    repository.remove_image(images.image_id(1))
    collect(cloud)
    images.register(repository, 1, images.disk(10, 11, 12))
    cloud.want(Desired.AWAKE)
    cloud.run_until(PowerState.ACTIVE)
    cloud.run()
    assert images.read_back(repository, 1) == images.disk(10, 11, 12)
    assert objects(cloud, "near") == objects(cloud, "home")

"""Objects of controllers and hosts in one repository, in namespaces of their own."""

from unittest import mock

import pytest

from acstor import exception
from acstor.drivers.cinder import native_threads
from acstor.origin import faulty, retrying
from acstor.origin.rados import classes
from acstor.origin.rados.origin import RadosOrigin
from acstor.repository.repository import Repository
from testbed.doubles.memory_rados import MemoryRados
from tests.unit.repository.images import disk, open_repository, read_back, register

PACK, MANIFEST, LOG = "packs/aa/one", "manifests/aa/one", "volume-log/one/1"


class Cloud:
    """A controller and a host over one cluster."""

    def __init__(self) -> None:
        self.memory = MemoryRados()
        binding = self.memory.binding
        self.controller = RadosOrigin("acstor", binding=binding)
        self.host = RadosOrigin("acstor", is_host=True, binding=binding)

    def namespaces(self, key: str) -> set[str]:
        """Return where an object is."""
        return {space for _, space, name in self.memory.stored if name == key}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.mark.parametrize("key", [PACK, MANIFEST])
def test_each_stores_in_a_namespace_of_its_own_and_reads_both(cloud: Cloud, key: str) -> None:
    first = key.partition("/")[0]
    other = key.replace("one", "two")
    assert cloud.controller.put_if_absent(key, [b"controller's"])
    assert cloud.host.put_if_absent(other, [b"host's"])
    assert cloud.namespaces(key) == {f"acstor.o.{first}"}
    assert cloud.namespaces(other) == {f"acstor.host.o.{first}"}
    for origin in (cloud.controller, cloud.host):
        for _ in range(2):  # the second time it is known where it is
            assert origin.get(key, 20) == b"controller's"
            assert origin.get(other, 20) == b"host's"
        assert sorted(origin.list(f"{first}/")) == [key, other]
        assert sorted(origin.list()) == [key, other]
        assert list(origin.list_protected(f"{first}/")) == [key]


def test_logs_are_hosts_and_all_else_is_controllers(cloud: Cloud) -> None:
    for origin in (cloud.controller, cloud.host):
        assert origin.put_if_absent(LOG, [b"x"]) == (origin is cloud.controller)
        assert origin.put_if_absent("format", [b"x"]) == (origin is cloud.controller)
    assert cloud.namespaces(LOG) == {"acstor.host.o.volume-log"}
    assert cloud.namespaces("format") == {"acstor.o.format"}
    assert list(cloud.controller.list("volume-log/")) == [LOG]
    assert list(cloud.controller.list_protected("volume-log/")) == []


def test_host_cannot_take_the_place_of_what_a_controller_stores(cloud: Cloud) -> None:
    assert cloud.host.put_if_absent(PACK, [b"false"])
    assert cloud.controller.put_if_absent(PACK, [b"right"])
    assert not cloud.controller.put_if_absent(PACK, [b"right"])
    fresh = RadosOrigin("acstor", binding=cloud.memory.binding)
    assert fresh.get(PACK, 5) == b"right"
    assert list(fresh.list("packs/")) == [PACK]
    assert list(fresh.list()) == [PACK]
    assert fresh.delete(PACK)
    assert cloud.namespaces(PACK) == set()
    assert not fresh.delete(PACK)


def test_host_stores_nothing_twice(cloud: Cloud) -> None:
    assert cloud.controller.put_if_absent(PACK, [b"there"])
    assert not cloud.host.put_if_absent(PACK, [b"there"])
    assert cloud.namespaces(PACK) == {"acstor.o.packs"}


def test_object_that_moves_to_the_other_class_is_found(cloud: Cloud) -> None:
    cloud.host.put_if_absent(PACK, [b"x"])
    assert cloud.controller.get(PACK, 1) == b"x"
    assert cloud.controller.delete(PACK)
    with pytest.raises(exception.NotFoundError):
        cloud.controller.readinto(PACK, 0, memoryview(bytearray(1)))
    cloud.controller.put_if_absent(PACK, [b"y"])
    assert cloud.controller.get(PACK, 1) == b"y"


def test_places_that_are_remembered_are_bounded(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "REMEMBERED_MAX", 2)
    objects = cloud.controller.objects
    assert isinstance(objects, classes.ClassedObjects)
    for number in range(5):
        cloud.host.put_if_absent(f"{PACK}{number}", [b"x"])
        assert cloud.controller.get(f"{PACK}{number}", 1) == b"x"
        assert len(objects._found_at_hosts) <= 2


@pytest.mark.parametrize("is_host", [True, False])
def test_wrappers_pass_on_what_is_protected(cloud: Cloud, *, is_host: bool) -> None:
    origin = native_threads.NativeThreadOrigin(
        retrying.RetryingOrigin(faulty.FaultyOrigin(cloud.controller), 5.0),
        native_threads.DirectCaller(),
    )
    (cloud.host if is_host else cloud.controller).put_if_absent(PACK, [b"x"])
    assert origin.exists(PACK)
    assert list(origin.list_protected("packs/")) == ([] if is_host else [PACK])
    assert origin.is_protected(PACK) != is_host
    assert cloud.host.is_protected(PACK)


def test_object_of_a_host_does_not_stand_for_what_was_collected(cloud: Cloud) -> None:
    """A host makes the collector delete packs that are not published yet, and puts up its own."""
    repository = open_repository(cloud.controller)
    real = cloud.controller.swap_ref
    taken: list[str] = []

    def swap(name: str, expected: str | None, content: bytes | None) -> str | None:
        if name.startswith("images/") and not taken:
            for key in list(cloud.controller.list("packs/")):
                taken.append(key)
                cloud.controller.delete(key)
                cloud.host.put_if_absent(key, [b"false"])
        return real(name, expected, content)

    with mock.patch.object(cloud.controller, "swap_ref", swap):
        register(repository, 1, disk(1, 2, 3))
    assert taken
    assert read_back(repository, 1) == disk(1, 2, 3)


def test_image_needs_nothing_that_a_host_could_delete(cloud: Cloud) -> None:
    open_repository(cloud.controller)
    register(Repository.open(cloud.host), 0, disk(1, 2, 3))
    assert list(cloud.host.list_protected("packs/")) == []
    of_controller = Repository.open(cloud.controller)
    register(of_controller, 1, disk(2, 3, 4))
    register(of_controller, 2, disk(1, 2, 3))
    cloud.memory.stored = {
        place: content for place, content in cloud.memory.stored.items() if ".host." not in place[1]
    }
    assert read_back(of_controller, 1) == disk(2, 3, 4)
    assert read_back(of_controller, 2) == disk(1, 2, 3)

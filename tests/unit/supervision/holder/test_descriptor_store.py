import os
from collections.abc import Iterator

import pytest

from acstor.supervision.holder.descriptor_store import DescriptorStore


@pytest.fixture
def store() -> Iterator[DescriptorStore]:
    store = DescriptorStore(descriptors_max=3)
    yield store
    store.close()


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_same_file_under_the_same_name_is_kept_once(store: DescriptorStore) -> None:
    read, write = os.pipe()
    duplicate = os.dup(read)
    assert store.add("pipe", read, is_polled=False)
    assert not store.add("pipe", duplicate, is_polled=False)
    assert not is_open(duplicate)
    assert is_open(read)
    os.close(write)


def test_full_store_closes_what_arrives(store: DescriptorStore) -> None:
    for _ in range(3):
        assert store.add("null", os.open("/dev/null", os.O_RDONLY), is_polled=False)
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert not store.add("null", descriptor, is_polled=False)
    assert not is_open(descriptor)


def test_remove_closes_every_descriptor_of_the_name(store: DescriptorStore) -> None:
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(2)]
    for descriptor in opened:
        store.add("fuse", descriptor, is_polled=False)
    assert store.remove("fuse") == 2
    assert not any(is_open(descriptor) for descriptor in opened)
    assert store.remove("fuse") == 0


def test_only_polled_descriptors_are_dropped_when_hung_up(store: DescriptorStore) -> None:
    for name, is_polled in (("polled", True), ("kept", False)):
        read, write = os.pipe()
        store.add(name, read, is_polled=is_polled)
        os.close(write)
    assert store.drop_dead() == 1
    assert [stored.name for stored in store] == ["kept"]

"""What a copy must not take away: sound objects, later writes, and volumes for want of room."""

import pytest

from acstor.origin import memory
from acstor.repository import layout
from tests.unit.repository.copying.cloud import (
    Cloud,
    check_content,
    copy,
)
from tests.unit.repository.images import image_id


@pytest.fixture
def origin() -> memory.MemoryOrigin:
    """Return the origin that is copied."""
    return memory.MemoryOrigin()


@pytest.fixture
def cloud(origin: memory.MemoryOrigin) -> Cloud:
    return Cloud(origin)


@pytest.mark.parametrize("length", [-1, 100], ids=["cut off", "header only"])
def test_sound_object_of_a_former_copy_outlives_a_damaged_source(
    cloud: Cloud, origin: memory.MemoryOrigin, length: int
) -> None:
    destination = memory.MemoryOrigin()
    copy(origin, destination)
    digest = cloud.repository.get_image(image_id(0)).record.manifest
    pack = cloud.repository.load_manifest(digest).packs()[-1].hex()
    keys = [layout.pack_key(pack), layout.manifest_key(digest)]
    former = {key: destination._objects[key] for key in keys}
    origin._objects[keys[0]] = origin._objects[keys[0]][:length]
    report = copy(origin, destination, takes_damaged=True)
    assert list(report.damages) == keys[:1]
    assert (report.objects_replaced, report.is_complete) == (0, True)
    assert {key: destination._objects[key] for key in keys} == former
    check_content(destination)

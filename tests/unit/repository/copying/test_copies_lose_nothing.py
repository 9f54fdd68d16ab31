"""Copies take away no sound object, no later write, and no volume for want of room."""

from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.origin import base, memory
from acstor.repository import layout
from acstor.repository.copying.copier import Copier, CopySettings
from acstor.repository.copying.settled_volumes import Seal
from acstor.repository.repository import Repository
from tests.unit.repository.copying.cloud import (
    IN_USE,
    TEXTS,
    Cloud,
    check,
    check_content,
    copy,
    volume_text,
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


class NotFinished(memory.MemoryOrigin):
    """An origin that is away when a copy stores the last object."""

    is_away = True

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        if key == layout.FORMAT_KEY and self.is_away:
            raise exception.UnavailableError("the origin is away")
        return super().put_if_absent(key, buffers)


def test_restore_whose_last_step_failed_has_what_was_written_since(
    cloud: Cloud, origin: memory.MemoryOrigin
) -> None:
    destination = NotFinished()
    with pytest.raises(exception.UnavailableError):
        copy(origin, destination, is_restore=True)
    cloud.writer.write("five ")
    destination.is_away = False
    assert copy(origin, destination, is_restore=True).is_complete
    assert volume_text(destination, IN_USE) == TEXTS[IN_USE] + "five "


@pytest.mark.parametrize("takes_damaged", [False, True], ids=["whole", "with damage"])
def test_restore_ends_where_there_is_no_room_for_a_seal(
    cloud: Cloud, origin: memory.MemoryOrigin, takes_damaged: bool
) -> None:
    destination = memory.MemoryOrigin()

    def full(_destination: base.Origin) -> Seal:
        def seal(volume: str, epoch: int, first: int) -> tuple[int | None, int]:
            raise exception.ExhaustedError("the origin is full")

        return seal

    settings = CopySettings(is_restore=True, takes_damaged=takes_damaged, workers=1)
    with pytest.raises(exception.ExhaustedError):
        Copier(cloud.repository, destination, settings, check=check, sealer_of=full).copy()
    with pytest.raises(exception.NotFoundError):
        Repository.open(destination)
    assert copy(origin, destination, is_restore=True).is_complete
    check_content(destination)

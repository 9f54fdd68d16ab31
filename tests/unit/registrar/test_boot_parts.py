"""Kernels and ramdisks that images name, as images come, change and go."""

import dataclasses
import random

import pytest

from acstor.registrar.boot_parts import BootParts, Naming, named_by
from acstor.registrar.image_service.base import ServiceImage

KERNEL, RAMDISK, DISK, OTHER = (f"00000000-0000-4000-8000-{number:012}" for number in range(1, 5))
IMAGE = ServiceImage(DISK, owner="a", properties={"kernel_id": KERNEL, "ramdisk_id": RAMDISK})


def test_names_are_ids_in_their_one_form() -> None:
    assert named_by(IMAGE) == {KERNEL, RAMDISK}
    spelled = {"kernel_id": KERNEL.replace("-", "").upper(), "ramdisk_id": KERNEL}
    assert named_by(dataclasses.replace(IMAGE, properties=spelled)) == {KERNEL}
    for nothing in ({}, {"kernel_id": "", "ramdisk_id": "nokernel"}):
        assert named_by(dataclasses.replace(IMAGE, properties=nothing)) == set()


@pytest.mark.parametrize(
    ("status", "is_gone"),
    [("active", False), ("queued", False), ("deactivated", False), ("deleted", True)],
)
def test_image_that_is_gone_names_nothing(status: str, is_gone: bool) -> None:
    assert (named_by(dataclasses.replace(IMAGE, status=status)) == set()) is is_gone
    assert named_by(None) == set()


def test_change_of_who_names_an_image_is_told() -> None:
    parts = BootParts()
    assert parts.note(DISK, IMAGE) == {KERNEL, RAMDISK}
    assert parts.note(DISK, IMAGE) == set()
    assert parts.note(DISK, dataclasses.replace(IMAGE, name="renamed")) == set()
    for field, value in (("owner", "b"), ("visibility", "public")):
        changed = dataclasses.replace(IMAGE, **{field: value})  # type: ignore[arg-type]
        assert parts.note(DISK, changed) == {KERNEL, RAMDISK}
        assert parts.note(DISK, IMAGE) == {KERNEL, RAMDISK}
    without = dataclasses.replace(IMAGE, properties={"kernel_id": KERNEL})
    assert parts.note(DISK, without) == {RAMDISK}
    assert list(parts.naming(KERNEL)) == [Naming(DISK, "a", is_public=False)]
    assert list(parts.naming(RAMDISK)) == []
    assert parts.note(DISK, None) == {KERNEL}
    assert list(parts.naming(KERNEL)) == []


def test_one_of_several_that_name_an_image_may_go() -> None:
    parts = BootParts()
    parts.note(DISK, IMAGE)
    assert parts.note(OTHER, dataclasses.replace(IMAGE, id=OTHER, visibility="public"))
    assert {naming.image_id for naming in parts.naming(KERNEL)} == {DISK, OTHER}
    parts.note(DISK, None)
    assert list(parts.naming(KERNEL)) == [Naming(OTHER, "a", is_public=True)]


def test_what_is_noted_singly_is_what_a_listing_says() -> None:
    rng = random.Random(5)
    ids = [f"00000000-0000-4000-8000-{number:012}" for number in range(8)]
    singly, images = BootParts(), dict[str, ServiceImage]()
    for _ in range(2000):
        image_id = rng.choice(ids)
        image = ServiceImage(
            image_id,
            owner=rng.choice("ab"),
            visibility=rng.choice(["public", "private"]),
            status=rng.choice(["active", "deleted"]),
            properties={"kernel_id": rng.choice([*ids, "x"]), "ramdisk_id": rng.choice(ids)},
        )
        noted = image if rng.random() < 0.8 else None
        before = {one: set(singly.naming(one)) for one in ids}
        changed = singly.note(image_id, noted)
        assert changed == {one for one in ids if set(singly.naming(one)) != before[one]}
        images.pop(image_id, None)
        if noted:
            images[image_id] = noted
        listed = BootParts()
        listed.replace(images.values())
        for one in ids:
            assert set(singly.naming(one)) == set(listed.naming(one))
        assert singly._named.keys() == listed._named.keys(), "nothing is kept of what is gone"
        assert singly._namings.keys() == listed._namings.keys()

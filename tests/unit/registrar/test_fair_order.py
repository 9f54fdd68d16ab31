"""The order in which images of several projects are registered."""

from collections import Counter

from acstor.registrar.fair_order import FairOrder
from acstor.registrar.image_service.base import ServiceImage


def image(number: int, owner: str, size: int = 1) -> ServiceImage:
    return ServiceImage(f"image{number:03}", owner=owner, size_bytes=size)


def served(order: FairOrder, images: list[ServiceImage], count: int | None = None) -> list[str]:
    """Return the ids of the images in the order in which they are registered."""
    waiting, ids = list(images), list[str]()
    while len(ids) != count and (chosen := order.next_of(waiting)) is not None:
        waiting.remove(chosen)
        order.note_turn(chosen.owner)
        ids.append(chosen.id)
    return ids


def test_nothing_is_next_of_nothing() -> None:
    assert FairOrder().next_of([]) is None


def test_owner_with_many_images_has_others_wait_for_one() -> None:
    many = [image(number, "many") for number in range(50)]
    few = [image(60, "few", size=1 << 40), image(61, "few", size=1 << 41)]
    assert served(FairOrder(), [*many, *few], 4) == ["image000", "image060", "image001", "image061"]


def test_smallest_of_an_owner_is_first_and_then_the_id_decides() -> None:
    images = [image(2, "a", 5), image(1, "a", 5), image(3, "a", 4), image(4, "a", 6)]
    assert served(FairOrder(), images) == ["image003", "image001", "image002", "image004"]


def test_turns_are_shared_equally_whatever_the_sizes() -> None:
    images = [
        image(100 * place + number, owner, size=10**place)
        for place, owner in enumerate(("a", "b", "c"))
        for number in range(20)
    ]
    owners = {one.id: one.owner for one in images}
    first = Counter(owners[image_id] for image_id in served(FairOrder(), images, 30))
    assert set(first.values()) == {10}


def test_owner_who_was_away_is_not_taken_for_new() -> None:
    order = FairOrder()
    for owner in ("a", "b"):
        order.note_turn(owner)
    for number in range(10):  # of nobody else is any image waiting meanwhile
        assert order.next_of([image(number, "b")])
        order.note_turn("b")
    assert served(order, [image(1, "b"), image(2, "a"), image(3, "new")]) == [
        "image003", "image002", "image001",
    ]  # fmt: skip


def test_images_without_an_owner_share_their_turns() -> None:
    images = [image(1, ""), image(2, ""), image(3, "a")]
    assert served(FairOrder(), images) == ["image001", "image003", "image002"]


def test_memory_is_bounded_and_who_is_forgotten_comes_first() -> None:
    order = FairOrder(owners_max=3)
    for owner in ("a", "b", "a", "c", "d"):
        order.note_turn(owner)
    assert list(order._last_turns) == ["a", "c", "d"]
    images = [image(number, owner) for number, owner in enumerate("dcab")]
    assert [one[-1] for one in served(order, images)] == ["3", "2", "1", "0"]

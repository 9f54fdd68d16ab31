"""Order in which images are pinned."""

from acstor.agent.reconcilers.image_use import ImageUse
from tests.unit.agent.conftest import Clock

OLD, NEW = "2026-11-20T08:00:00+00:00", "2026-11-21T08:00:00+00:00"


def test_newest_is_first_where_none_was_used() -> None:
    images = {"a": OLD, "b": NEW, "c": NEW, "d": ""}
    assert ImageUse(Clock()).order(images) == ["b", "c", "a", "d"]


def test_most_recently_used_is_first() -> None:
    clock = Clock()
    use = ImageUse(clock)
    images = {"a": OLD, "b": OLD, "c": NEW, "d": NEW}
    use.note(["a", "c"])
    clock.now += 1
    use.note(["a"])
    assert use.order(images) == ["a", "c", "d", "b"]
    clock.now += 1
    use.note(["b"])
    assert use.order(images) == ["b", "a", "c", "d"]


def test_use_of_what_is_gone_is_forgotten() -> None:
    use = ImageUse(Clock())
    use.note(["a", "gone"])
    assert use.order({"a": OLD, "b": NEW}) == ["a", "b"]
    assert use.order({"a": OLD, "b": NEW, "gone": ""}) == ["a", "b", "gone"]

"""Events that flavors, images and metadata ask for: whatever anybody writes there."""

import pytest

from acstor.repository.versions.record import Trigger
from acstor.versions.host_capture.triggers import wanted_triggers


@pytest.mark.parametrize(
    ("text", "triggers", "unknown"),
    [
        ("", set(), ()),
        ("shutdown", {Trigger.SHUTDOWN}, ()),
        (" Delete , resize,,rebuild", {Trigger.DELETE, Trigger.RESIZE, Trigger.REBUILD}, ()),
        ("manual,delete", {Trigger.DELETE}, ("manual",)),
        ("\N{SNOWMAN};delete", set(), ("\N{SNOWMAN};delete",)),
    ],
)
def test_known_words_are_taken(text: str, triggers: set[Trigger], unknown: tuple[str, ...]) -> None:
    found = wanted_triggers(text)
    assert set(found.triggers) == triggers
    assert found.unknown == unknown


def test_none_says_that_there_is_to_be_none() -> None:
    assert wanted_triggers(" NONE ").is_none
    assert wanted_triggers("none").unknown == ()
    assert not wanted_triggers("none,delete").is_none
    assert not wanted_triggers("").is_none


def test_events_are_those_that_may_be_asked_for() -> None:
    assert wanted_triggers("quota,delete").unknown == ("quota",)
    found = wanted_triggers("quota,delete", [Trigger.QUOTA])
    assert set(found.triggers) == {Trigger.QUOTA}
    assert found.unknown == ("delete",)


def test_long_texts_are_bounded() -> None:
    assert len(wanted_triggers("a," * 10_000).unknown) <= 16

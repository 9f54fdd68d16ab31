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


def test_long_texts_are_bounded() -> None:
    assert len(wanted_triggers("a," * 10_000).unknown) <= 16

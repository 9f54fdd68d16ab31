"""Versions that are asked for: words, places and their order, nonsense."""

import pytest

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions.database.project_settings import ProjectDefaults
from acstor.versions.durations import CalendarSpan
from acstor.versions.lifecycle.requested_versions import (
    Place,
    parse_policy,
    place_of,
    requested,
)
from acstor.versions.retention import Policy

DEFAULTS = ProjectDefaults(frozenset({Trigger.RESIZE}), Policy(last=2))


def test_nothing_said_is_the_projects() -> None:
    assert requested([], DEFAULTS) == DEFAULTS
    assert requested([Place("server", None, None)], ProjectDefaults()) == ProjectDefaults()


def test_first_place_counts_for_each() -> None:
    places = [
        place_of("server", {"acstor:version_on": "shutdown, Rebuild"}),
        place_of("flavor", {"acstor:version_on": "delete", "acstor:version_keep": "daily=3"}),
        place_of("image", {"acstor_version_keep": "last=9"}, is_image=True),
    ]
    found = requested(places, DEFAULTS)
    assert found.version_on == {Trigger.SHUTDOWN, Trigger.REBUILD}
    assert found.version_keep == Policy(daily=3)


def test_none_is_nothing_whatever_comes_behind() -> None:
    places = [
        Place("server", "none", "none"),
        Place("flavor", "shutdown", "last=1"),
    ]
    assert requested(places, DEFAULTS) == ProjectDefaults()


@pytest.mark.parametrize("text", ["", "always", "manual", "schedule", "=,="])
def test_unknown_events_say_nothing(text: str) -> None:
    assert requested([Place("server", text, None)], DEFAULTS).version_on == {Trigger.RESIZE}


def test_known_events_beside_unknown_ones_count() -> None:
    found = requested([Place("server", "sometimes,shutdown", None)], DEFAULTS)
    assert found.version_on == {Trigger.SHUTDOWN}


@pytest.mark.parametrize(
    "text", ["", "often", "last=", "last=many", "last=1,last=2", "never=1", "within=week", "=1"]
)
def test_nonsense_about_keeping_keeps_all(text: str) -> None:
    with pytest.raises(exception.InvalidError):
        parse_policy(text)
    found = requested([Place("server", None, text), Place("flavor", None, "last=1")], DEFAULTS)
    assert found.version_keep.is_empty


def test_policy_is_in_the_words_of_retention() -> None:
    found = parse_policy("last=3, daily=-1,within=3d")
    assert found == Policy(last=3, daily=-1, within=CalendarSpan.parse("3d"))

"""Panels of schedules and tasks."""

import datetime
from typing import Any

import pytest
import requests

from acstor.repository.versions.record import DiskKind, DiskName, Trigger
from acstor_dashboard import wording
from tests.unit.api.setting import SERVER, VOLUME
from tests.unit.dashboard.site import Site, text_of

PANEL = "/project/acstor_schedules/"
TASKS = "/project/acstor_tasks/"
FIELDS = {
    "name": "nightly",
    "every": "week",
    "at": "02:30",
    "weekday": "3",
    "monthday": "1",
    "timezone": "Europe/Berlin",
    "window_minutes": "60",
    "consistency": "best",
    "last": "3",
    "daily": "14",
    "within": "3d",
    "enabled": "on",
}


def stored(site: Site) -> Any:
    """Return the fields of the one schedule."""
    (found,) = site.setting.member.get("/v1/schedules").json["schedules"]
    return found


def test_schedule_is_made_changed_and_deleted(site: Site) -> None:
    sent = site.post(f"{PANEL}create/", **FIELDS)
    assert sent.status_code == 302, text_of(sent)
    made = stored(site)
    assert (made["every"], made["on"], made["at"]) == ("week", 3, "02:30")
    assert made["keep"] == {"last": 3, "daily": 14, "within": "3d"}
    path = f"{PANEL}{made['id']}/"
    assert sent["Location"] == path
    form = text_of(site.get(f"{path}edit/"))
    assert 'value="Europe/Berlin"' in form
    assert 'value="14"' in form
    changed = {**FIELDS, "every": "month", "monthday": "31", "daily": "", "last": "-1"}
    changed.pop("enabled")
    assert site.post(f"{path}edit/", **changed).status_code == 302
    now = stored(site)
    assert (now["every"], now["on"], now["enabled"]) == ("month", 31, False)
    assert now["keep"] == {"last": -1, "within": "3d"}
    assert "no more versions of its 0 servers" in text_of(site.get(f"{path}delete/"))
    assert site.post(f"{path}delete/").status_code == 302
    assert site.setting.member.get("/v1/schedules").json["schedules"] == []


@pytest.mark.parametrize(
    ("field", "value"), [("at", "24:00"), ("within", "3 days"), ("name", ""), ("last", "-2")]
)
def test_what_makes_no_sense_is_said_at_the_field(site: Site, field: str, value: str) -> None:
    sent = site.post(f"{PANEL}create/", **{**FIELDS, field: value})
    assert sent.status_code == 200
    assert "help-block" in text_of(sent)
    assert site.take_calls() == []


def test_what_the_api_refuses_keeps_what_was_typed(site: Site) -> None:
    sent = site.post(f"{PANEL}create/", **{**FIELDS, "timezone": "Mars/Olympus"})
    assert sent.status_code == 200
    assert 'value="Mars/Olympus"' in text_of(sent)
    site.setting.add_schedule(name="nightly")
    assert "acstor." in text_of(site.post(f"{PANEL}create/", **FIELDS))


def test_spans_that_the_form_has_not_stay(site: Site) -> None:
    schedule = site.setting.add_schedule(keep={"within_daily": "7d", "last": 1})
    fields = {**FIELDS, "last": "2", "daily": "", "within": ""}
    assert site.post(f"{PANEL}{schedule}/edit/", **fields).status_code == 302
    assert stored(site)["keep"] == {"last": 2, "within_daily": "7d"}


def test_targets_come_and_go(site: Site) -> None:
    schedule = site.setting.add_schedule()
    path = f"{PANEL}{schedule}/"
    assert "it takes no versions" in text_of(site.get(path))
    for kind, owner in (("server", SERVER), ("volume", VOLUME)):
        sent = site.post(f"{path}targets/add/", kind=kind, owner=owner)
        assert sent["Location"] == path
    unknown = "00000000-0000-4000-8000-000000000000"
    assert "acstor." in text_of(site.post(f"{path}targets/add/", kind="server", owner=unknown))
    page = text_of(site.get(path))
    assert f"/project/acstor_versions/volumes/{VOLUME}/" in page
    assert SERVER in text_of(site.get(f"{path}targets/{SERVER}/remove/"))
    assert site.post(f"{path}targets/{SERVER}/remove/").status_code == 302
    assert [each["id"] for each in stored(site)["targets"]] == [VOLUME]


def test_preview_says_what_stays_and_why(site: Site) -> None:
    schedule = site.setting.add_schedule(keep={"last": 1})
    site.post(f"{PANEL}{schedule}/targets/add/", kind="server", owner=SERVER)
    disk = DiskName(DiskKind.INSTANCE, SERVER, "vda")
    for hours in (1, 2):
        at = site.setting.clock.now - datetime.timedelta(hours=hours)
        known: dict[str, Any] = {"disk": disk, "trigger": Trigger.SCHEDULE}
        site.setting.add_version(created_at=at, slot=at.isoformat(), schedule=schedule, **known)
    site.setting.add_version(disk=disk, created_at=site.setting.clock.now)
    site.take_calls()
    page = text_of(site.get(f"{PANEL}{schedule}/"))
    assert len(site.take_calls()) == 2
    assert "the newest one" in page
    assert "Goes at the next run" in page
    assert "not taken by this schedule" in page
    assert "among the newest" in page


def test_list_is_one_call(site: Site) -> None:
    for number in range(3):
        site.setting.add_schedule(name=f"s{number}<b>")
    site.take_calls()
    page = text_of(site.get(PANEL))
    assert len(site.take_calls()) == 1
    assert "s2&lt;b&gt;" in page


def test_reader_may_look_only(site: Site) -> None:
    schedule = site.setting.add_schedule()
    site.api.role = "reader"
    path = f"{PANEL}{schedule}/"
    page = text_of(site.get(path))
    for name in ("edit", "delete", "targets/add"):
        assert f"{path}{name}/" not in page
        assert site.get(f"{path}{name}/").status_code == 403
    assert "create/" not in text_of(site.get(PANEL))


def test_pages_stand_without_the_api(site: Site) -> None:
    schedule, task = site.setting.add_schedule(), site.setting.add_task()
    site.api.error = requests.exceptions.ConnectionError("refused")
    one = f"{PANEL}{schedule}/"
    pages = [PANEL, one, f"{one}edit/", f"{one}delete/", TASKS, f"{TASKS}{task}/"]
    for path in pages:
        page = site.get(path)
        assert page.status_code == 200
        assert text_of(page).count('data-acstor-failure="down"') == 1, path
        assert len(site.take_calls()) == 1, path


def test_tasks_are_listed_shown_and_cancelled(site: Site) -> None:
    task = site.setting.add_task()
    page = text_of(site.get(TASKS))
    assert len(site.take_calls()) == 1
    assert "Take a version" in page
    assert 'data-acstor-refresh="6"' in page
    shown = text_of(site.get(f"{TASKS}{task}/"))
    assert "<progress" in shown
    assert f"{TASKS}{task}/cancel/" in shown
    assert site.post(f"{TASKS}{task}/cancel/").status_code == 302
    over = text_of(site.get(f"{TASKS}{task}/"))
    assert "Cancelled" in over
    assert "data-acstor-refresh" not in over
    assert f"{TASKS}{task}/cancel/" not in over
    assert "data-acstor-refresh" not in text_of(site.get(TASKS))


def test_filter_of_tasks_is_the_apis(site: Site) -> None:
    site.setting.add_task()
    field = "tasks__filter__q"
    assert site.post(TASKS, **{field: "done", f"{field}_field": "state"}).status_code == 302
    page = text_of(site.get(TASKS))
    (call,) = site.take_calls()
    assert "state=done" in call.query
    assert "data-object-id" not in page


@pytest.mark.parametrize(
    ("keep", "sentences"),
    [
        ({}, ["Keeps everything."]),
        ({"last": 1}, ["the newest one"]),
        ({"daily": 14, "last": 3}, ["the newest 3", "one of each of 14 days"]),
        ({"last": -1, "yearly": -1}, ["all", "one of every year"]),
        ({"within": "1y6m"}, ["everything of the last 1 year 6 months"]),
        ({"within_weekly": "2d3h"}, ["one a week of the last 2 days 3 hours"]),
    ],
)
def test_retention_is_said_in_words(keep: dict[str, Any], sentences: list[str]) -> None:
    assert wording.retention(keep) == sentences


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (("hour", "00:15", None, "UTC"), "Every hour"),
        (("day", "02:30", None, "UTC"), "Every day at 02:30 (UTC)"),
        (("week", "02:30", 7, "Europe/Berlin"), "Every week on Sunday at 02:30 (Europe/Berlin)"),
        (("month", "02:30", 31, "UTC"), "Every month on day 31 at 02:30 (UTC)"),
        (("century", None, None, "UTC"), "century (UTC)"),
    ],
)
def test_times_are_said_in_words(fields: Any, words: str) -> None:
    assert wording.when(*fields) == words

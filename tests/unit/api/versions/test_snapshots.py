"""Snapshots of Cinder's among the versions of a volume: shown, and never changed."""

import uuid
from typing import Any

import pytest
from falcon import testing

from acstor import exception
from acstor.api import microversions
from acstor.repository import layout
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.repository.volumes.record import SnapshotRecord
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import SERVER, VOLUME, Setting

NEWEST = {microversions.HEADER: "acstor latest"}
SNAPSHOT = str(uuid.UUID(int=300))
PATH = f"/v1/versions?volume_id={VOLUME}"


@pytest.fixture
def version(api: Setting) -> str:
    """Make a snapshot of the volume, and a version; return that."""
    record = SnapshotRecord(VOLUME, 512, None, created_at="2026-11-26T11:00:00+00:00", name="s")
    api.origin.swap_ref(layout.snapshot_ref(SNAPSHOT), None, record.encode())
    api.refresh(SNAPSHOT)
    return api.add_version(disk=DiskName(DiskKind.VOLUME, VOLUME))


def ids(caller: TestCaller, path: str = PATH, **named: Any) -> set[str]:
    answer = caller.ask("GET", path, **{"headers": NEWEST, **named})
    assert answer.status_code == 200, answer.text
    return {each["id"] for each in answer.json["versions"]}


def test_snapshot_is_a_version_of_its_volume(api: Setting, version: str) -> None:
    assert ids(api.member) == {version, SNAPSHOT}
    answer = api.member.ask("GET", f"/v1/versions/{SNAPSHOT}", headers=NEWEST)
    shown = answer.json["version"]
    assert (shown["trigger"], shown["restorable"], shown["name"]) == ("snapshot", False, "s")
    assert (shown["volume_id"], shown["project_id"]) == (VOLUME, api.project)
    assert shown["unique_bytes"] is None
    page = api.member.ask("GET", f"{PATH}&limit=1&marker={version}", headers=NEWEST)
    assert [each["id"] for each in page.json["versions"]] == [SNAPSHOT]


def test_only_who_sees_the_volume_sees_its_snapshots(api: Setting, version: str) -> None:
    assert ids(api.stranger) == set()
    assert ids(api.member, "/v1/versions") == {version}
    path = f"/v1/versions/{SNAPSHOT}"
    assert api.stranger.ask("GET", path, headers=NEWEST).status_code == 404
    api.user_services.error = exception.UnavailableError("Cinder is away")
    assert ids(api.member) == {version}
    assert api.member.ask("GET", path, headers=NEWEST).status_code == 404


def test_older_microversion_shows_none(api: Setting, version: str) -> None:
    assert ids(api.member, headers={}) == {version}
    assert api.member.get(f"/v1/versions/{SNAPSHOT}").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "", None),
        ("PATCH", "", {"version": {"name": "mine"}}),
        ("PUT", "/lock", {"lock": {"reason": "r"}}),
        ("DELETE", "/lock", None),
        ("PUT", "/image", {}),
        ("GET", "/data", None),
    ],
)
def test_snapshot_is_cinders_to_change(
    api: Setting, version: str, method: str, path: str, body: Any
) -> None:
    before = api.origin.get_ref(layout.snapshot_ref(SNAPSHOT))
    url = f"/v1/versions/{SNAPSHOT}{path}"
    for caller in (api.member.as_role("manager"), api.member.as_role("admin")):
        check_refused(caller.ask(method, url, body, headers=NEWEST))
    assert api.origin.get_ref(layout.snapshot_ref(SNAPSHOT)) == before
    assert ids(api.member) == {version, SNAPSHOT}


def test_snapshot_is_restored_by_cinder(api: Setting, version: str) -> None:
    for target in ({"volume_id": VOLUME}, {"server_id": SERVER}):
        wanted = {"restore": {"version_id": SNAPSHOT, **target}}
        check_refused(api.member.ask("POST", "/v1/restores", wanted, headers=NEWEST))


def check_refused(answer: testing.Result) -> None:
    assert answer.status_code == 409, answer.text
    assert first_error(answer)["code"] == "acstor.version.is_snapshot"
    assert "openstack volume" in first_error(answer)["hint"]


def test_snapshot_counts_in_no_quota_and_goes_with_its_record(api: Setting, version: str) -> None:
    assert api.stores.versions.usage(api.project).versions == 1
    assert api.stores.versions.usage("").versions == 0
    ref = api.origin.get_ref(layout.snapshot_ref(SNAPSHOT))
    assert ref is not None
    api.origin.swap_ref(layout.snapshot_ref(SNAPSHOT), ref.token, None)
    api.refresh(SNAPSHOT)
    assert ids(api.member) == {version}

"""Each command against the contract: what it asks for, and what it answers."""

import functools
import json
import pathlib

import pytest

from acstorclient.task_wait import TaskWait
from testbed.doubles.contract_api import Answer, ContractApi
from testbed.doubles.user_cloud import IMAGE_ID, SERVER_ID, VOLUME_ID
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.clients.conftest import OpenStackClient, entry_points

V1 = "0b6a1c5e-4f2d-4c39-8d17-9e3f5a7b2c10"
V2 = "3e8d7f21-6a0b-4b94-9c5e-d27f1a8b4e63"
GROUP = "7a5b0001-c1d2-4e3f-8a9b-0c1d2e3f4a5b"
LOCKED = "9d3f5a7b-2c10-4e8d-b6a1-c5e40f2d9c39"
MISSING = "11111111-2222-4333-8444-555555555555"
SCHEDULE = "f1b7c9d3-5e2a-4f86-9b40-8d6c3e1a7f52"
PRELOAD = "15c8e2a7-d4b6-4903-a7f1-2e9d5b8c0f64"
RUNNING = "7a5b0009-c1d2-4e3f-8a9b-0c1d2e3f4a5b"
FAILED = "7a5b0008-c1d2-4e3f-8a9b-0c1d2e3f4a5b"

LINES = [
    "version create before-upgrade --server web-1 --consistency fs --property ticket=4711 "
    "--expires 2026-12-24T18:00+01:00",
    "version create before-upgrade --volume data",
    "version create before-upgrade --volume data --wait",
    "version list",
    "version list --long --max-items 1",
    "version list --server web-1 --locked",
    "version list --created-after 2026-11-26T12:00Z --created-before 2026-11-27T00:00Z",
    "version show before-upgrade",
    "version set before-upgrade --name good",
    "version set before-upgrade --no-expiry --property ticket=4711",
    "version lock before-upgrade --reason ransomware",
    "version unlock before-upgrade",
    f"version diff before-upgrade {V2}",
    f"version diff --files before-upgrade {V2}",
    "version browse before-upgrade /etc",
    "version restore before-upgrade",
    "version restore before-upgrade --server web-1 --wait 60",
    "version restore before-upgrade --no-keep-current --method rebuild",
    "version restore before-upgrade --preview",
    "version restore before-upgrade --group --disk vda --disk vdb --keep-uefi-variables",
    "version restore before-upgrade --group --volume data --method in-place --discard-current",
    "version export before-upgrade --image golden --wait",
    "version boot before-upgrade web-1-before --flavor m1.small",
    f"version delete before-upgrade {V2}",
    "schedule create nightly --at 02:30 --time-zone Europe/Berlin --window 60 --keep-last 3 "
    "--keep-daily 14 --keep-within 3d",
    "schedule list",
    "schedule show nightly",
    "schedule set nightly --disable",
    "schedule target add nightly --server web-1",
    "schedule target remove nightly --server web-1",
    "schedule preview nightly",
    "schedule delete nightly",
    "task list",
    "task list --state failed",
    f"task show {RUNNING}",
    f"task cancel {RUNNING}",
    "image list",
    "image list --name debian-12 --max-items 5",
    "image show debian-12",
    "image preload create debian-12 --rate 200 --wait",
    "image preload create debian-12 --host cmp-1 --host cmp-2",
    "image preload list debian-12",
    f"image preload delete debian-12 {PRELOAD}",
    "volume show data",
    "volume durability set data write-back --interval 10",
    "host list",
    "host show cmp-1",
    "host set cmp-1 --drain",
    "origin list",
    "origin show ceph",
    "origin drain ceph",
    "origin keep ceph",
    "ring show",
    "decision list",
    "defaults show",
    "defaults set --on-delete",
    "usage show",
]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody wait for what is there already."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.mark.parametrize("line", LINES)
def test_a_command_asks_for_what_the_contract_has(client: OpenStackClient, line: str) -> None:
    result = client.run(f"acstor {line}")
    assert result.status == 0, result.errors


def test_every_command_is_tried() -> None:
    commands = {name.replace("_", " ") for name in entry_points("openstack.acstor.v1")}
    tried = {
        name for name in commands for line in LINES if f"acstor {line} ".startswith(f"{name} ")
    }
    assert commands - tried == set()


@pytest.mark.parametrize("line", [line for line in LINES if " list" in line or " show" in line])
def test_tables_are_json_for_programs(client: OpenStackClient, line: str) -> None:
    result = client.run(f"acstor {line} -f json")
    assert result.status == 0, result.errors
    assert json.loads(result.output)


def test_sizes_are_bytes_for_programs(client: OpenStackClient) -> None:
    shown = json.loads(client.run(f"acstor version show {V1} -f json").output)
    assert (shown["size_bytes"], shown["lock"], shown["is_restorable"]) == (5368709120, {}, True)
    assert "5.0 GiB" in client.run(f"acstor version show {V1}").output


def test_pages_are_followed_and_may_be_bounded(client: OpenStackClient, api: ContractApi) -> None:
    line = "acstor version list --limit 1 -f value -c ID"
    assert client.run(line).output.split() == [V1, V2]
    assert client.run(f"{line} --max-items 1").output.split() == [V1]
    assert api.requests[-1].query["limit"] == ["1"]


def test_a_name_of_two_is_told_with_both_ids(client: OpenStackClient) -> None:
    result = client.run("acstor version show nightly")
    assert result.status == 1
    assert V2 in result.errors
    assert "8f1c2b3d-4e5a-4697-b8c9-d0e1f2a3b4c5" in result.errors


def test_a_name_of_none_is_told(client: OpenStackClient) -> None:
    result = client.run("acstor version show no-such")
    assert (result.status, result.errors) == (1, "There is no version 'no-such'\n")


def test_names_never_reach_a_path(client: OpenStackClient, api: ContractApi) -> None:
    client.run("acstor version show ../tasks")
    client.run("acstor host show ../ring")
    assert [each.path for each in api.requests if ".." in each.path] == ["/v1/hosts/../ring"]
    assert [each.path for each in api.requests if each.path.startswith("/v1/ring")] == []


def test_errors_have_code_and_hint(client: OpenStackClient) -> None:
    result = client.run(f"acstor version show {MISSING}")
    assert result.status == 1
    assert result.errors == (
        f"there is no version {MISSING} (acstor.version.not_found)\n"
        "Hint: list what there is: openstack acstor version list\n"
        "Request: req-3d0a6b1f-52c8-4f7e-9a1b-c6e4d2f80753\n"
    )


def test_a_quota_is_told_with_its_hint(client: OpenStackClient) -> None:
    result = client.run("acstor version create one-too-many --server web-1")
    assert result.status == 1
    assert "acstor.quota" in result.errors
    assert "Hint: delete versions" in result.errors


def test_one_that_cannot_be_deleted_stops_no_other(
    client: OpenStackClient, api: ContractApi
) -> None:
    result = client.run(f"acstor version delete {LOCKED} {V2}")
    assert result.status == 1
    assert "is locked: ransomware" in result.errors
    assert f"{V2} is in use and goes with its last use" in result.errors
    assert "1 of 2 could not be deleted" in result.errors
    assert api.requests[-1].path == f"/v1/versions/{V2}"


def test_a_failed_task_is_a_failed_command(client: OpenStackClient) -> None:
    assert client.run(f"acstor task show {FAILED}").status == 0
    result = client.run(f"acstor task show {FAILED} --wait")
    assert result.status == 1
    assert "acstor.agent.silent" in result.errors
    assert "Hint: take the version with --consistency best or crash" in result.errors


def test_json_stays_json_while_somebody_waits(client: OpenStackClient) -> None:
    result = client.run("acstor version create before-upgrade --volume data --wait -f json")
    assert json.loads(result.output)["result"] == {"group_id": GROUP, "versions": [V1]}
    assert result.errors == "", "no progress where standard error is no terminal"


def test_a_task_that_takes_too_long_goes_on(
    client: OpenStackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = VirtualTime()
    waiting = functools.partial(TaskWait, sleep=time.sleep, clock=time)
    monkeypatch.setattr("acstorclient.task_wait.TaskWait", waiting)
    result = client.run(f"acstor task show {RUNNING} --wait 25")
    assert result.status == 1
    assert time.now == pytest.approx(25)
    assert "it goes on" in result.errors
    assert f"Hint: openstack acstor task show {RUNNING}" in result.errors


@pytest.mark.parametrize("wait", ["-1", "soon", "nan"])
def test_a_wait_is_a_number(client: OpenStackClient, wait: str) -> None:
    result = client.run(f"acstor task show {RUNNING} --wait={wait}")
    assert result.status == 2
    assert "no number of seconds" in result.errors


def test_a_version_is_of_one_thing(client: OpenStackClient) -> None:
    assert client.run("acstor version create both --server a --volume b").status == 2
    assert client.run("acstor version create none").status == 2


def test_a_server_that_is_gone_is_named_by_its_id(client: OpenStackClient) -> None:
    gone = "00000000-0000-4000-8000-000000000001"
    result = client.run(f"acstor version list --server {gone}")
    assert result.status == 0, result.errors


def test_a_server_that_was_never_there_is_told(client: OpenStackClient) -> None:
    result = client.run("acstor version list --server no-such")
    assert result.status == 1
    assert "No Server found for no-such" in result.errors


def test_a_target_is_told_with_its_kind(client: OpenStackClient, api: ContractApi) -> None:
    client.run("acstor schedule target add nightly --server web-1")
    assert api.requests[-1].path == f"/v1/schedules/{SCHEDULE}/targets/{SERVER_ID}"
    assert api.requests[-1].body == {"target": {"type": "server"}}


def test_the_preview_says_why_and_when(client: OpenStackClient) -> None:
    lines = client.run("acstor schedule preview nightly -f csv").output.splitlines()
    assert [line.split(",")[3].strip('"') for line in lines[1:]] == [
        "to be taken",
        "to be taken",
        "stays",
        "goes after 2026-11-28T01:42:10Z",
        "goes now",
    ]


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("--keep-last", "-2"),
        ("--keep-last", "many"),
        ("--keep-within", "3w"),
        ("--keep-within", ""),
        ("--keep-daily", "1.5"),
    ],
)
def test_nonsense_is_refused_before_anybody_is_asked(
    client: OpenStackClient, api: ContractApi, option: str, wrong: str
) -> None:
    before = len(api.requests)
    assert client.run(f"acstor schedule create nightly '{option}={wrong}'").status == 2
    assert len(api.requests) == before


def test_a_directory_is_listed_without_what_a_terminal_obeys(client: OpenStackClient) -> None:
    shown = client.run("acstor version browse before-upgrade /etc").output
    assert "\u202e" not in shown
    assert r"odd\x1b\u202ename" in shown
    names = json.loads(client.run("acstor version browse before-upgrade /etc -f json").output)
    assert names[2]["Name"] == "odd\\x1b\u202ename"


def test_partitions_are_listed_with_the_reason(client: OpenStackClient) -> None:
    line = "acstor version browse before-upgrade --partitions -f json"
    found = json.loads(client.run(line).output)
    assert [(each["Number"], each["Can Be Browsed"]) for each in found] == [(1, True), (15, False)]
    assert "whose files are not shown" in found[1]["Reason"]


def test_a_file_of_a_version_is_saved(client: OpenStackClient, folder: pathlib.Path) -> None:
    line = "acstor version browse before-upgrade /etc/debian_version --file"
    assert client.run(f"{line} saved").status == 0
    assert (folder / "saved").read_text() == "12.11\n"
    assert [path.name for path in folder.iterdir()] == ["saved"]
    assert client.run(f"{line} -").output == "12.11\n"


def test_a_directory_of_a_version_is_saved(client: OpenStackClient, folder: pathlib.Path) -> None:
    line = "acstor version browse before-upgrade /etc/network --archive network.tar"
    assert client.run(line).status == 0
    assert (folder / "network.tar").read_bytes() == bytes(1024)


def test_nothing_is_left_where_there_is_no_such_file(
    client: OpenStackClient, folder: pathlib.Path
) -> None:
    result = client.run("acstor version browse before-upgrade /no-such --file saved")
    assert result.status == 1
    assert list(folder.iterdir()) == []


def test_a_disk_is_saved(client: OpenStackClient, folder: pathlib.Path) -> None:
    result = client.run("acstor version export before-upgrade --file disk.qcow2 -f json")
    assert json.loads(result.output)["size_bytes"] == 26
    assert (folder / "disk.qcow2").read_bytes() == b"abcdefghijklmnopqrstuvwxyz"


def test_nothing_is_left_of_a_disk_that_does_not_come(
    client: OpenStackClient, api: ContractApi, folder: pathlib.Path
) -> None:
    (folder / "disk.qcow2").write_text("the one before")
    path = f"/v1/versions/{V1}/data"
    api.scripted["GET", path] = [Answer(200, b"abc", {"ETag": '"another"'})]
    result = client.run("acstor version export before-upgrade --file disk.qcow2")
    assert result.status == 1
    assert "changes while it is read" in result.errors
    assert (folder / "disk.qcow2").read_text() == "the one before"
    assert [path.name for path in folder.iterdir()] == ["disk.qcow2"]


def test_a_place_that_cannot_be_written_is_told(
    client: OpenStackClient, folder: pathlib.Path
) -> None:
    result = client.run("acstor version export before-upgrade --file no/such/folder")
    assert result.status == 1
    assert result.errors == "Cannot write no/such/folder: No such file or directory\n"


def test_images_and_volumes_are_asked_for_by_their_ids(
    client: OpenStackClient, api: ContractApi
) -> None:
    client.run("acstor image show debian-12")
    client.run("acstor volume show data")
    assert [each.path for each in api.requests[-2:]] == [
        f"/v1/images/{IMAGE_ID}",
        f"/v1/volumes/{VOLUME_ID}",
    ]


def test_defaults_that_are_not_named_stay(client: OpenStackClient, api: ContractApi) -> None:
    client.run("acstor defaults set --on-delete")
    assert api.requests[-1].body == {
        "defaults": {
            "version_on": ["shutdown", "resize"],
            "version_keep": {"daily": 14},
            "on_delete": True,
        }
    }


def test_nothing_is_asked_where_nothing_changes(client: OpenStackClient, api: ContractApi) -> None:
    client.run("acstor defaults set")
    client.run("acstor schedule set nightly")
    assert [each.method for each in api.requests if each.method != "GET"] == []

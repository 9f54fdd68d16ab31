"""``openstack acstor version boot``: an image of ACStor, then a server of the user's."""

import base64
import json
import pathlib

import pytest

from testbed.doubles.contract_api import Answer, ContractApi
from testbed.doubles.user_cloud import NEW_SERVER_ID, UserCloud
from tests.unit.clients.conftest import OpenStackClient

IMAGE = "a17e5c3d-90f2-4b68-8e4d-3c6b2f9a0d75"
BOOT = "acstor version boot before-upgrade web-1-before --flavor m1.small"
TASK = "7a5b0002-c1d2-4e3f-8a9b-0c1d2e3f4a5b"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody wait for what is there already."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def asked(cloud: UserCloud) -> dict[str, object]:
    """Return what Nova was asked to create."""
    (request,) = [
        each for each in cloud.requests if each.method == "POST" and "compute" in each.path
    ]
    server: dict[str, object] = request.body["server"]
    return server


def test_a_server_boots_the_image_of_the_version(client: OpenStackClient, cloud: UserCloud) -> None:
    result = client.run(f"{BOOT} -f json")
    assert result.status == 0, result.errors
    assert json.loads(result.output)["id"] == NEW_SERVER_ID
    server = asked(cloud)
    assert (server["imageRef"], server["flavorRef"], server["networks"]) == (IMAGE, "2", "auto")


def test_options_are_those_of_server_create(
    client: OpenStackClient, cloud: UserCloud, folder: pathlib.Path
) -> None:
    (folder / "data").write_bytes(b"#cloud-config\n")
    result = client.run(
        f"{BOOT} --port kept-address --network private --key-name mine --security-group web "
        "--availability-zone az1 --property role=web --user-data data"
    )
    assert result.status == 0, result.errors
    server = asked(cloud)
    assert server["networks"] == [{"port": "port-1"}, {"uuid": "net-1"}]
    assert (server["key_name"], server["availability_zone"]) == ("mine", "az1")
    assert server["security_groups"] == [{"name": "web"}]
    assert server["metadata"] == {"role": "web"}
    assert base64.b64decode(str(server["user_data"])) == b"#cloud-config\n"


def test_the_server_is_waited_for(client: OpenStackClient, cloud: UserCloud) -> None:
    cloud.server_states = ["BUILD", "BUILD", "ACTIVE"]
    result = client.run(f"{BOOT} --wait -f json")
    assert result.status == 0, result.errors
    shown = json.loads(result.output)
    assert (shown["status"], shown["addresses"]) == ("ACTIVE", "private=10.0.0.17")


def test_a_server_in_error_fails_with_its_fault(client: OpenStackClient, cloud: UserCloud) -> None:
    cloud.server_states = ["BUILD", "ERROR"]
    result = client.run(f"{BOOT} --wait")
    assert result.status == 1
    assert "No valid host was found." in result.errors


def test_no_server_without_the_image(
    client: OpenStackClient, cloud: UserCloud, api: ContractApi
) -> None:
    task = {"id": TASK, "kind": "image", "state": "failed", "error": {"detail": "quota of Glance"}}
    api.scripted["GET", f"/v1/tasks/{TASK}"] = [Answer(200, {"task": task})]
    result = client.run(BOOT)
    assert result.status == 1
    assert "quota of Glance" in result.errors
    assert [each.path for each in cloud.requests if each.path.endswith("/servers")] == []


def test_names_are_resolved_before_an_image_is_made(
    client: OpenStackClient, api: ContractApi
) -> None:
    result = client.run(f"{BOOT} --network no-such")
    assert result.status == 1
    assert "no-such" in result.errors
    assert [each.method for each in api.requests if each.method != "GET"] == []


@pytest.mark.parametrize("size", [None, 70_000])
def test_user_data_that_cannot_be_sent_is_told(
    client: OpenStackClient, folder: pathlib.Path, size: int | None
) -> None:
    if size:
        (folder / "data").write_bytes(b"x" * size)
    result = client.run(f"{BOOT} --user-data data")
    assert result.status == 1
    assert "ser data data" in result.errors

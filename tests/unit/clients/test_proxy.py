"""The proxy: microversions, errors, repetition, what comes in pages."""

import io
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions as keystone_exceptions
from openstack import connection as openstack_connection
from openstack import exceptions

from acstor.api import version_browsing
from acstorclient import exception, microversion, service
from acstorclient.v1.cluster import LiveState
from acstorclient.v1.proxy import Proxy, _below_version
from acstorclient.v1.version import grouped
from testbed.doubles import user_cloud
from testbed.doubles.contract_api import Answer, ContractApi
from testbed.doubles.user_cloud import URL, VOLUME_ID, UserCloud
from testbed.fixtures.wsgi_transport import WsgiTransport
from tests.unit.clients.conftest import connected

V1 = "0b6a1c5e-4f2d-4c39-8d17-9e3f5a7b2c10"
V2 = "3e8d7f21-6a0b-4b94-9c5e-d27f1a8b4e63"
GROUP = "7a5b0001-c1d2-4e3f-8a9b-0c1d2e3f4a5b"
AWAY = Answer(503, {"error": {"message": "no server is available"}})


@pytest.fixture
def acstor(connection: openstack_connection.Connection) -> Proxy:
    """The proxy on that connection."""
    return service.attach(connection)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that somebody would have made."""
    made: list[float] = []
    monkeypatch.setattr("time.sleep", made.append)
    return made


def offer(api: ContractApi, low: str, high: str) -> None:
    """Have the API offer other microversions."""
    links = [{"rel": "self", "href": f"{URL}/acstor/v1/"}]
    fields = {"id": "v1", "status": "CURRENT", "version": high, "min_version": low, "links": links}
    api.scripted["GET", "/"] = [Answer(300, {"versions": [fields]})] * 5
    api.scripted["GET", "/v1/"] = [Answer(200, {"version": fields})] * 5


def test_a_connection_gets_the_service(connection: openstack_connection.Connection) -> None:
    assert service.attach(connection) is service.attach(connection)
    assert isinstance(service.attach(connection), Proxy)


def test_the_newest_microversion_of_both_is_asked_for(acstor: Proxy, api: ContractApi) -> None:
    next(acstor.versions())
    acstor.get_usage()
    asked = [each.headers.get("Openstack-Api-Version") for each in api.requests[-2:]]
    assert asked == [f"acstor {microversion.MAXIMUM}"] * 2


def test_a_cloud_that_is_ahead_is_asked_for_what_is_known(
    connection: openstack_connection.Connection, api: ContractApi
) -> None:
    offer(api, "1.0", "1.9")
    service.attach(connection).get_usage()
    asked = api.requests[-1].headers["Openstack-Api-Version"]
    assert asked == f"acstor {microversion.MAXIMUM}"


def test_what_an_older_cloud_does_not_know_is_not_asked_for(
    connection: openstack_connection.Connection, api: ContractApi
) -> None:
    offer(api, "1.0", "1.0")
    for later in ({"disks": ["vda"]}, {"restore_nvram": False}):
        with pytest.raises(exception.NoMicroversion, match=r"needs microversion 1\.1"):
            service.attach(connection).create_restore(version_id="1", server_id="2", **later)
    assert [each for each in api.requests if each.method == "POST"] == []


def test_no_microversion_in_common_is_told(
    connection: openstack_connection.Connection, api: ContractApi
) -> None:
    offer(api, "1.5", "1.9")
    with pytest.raises(exception.NoMicroversion, match=r"1\.5 to 1\.9.*knows 1\.0 to 1\.1"):
        service.attach(connection).get_usage()


def test_the_users_choice_is_asked_for(cloud: UserCloud, api: ContractApi) -> None:
    offer(api, "1.0", "1.9")
    connection = connected(cloud, acstor_api_version="1.3")
    service.attach(connection).get_usage()
    assert api.requests[-1].headers["Openstack-Api-Version"] == "acstor 1.3"


def test_errors_are_those_of_openstacksdk_too(acstor: Proxy) -> None:
    with pytest.raises(exceptions.NotFoundException) as caught:
        acstor.get_version("11111111-2222-4333-8444-555555555555")
    assert isinstance(caught.value, exception.NotFoundError)
    assert caught.value.code == "acstor.version.not_found"
    assert caught.value.status_code == 404
    assert caught.value.hint


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, "answered 500"),
        (b"<html>oops</html>", "answered 500"),
        ({"errors": []}, "answered 500"),
        ({"errors": [{"title": 7, "detail": None}]}, "The request failed"),
        ({"error": {"message": "of a proxy"}}, "of a proxy"),
        ([1], "answered 500"),
    ],
)
def test_errors_of_others_are_told_too(
    acstor: Proxy, api: ContractApi, body: object, told: str
) -> None:
    api.scripted["GET", "/v1/usage"] = [
        Answer(500, body, {"X-Openstack-Request-Id": "req-of-a-header"})
    ]
    with pytest.raises(exception.ApiError) as caught:
        acstor.get_usage()
    assert told in str(caught.value)
    assert "Request: req-of-a-header" in str(caught.value)


def test_an_api_that_is_away_for_a_moment_is_asked_again(
    acstor: Proxy, api: ContractApi, pauses: list[float]
) -> None:
    api.scripted["GET", "/v1/usage"] = [AWAY, AWAY]
    assert acstor.get_usage().usage["versions"] == 9
    assert len(pauses) == 2
    assert all(0.5 <= pause <= 1.5 for pause in pauses)


def test_an_api_that_stays_away_is_given_up(
    acstor: Proxy, api: ContractApi, pauses: list[float]
) -> None:
    api.scripted["GET", "/v1/usage"] = [AWAY] * 20
    with pytest.raises(exception.ApiError, match="no server is available"):
        acstor.get_usage()
    assert len(pauses) == 3


def test_a_repeated_post_has_the_same_key(
    acstor: Proxy, api: ContractApi, pauses: list[float]
) -> None:
    api.scripted["POST", "/v1/versions"] = [AWAY]
    acstor.create_version(volume_id=VOLUME_ID, name="before-upgrade", consistency="best")
    keys = [each.headers["Idempotency-Key"] for each in api.requests if each.method == "POST"]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert len(pauses) == 1


def test_a_post_without_a_key_is_not_repeated(
    acstor: Proxy, api: ContractApi, pauses: list[float]
) -> None:
    api.scripted["POST", "/v1/exports"] = [AWAY] * 2
    with pytest.raises(exception.ApiError):
        acstor.post("/exports", json={})
    assert (len(api.scripted["POST", "/v1/exports"]), pauses) == (1, [])


GONE = Answer(404, {"errors": [{"title": "Not found", "code": "acstor.version.not_found"}]})


def test_what_was_deleted_by_a_request_without_an_answer_is_deleted(
    acstor: Proxy, api: ContractApi, pauses: list[float]
) -> None:
    api.scripted["DELETE", f"/v1/versions/{V1}"] = [AWAY, GONE]
    assert acstor.delete_version(V1)
    assert len(pauses) == 1
    assert 0.5 <= pauses[0] <= 1.5


def test_what_was_never_there_is_not_deleted(
    acstor: Proxy, api: ContractApi, pauses: list[float]
) -> None:
    api.scripted["DELETE", f"/v1/versions/{V1}"] = [GONE]
    with pytest.raises(exception.NotFoundError):
        acstor.delete_version(V1)
    assert pauses == []


@pytest.mark.parametrize(("answer", "times"), [(AWAY, 4), (Answer(409, {}), 1)])
def test_deletion_that_fails_is_repeated_as_often_as_others(
    acstor: Proxy, api: ContractApi, pauses: list[float], answer: Answer, times: int
) -> None:
    api.scripted["DELETE", f"/v1/versions/{V1}"] = [answer] * 20
    with pytest.raises(exception.ApiError):
        acstor.delete_version(V1)
    assert len([each for each in api.requests if each.method == "DELETE"]) == times
    assert len(pauses) == times - 1


def test_each_request_has_a_deadline(
    acstor: Proxy, cloud: UserCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    send = WsgiTransport.send

    def noting(self: WsgiTransport, request: object, *args: object, **kwargs: object) -> object:
        seen.append(kwargs.get("timeout"))
        return send(self, request, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(WsgiTransport, "send", noting)
    acstor.get_usage()
    assert seen[-1] == 60.0


def test_no_answer_at_all_is_an_error_of_keystoneauth(
    acstor: Proxy,
    cloud: UserCloud,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acstor.get_usage()

    def refuse(environ: object, start_response: object) -> list[bytes]:
        raise requests.exceptions.ConnectionError("refused")

    monkeypatch.setattr(cloud, "api", refuse)
    with pytest.raises(keystone_exceptions.ConnectFailure):
        acstor.get_usage()
    assert len(pauses) == 3


def test_a_cloud_without_the_service_says_so(
    cloud: UserCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = user_cloud.token()
    token["catalog"] = [each for each in token["catalog"] if each["type"] != "acstor"]
    monkeypatch.setattr(user_cloud, "token", lambda: token)
    absent = (exceptions.SDKException, keystone_exceptions.EndpointNotFound)
    with pytest.raises(absent, match="acstor"):
        service.attach(connected(cloud)).get_usage()


@pytest.mark.parametrize("body", [b"", b"[]", b"no json"])
def test_an_answer_that_is_no_object_is_told(acstor: Proxy, api: ContractApi, body: bytes) -> None:
    api.scripted["GET", "/v1/usage"] = [Answer(200, body)]
    with pytest.raises(exceptions.InvalidResponse, match="no JSON object"):
        acstor.get_usage()


def test_a_task_is_found_behind_its_location(acstor: Proxy, api: ContractApi) -> None:
    location = f"{URL}/acstor/v1/tasks/7a5b0002-c1d2-4e3f-8a9b-0c1d2e3f4a5b"
    api.scripted["PUT", f"/v1/versions/{V1}/image"] = [Answer(202, {}, {"Location": location})]
    assert acstor.create_version_image(V1).outcome["image_id"]
    api.scripted["PUT", f"/v1/versions/{V1}/image"] = [Answer(202, {})]
    with pytest.raises(exceptions.InvalidResponse, match="names no task"):
        acstor.create_version_image(V1)


def test_a_difference_comes_in_pages(acstor: Proxy) -> None:
    diff = acstor.diff_versions(V1, V2)
    assert (diff.changed_bytes, diff.extents) == (196608, ((1048576, 65536), (4194304, 131072)))


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("http://cloud.example/acstor/v1/versions?limit=1", "/versions?limit=1"),
        ("https://other.example/v1/versions/x/diff?a=b%26c", "/versions/x/diff?a=b%26c"),
        ("/v1/versions", "/versions"),
        ("/versions?marker=1", "/versions?marker=1"),
    ],
)
def test_links_are_followed_at_the_endpoint_of_the_catalogue(link: str, path: str) -> None:
    assert _below_version(link) == path


def test_a_group_is_the_versions_of_one_moment(acstor: Proxy) -> None:
    group = acstor.version_group(GROUP)
    assert [each.id for each in group.versions] == [V1]
    assert (group.is_restorable, group.unique_bytes) == (True, 104857600)
    assert next(each.id for each in grouped(acstor.versions())) == GROUP
    with pytest.raises(exceptions.NotFoundException):
        acstor.find_version("no-such")


def test_a_version_in_use_is_condemned(acstor: Proxy) -> None:
    assert acstor.delete_version(V1)
    assert not acstor.delete_version(V2)


def test_locks_are_taken_and_given_back(acstor: Proxy, api: ContractApi) -> None:
    assert acstor.lock_version(V1, "ransomware").id == V1
    assert acstor.unlock_version(V1).id == V1
    acstor.delete_version_image(V1)
    assert (api.requests[-1].method, api.requests[-1].path) == (
        "DELETE",
        f"/v1/versions/{V1}/image",
    )


def test_restores_are_shown(acstor: Proxy) -> None:
    (restore,) = acstor.restores()
    assert "by a rebuild" in str(acstor.get_restore(restore).reason)


def test_files_of_a_version_are_shown(acstor: Proxy) -> None:
    assert [each.is_readable for each in acstor.partitions(V1)] == [True, False]
    assert [each.kind for each in acstor.browse_files(V1, "/etc")] == [
        "file", "directory", "file", "link",
    ]  # fmt: skip
    assert [(each.path, each.change) for each in acstor.diff_files(V1, V2)] == [
        ("/etc/hosts", "changed"),
        ("/etc/motd", "removed"),
        ("/root/.ssh", "added"),
    ]


def test_weights_are_pinned(acstor: Proxy) -> None:
    assert [each.weight for each in acstor.pins()] == [0.5]
    assert acstor.create_pin(host="cmp-2", weight=0.5).host == "cmp-2"
    acstor.delete_pin("cmp-2")


def test_the_live_state_is_asked_for_by_what_is_known(acstor: Proxy, api: ContractApi) -> None:
    first = acstor.get_live_state()
    assert first.etag == f'"{first.cursor}"'
    assert acstor.get_live_state(first) is first, "nothing new"
    assert isinstance(first, LiveState)


def test_volumes_and_images_are_listed(acstor: Proxy) -> None:
    assert [each.name for each in acstor.volumes()] == ["data"]
    assert [each.coverage["hosts_whole"] for each in acstor.images()] == [12]


def test_who_has_a_disk_looked_into_waits_for_as_long_as_that_may_take(
    acstor: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []
    send = requests.Session.send

    def watched(*args: Any, **kwargs: Any) -> requests.Response:
        waits.append(kwargs["timeout"])
        return send(*args, **kwargs)

    next(acstor.versions())
    monkeypatch.setattr("requests.Session.send", watched)
    acstor.partitions(V1)
    list(acstor.browse_files(V1, "/etc"))
    list(acstor.diff_files(V1, V2))
    assert len(waits) >= 3
    assert min(waits) > version_browsing.COMPARE_SECONDS


def test_an_archive_that_breaks_off_is_told(acstor: Proxy, api: ContractApi) -> None:
    answer = Answer(200, b"123", {"Content-Length": "6"})
    api.scripted["GET", f"/v1/versions/{V1}/files/archive"] = [answer]
    with pytest.raises(exception.DownloadFailed, match=r"broke off after \d bytes"):
        acstor.save_archive(V1, "/x", io.BytesIO())


def test_an_archive_without_its_end_is_told(acstor: Proxy, api: ContractApi) -> None:
    # A server or proxy that speaks HTTP/1.0 ends what broke off as what is whole.
    api.scripted["GET", f"/v1/versions/{V1}/files/archive"] = [Answer(200, bytes(512))]
    with pytest.raises(exception.DownloadFailed, match="broke off after 512 bytes"):
        acstor.save_archive(V1, "/x", io.BytesIO())

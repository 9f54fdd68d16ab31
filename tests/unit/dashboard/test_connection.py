"""Connection of a page to the API: one call, short patience, failures in words."""

import json
from typing import Any

import pytest
import requests
from django.test import RequestFactory, override_settings
from horizon import exceptions
from keystoneauth1 import token_endpoint

from acstor_dashboard import connection, failures, marker_pages
from acstor_dashboard.failures import Kind
from acstor_dashboard.marker_pages import Place
from acstorclient.v1.version import Version
from tests.unit.dashboard.site import Site


@pytest.fixture
def request_of_user(site: Site) -> Any:
    """A request of a member."""
    request = RequestFactory().get("/")
    request.user = site.user(request)
    return request


def test_a_page_is_one_call(site: Site, request_of_user: Any) -> None:
    site.setting.add_version(name="before")
    api = connection.connect(request_of_user)
    page = marker_pages.fetch(api, Version, Place(None, False, 20), {})
    assert [each.name for each in page.items] == ["before"]
    assert [call.path for call in site.take_calls()] == ["/v1/versions"]
    assert connection.connect(request_of_user) is api


def test_pages_go_on_and_back(site: Site, request_of_user: Any) -> None:
    names = [f"v{number}" for number in range(5)]
    for name in names:
        site.setting.clock.now = site.setting.later(seconds=1)
        site.setting.add_version(name=name, created_at=site.setting.clock.now)
    api = connection.connect(request_of_user)

    def page(marker: str | None, is_backwards: bool = False) -> Any:
        return marker_pages.fetch(api, Version, Place(marker, is_backwards, 2), {})

    first = page(None)
    assert ([each.name for each in first.items], first.previous) == (["v4", "v3"], None)
    second = page(first.following)
    assert [each.name for each in second.items] == ["v2", "v1"]
    third = page(second.following)
    assert ([each.name for each in third.items], third.following) == (["v0"], None)
    back = page(third.previous, is_backwards=True)
    assert [each.name for each in back.items] == ["v2", "v1"]
    begin = page(back.previous, is_backwards=True)
    assert [each.name for each in begin.items] == ["v4", "v3"]
    assert [each.name for each in page(begin.following).items] == ["v2", "v1"]
    assert len(site.take_calls()) == 6


def test_a_list_goes_on_where_its_marker_was_deleted(site: Site, request_of_user: Any) -> None:
    for number in range(3):
        site.setting.clock.now = site.setting.later(seconds=1)
        site.setting.add_version(name=f"v{number}", created_at=site.setting.clock.now)
    api = connection.connect(request_of_user)
    first = marker_pages.fetch(api, Version, Place(None, False, 1), {})
    api.delete_version(first.items[0])
    following = marker_pages.fetch(api, Version, Place(first.following, False, 1), {})
    assert [each.name for each in following.items] == ["v1"]


def failure_of(request: Any) -> failures.Failure:
    """Return the failure of a list."""
    with pytest.raises(failures.API_ERRORS) as caught:
        marker_pages.fetch(connection.connect(request), Version, Place(None, False, 20), {})
    return failures.explain(caught.value)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (requests.exceptions.ConnectionError("refused"), Kind.DOWN, "cannot be reached"),
        (requests.exceptions.ReadTimeout("late"), Kind.SLOW, "waited for 8 seconds"),
        (requests.exceptions.ConnectTimeout("late"), Kind.SLOW, "Nothing was changed"),
        (requests.exceptions.SSLError("self-signed"), Kind.DOWN, "cannot be reached"),
    ],
)
def test_an_api_that_does_not_answer_is_asked_once(
    site: Site, request_of_user: Any, error: Exception, kind: Kind, words: str
) -> None:
    site.api.error = error
    failure = failure_of(request_of_user)
    assert failure.kind is kind
    assert words in failure.text()
    assert len(site.take_calls()) == 1


def test_change_that_is_not_answered_may_have_begun(site: Site, request_of_user: Any) -> None:
    site.api.error = requests.exceptions.ReadTimeout("late")
    with pytest.raises(failures.API_ERRORS) as caught:
        connection.connect(request_of_user).lock_version("v", "r")
    assert "look at the tasks" in failures.explain(caught.value).text()
    assert len(site.take_calls()) == 1


def body(status: int, code: str = "") -> bytes:
    """Return an error as the API answers it."""
    error = {"title": "t", "detail": "The <b> is bad", "code": code, "hint": "do", "status": status}
    return json.dumps({"errors": [error]}).encode()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        ("400 Bad Request", "acstor.query.invalid", Kind.INVALID),
        ("403 Forbidden", "acstor.forbidden", Kind.FORBIDDEN),
        ("404 Not Found", "acstor.version.not_found", Kind.GONE),
        ("404 Not Found", "acstor.path.not_found", Kind.OTHER_RELEASE),
        ("409 Conflict", "acstor.version.locked", Kind.CONFLICT),
        ("429 Too Many Requests", "acstor.busy", Kind.LIMITED),
        ("500 Internal Server Error", "acstor.internal", Kind.BROKEN),
        ("501 Not Implemented", "acstor.unsupported", Kind.OTHER_RELEASE),
        ("503 Service Unavailable", "acstor.unavailable", Kind.BUSY),
    ],
)
def test_an_answer_of_an_error_has_the_apis_words(
    site: Site, request_of_user: Any, status: str, code: str, kind: Kind
) -> None:
    site.api.answer = (status, body(int(status[:3]), code))
    failure = failure_of(request_of_user)
    assert (failure.kind, failure.advice) == (kind, "do")
    assert failure.detail == f"The <b> is bad ({code})"
    assert len(site.take_calls()) == 1


@pytest.mark.parametrize("status", ["502 Bad Gateway", "504 Gateway Timeout"])
def test_a_proxy_before_the_api_may_answer(site: Site, request_of_user: Any, status: str) -> None:
    site.api.answer = (status, b"<html>")
    assert failure_of(request_of_user).kind in (Kind.DOWN, Kind.SLOW)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"versions": 1}', b"{}"])
def test_an_answer_that_is_none_breaks_nothing(
    site: Site, request_of_user: Any, content: bytes
) -> None:
    site.api.answer = ("200 OK", content)
    assert failure_of(request_of_user).kind is Kind.BROKEN


def test_a_token_that_is_over_leads_to_the_login(site: Site, request_of_user: Any) -> None:
    site.api.answer = ("401 Unauthorized", body(401))
    with pytest.raises(exceptions.NotAuthenticated):
        failure_of(request_of_user)


def test_a_region_without_the_service_is_told(site: Site) -> None:
    site.services = ["identity"]
    request = RequestFactory().get("/")
    request.user = site.user(request)
    assert failure_of(request).kind is Kind.ABSENT


def old_api(low: str, high: str) -> Any:
    """Return an API that serves other microversions."""

    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"].endswith("/versions"):
            asked = environ["HTTP_OPENSTACK_API_VERSION"].split()[-1]
            if asked == high:
                start_response("200 OK", [("Content-Type", "application/json")])
                return [b'{"versions": [], "links": []}']
            start_response("406 Not Acceptable", [("Content-Type", "application/json")])
            return [body(406, "acstor.microversion.unsupported")]
        start_response("200 OK", [("Content-Type", "application/json")])
        link = {"rel": "self", "href": "http://cloud.example/acstor/v1/"}
        shown = {"id": "v1", "status": "CURRENT", "min_version": low, "version": high}
        return [json.dumps({"version": {**shown, "links": [link]}}).encode()]

    return answer


def test_an_api_of_a_release_too_far_away_is_told(
    site: Site, request_of_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "api", old_api("1.8", "1.9"))
    failure = failure_of(request_of_user)
    assert failure.kind is Kind.OTHER_RELEASE
    assert "1.8" in failure.detail


def test_an_older_api_is_asked_for_what_it_has(
    site: Site, request_of_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acstorclient.microversion.MAXIMUM", "1.3")
    monkeypatch.setattr(site, "api", old_api("1.0", "1.2"))
    for _ in range(2):
        api = connection.connect(request_of_user)
        assert marker_pages.fetch(api, Version, Place(None, False, 20), {}).items == []
    assert connection._agreed == {"http://cloud.example/acstor/v1": "1.2"}


@pytest.mark.parametrize(
    ("changed", "verify"),
    [
        ({}, True),
        ({"OPENSTACK_SSL_CACERT": "/etc/ca.pem"}, "/etc/ca.pem"),
        ({"OPENSTACK_SSL_NO_VERIFY": True}, False),
    ],
)
def test_authorities_are_those_of_horizon(changed: dict[str, Any], verify: object) -> None:
    with override_settings(**changed, ACSTOR_API_TIMEOUT_SECONDS=2):
        session = connection.new_session(token_endpoint.Token("http://a.example", "t"))
    assert (session.verify, session.timeout) == (verify, 2.0)

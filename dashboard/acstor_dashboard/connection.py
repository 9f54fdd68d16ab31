"""Connection to the API for the time of one request to Horizon."""

from typing import Any

import requests
from django import http
from django.conf import settings
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1 import session as keystone_session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack_dashboard.api import base

from acstorclient import exception, microversion, service
from acstorclient.v1.proxy import IDEMPOTENCY_KEY, Proxy

TIMEOUT_SECONDS = 8.0
"""Longest time without a byte of an answer: one that hangs takes a thread of Horizon's.

Horizon's setting ``ACSTOR_API_TIMEOUT_SECONDS`` replaces it.
"""
LOOK_SECONDS = 50.0
"""The same where the API looks into a disk before it answers: two minutes at most.

Web servers and balancers before Horizon often give up after one. The API bounds how many look at a
time, and so how many of Horizon's threads wait. Horizon's setting
``ACSTOR_BROWSE_TIMEOUT_SECONDS`` replaces it.
"""
NOT_ACCEPTABLE = 406
"""Status of an API that does not serve a microversion."""

_agreed: dict[str, str] = {}
"""Microversions that APIs wanted in place of the newest, by their endpoint."""


class SlowAnswer(keystone_exceptions.ConnectTimeout):
    """An answer that did not come in time.

    :ivar seconds: that were waited.
    :ivar is_read: whether nothing can have begun.
    """

    def __init__(self, message: str, seconds: float, *, is_read: bool) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.is_read = is_read


class PageProxy(Proxy):
    """API with short patience: somebody waits for the page, and tries again.

    Differs from the client's: nothing is repeated, and the newest microversion is asked for without
    a look at the version document. The document is read where the API refuses that.

    :ivar idempotency_key: of the one POST that a form makes; None: a new one for each.
    """

    idempotency_key: str | None = None

    def request(
        self,
        url: str,
        method: str,
        error_message: str | None = None,
        raise_exc: bool = False,
        connect_retries: int | None = None,
        global_request_id: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> requests.Response:
        """Send a request once.

        :raises ApiError: the answer is 400 or above.
        :raises SlowAnswer: there is none in time.
        :raises keystoneauth1.exceptions.ConnectFailure: there is none.
        :raises NoMicroversion: the API is of a release too far from the client's.
        """
        endpoint = str(self.endpoint_override)
        wanted = {**kwargs, "status_code_retries": 0}
        wanted.setdefault("timeout", timeout_seconds())
        headers = dict(wanted.get("headers") or {})
        if self.idempotency_key and IDEMPOTENCY_KEY in headers:
            wanted["headers"] = {**headers, IDEMPOTENCY_KEY: self.idempotency_key}
        wanted["microversion"] = _agreed.get(endpoint, microversion.MAXIMUM)
        options = (error_message, raise_exc, 0, global_request_id)
        try:
            return super().request(url, method, *options, *args, **wanted)
        except keystone_exceptions.ConnectTimeout as late:
            raise SlowAnswer(str(late), wanted["timeout"], is_read=method == "GET") from late
        except exception.ApiError as refused:
            if refused.status_code != NOT_ACCEPTABLE:
                raise
        wanted["microversion"] = _agreed[endpoint] = microversion.negotiate(self)
        return super().request(url, method, *options, *args, **wanted)


def timeout_seconds() -> float:
    """Return the longest time without a byte of an answer."""
    return float(getattr(settings, "ACSTOR_API_TIMEOUT_SECONDS", TIMEOUT_SECONDS))


def look_seconds() -> float:
    """Return the same where the API looks into a disk."""
    return float(getattr(settings, "ACSTOR_BROWSE_TIMEOUT_SECONDS", LOOK_SECONDS))


def connect(request: http.HttpRequest) -> PageProxy:
    """Return the API as the user's token sees it; the same one during a request.

    :raises ServiceCatalogException: the user's region has none.
    """
    found = request.__dict__.get("_acstor_api")
    if not isinstance(found, PageProxy):
        found = request.__dict__["_acstor_api"] = _open(request)
    return found


def _open(request: Any) -> PageProxy:
    endpoint = base.url_for(request, service.SERVICE_TYPE).rstrip("/")
    if not endpoint.endswith("/v1"):
        endpoint = f"{endpoint}/v1"
    session = new_session(token_endpoint.Token(endpoint, request.user.token.id))
    owner = connection.Connection(session=session)
    api = PageProxy(session=session, service_type=service.SERVICE_TYPE, endpoint_override=endpoint)
    api._connection = owner  # openstacksdk's session has a weak reference only
    return api


def new_session(auth: token_endpoint.Token) -> keystone_session.Session:
    """Return a session that trusts the authorities of Horizon's settings."""
    authorities = settings.OPENSTACK_SSL_CACERT or True
    verify = False if settings.OPENSTACK_SSL_NO_VERIFY else authorities
    return keystone_session.Session(auth=auth, verify=verify, timeout=timeout_seconds())

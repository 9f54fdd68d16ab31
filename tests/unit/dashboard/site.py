"""A user's browser at Horizon, and the API behind it, in one process."""

import datetime
import types
from typing import Any

import requests
from django.test import Client
from keystoneauth1 import session as keystone_session
from keystoneauth1 import token_endpoint
from openstack_auth import user

from acstor_dashboard.connection import timeout_seconds
from testbed.fixtures.wsgi_transport import WsgiTransport
from tests.unit.dashboard.trusting_api import ROLES, Api, Call

URL = "http://cloud.example/acstor"


class Site:
    """Horizon, where a user of the API's project is logged in."""

    def __init__(self) -> None:
        self.api = Api()
        self.setting = self.api.setting
        self.browser = Client()
        self.services = ["acstor", "compute", "volumev3", "identity"]
        self.token_id = "a-token"
        self.ids: dict[str, str] = {}

    def new_session(self, auth: token_endpoint.Token) -> keystone_session.Session:
        """Return a session whose network is the API."""
        transport = requests.Session()
        transport.mount("http://", WsgiTransport(self.api))
        return keystone_session.Session(auth=auth, session=transport, timeout=timeout_seconds())

    def user(self, request: object) -> user.User:
        """Return the user of a request, as the token says it."""
        del request
        expires = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
        token = types.SimpleNamespace(
            id=self.token_id,
            expires=expires,
            unscoped_token=None,
            project={"id": self.setting.project, "name": "web", "domain_id": "default"},
            domain={"id": None, "name": None},
        )
        project = self.setting.project
        tenant = types.SimpleNamespace(id=project, name="web", enabled=True, domain_id="default")
        found = user.User(
            id="alice",
            token=token,
            user="alice",
            user_domain_id="default",
            user_domain_name="Default",
            tenant_id=project,
            tenant_name="web",
            project_id=project,
            project_name="web",
            service_catalog=[_service(each) for each in self.services],
            services_region="RegionOne",
            roles=[{"name": role} for role in ROLES[self.api.role]],
            enabled=True,
            authorized_tenants=[tenant],
            endpoint="http://localhost/identity/v3",
        )
        found._is_system_user = False
        return found

    def get(self, path: str, /, *, is_ajax: bool = False, **query: str) -> Any:
        """Return a page."""
        headers = {"X-Requested-With": "XMLHttpRequest"} if is_ajax else {}
        return self.browser.get(path, query, headers=headers)

    def post(self, path: str, **fields: Any) -> Any:
        """Send a form."""
        return self.browser.post(path, fields)

    def take_calls(self) -> list[Call]:
        """Return the requests to the API since the last time."""
        calls, self.api.calls[:] = list(self.api.calls), []
        return calls


def _service(kind: str) -> dict[str, Any]:
    endpoint = {
        "interface": "public",
        "region": "RegionOne",
        "region_id": "RegionOne",
        "url": URL if kind == "acstor" else f"http://{kind}.example",
    }
    return {"type": kind, "name": kind, "endpoints": [endpoint]}


def text_of(response: Any) -> str:
    """Return the body of a page."""
    return str(response.content.decode())

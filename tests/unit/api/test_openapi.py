"""The API against its own OpenAPI document."""

from typing import Any

import hypothesis
import schemathesis

from acstor.api import application, openapi
from acstor.api.operations import OPERATION
from acstor.api.routes import METHODS
from tests.unit.api.setting import Setting

EXAMPLES_MAX = 10
"""Requests for each operation."""
ROLES = "admin,manager,member,reader"


def _application() -> tuple[Setting, Any]:
    """Return an API whose document is in front of it, as in production."""
    setting = Setting()
    setting.add_version()
    setting.add_schedule()
    setting.add_task()
    documents = application.open_application(setting.routes)

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        is_document = environ["PATH_INFO"] == "/v1/openapi.json"
        return (documents if is_document else setting.app)(environ, start_response)

    return setting, app


SETTING, APP = _application()
schema = schemathesis.openapi.from_wsgi("/v1/openapi.json", APP)


@schema.auth()
class ProjectToken:
    """Headers that auth_token sets of an administrator's token."""

    def get(self, case: Any, context: Any) -> dict[str, str]:
        """Return the headers."""
        del case, context
        return {"X-User-Id": "u", "X-Project-Id": SETTING.project, "X-Roles": ROLES}

    def set(self, case: Any, data: dict[str, str], context: Any) -> None:
        """Put them into a request."""
        del context
        case.headers = {**(case.headers or {}), **data}


@schema.parametrize()
@hypothesis.settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_answers_are_as_the_document_says(case: Any) -> None:
    # Tokens are before this application. Not all that is refused is a matter of a schema: names of
    # time zones, markers, servers that there are not.
    case.call_and_validate(
        excluded_checks=[
            schemathesis.checks.ignored_auth,
            schemathesis.checks.positive_data_acceptance,
        ]
    )


def test_each_responder_is_an_operation() -> None:
    for route in SETTING.routes:
        for method in METHODS:
            responder = getattr(route.resource, f"on_{method.lower()}", None)
            assert responder is None or hasattr(responder, OPERATION), (route.path, method)


def test_ids_of_operations_are_unique() -> None:
    document = openapi.document(SETTING.routes, (1, 0))
    ids = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(ids) == len(set(ids)) > 25


def test_property_of_a_later_microversion_is_not_there_before() -> None:
    for version, is_there in (((1, 0), False), ((1, 1), True)):
        document = openapi.document(SETTING.routes, version)
        operations = document["paths"]["/v1/restores"]
        body = operations["post"]["requestBody"]["content"]["application/json"]["schema"]
        asked = body["properties"]["restore"]["properties"]
        answer = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        shown = answer["properties"]["restores"]["items"]
        assert ("disks" in asked) == ("restore_nvram" in asked) == is_there
        assert ("version_ids" in shown["properties"]) == is_there
        assert ("version_ids" in shown["required"]) == is_there
        assert "x-since" not in str(document)


def test_operation_of_a_later_microversion_is_not_there_before() -> None:
    document = openapi.document(SETTING.routes, (0, 9))
    assert document["paths"] == {}

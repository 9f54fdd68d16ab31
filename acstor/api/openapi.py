"""OpenAPI document of the API, made of what the operations say of themselves.

OpenAPI 3.1, whose schemas are JSON Schema 2020-12 as ours are; one document for each microversion.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import falcon

from acstor.api import microversions
from acstor.api.microversions import Microversion
from acstor.api.operations import Operation
from acstor.api.routes import Route
from acstor.api.validation import BYTES, MEDIA_BYTES, Schema

PATH = "/openapi.json"
"""Path of the document below ``/v1``."""
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_UUID = re.compile(r"\{([a-z_]+):uuid\}")
_ERRORS = {
    400: "The request is wrong.",
    401: "There is no valid token.",
    403: "A role or quota is missing.",
    404: "There is no such thing, or it is another project's.",
    409: "Its state does not allow that.",
    413: "The body is too long.",
    429: "The project has too many unfinished tasks, or exports too much; try again later.",
    502: "Stored content is damaged.",
    503: "Something that is needed is not there; try again.",
    507: "There is no room.",
}
_TEXT = {"type": "string"}
ERRORS_SCHEMA: Schema = {
    "type": "object",
    "required": ["errors"],
    "properties": {
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["request_id", "code", "status", "title", "detail", "hint", "links"],
                "properties": {
                    "request_id": {"type": ["string", "null"]},
                    "code": _TEXT,
                    "status": {"type": "integer"},
                    "title": _TEXT,
                    "detail": _TEXT,
                    "hint": _TEXT,
                    "links": {"type": "array"},
                    "min_version": _TEXT,
                    "max_version": _TEXT,
                },
            },
        }
    },
}
"""Schema of each error."""


def document(table: Sequence[Route], version: Microversion) -> dict[str, Any]:
    """Return the document of a microversion.

    :param table: all routes of the API.
    """
    paths: dict[str, Any] = {}
    for route in table:
        for method, operation in route.operations():
            if operation.introduced <= version:
                described = _operation(route, method, operation.at(version))
                paths.setdefault(route.path, {})[method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ACStor",
            "summary": "Versions of disks, and the cache of images, of an OpenStack cloud",
            "version": f"{version[0]}.{version[1]}",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Errors": ERRORS_SCHEMA},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
            },
        },
        "security": [{"token": []}],
    }


def _operation(route: Route, method: str, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": f"{method.lower()}:{operation.rule}",
        "summary": operation.summary,
        "description": f"Rule of oslo.policy: ``{operation.rule_name}``.",
        "tags": [operation.rule.partition(":")[0]],
        "parameters": list(_parameters(route, operation)),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameters(route: Route, operation: Operation) -> Iterator[dict[str, Any]]:
    ids = set(_UUID.findall(route.template))
    for name in _PARAMETER.findall(route.path):
        kind = {"type": "string", "format": "uuid"} if name in ids else _TEXT
        yield {"name": name, "in": "path", "required": True, "schema": kind}
    for place, schema in (("query", operation.query), ("header", operation.headers)):
        properties: Mapping[str, Schema] = {} if schema is None else schema["properties"]
        required: list[str] = [] if schema is None else schema.get("required", [])
        for name, each in properties.items():
            parameter = {"name": name, "in": place, "schema": each, "required": name in required}
            if "description" in each:
                parameter["description"] = each["description"]
            yield parameter


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, schema in operation.answers.items():
        responses[str(status)] = {"description": operation.summary}
        if schema is BYTES:
            responses[str(status)]["content"] = {MEDIA_BYTES: {}}
        elif schema is not None:
            responses[str(status)]["content"] = {"application/json": {"schema": schema}}
    errors = {"$ref": "#/components/schemas/Errors"}
    for status, text in _ERRORS.items():
        content = {"application/json": {"schema": errors}}
        responses[str(status)] = {"description": text, "content": content}
    return responses


class Document:
    """The document: ``/v1/openapi.json``; the header says of which microversion."""

    def __init__(self, table: Sequence[Route]) -> None:
        """Keep the routes."""
        self._table = table

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer it."""
        response.append_header("Vary", microversions.HEADER)
        response.media = document(self._table, microversions.wanted(request))

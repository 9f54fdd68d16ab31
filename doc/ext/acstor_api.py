"""Reference of the API, from what its operations say of themselves: ``.. acstor-api::``.

The same decorators make the OpenAPI document that the API serves.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from acstor.api import assembly, openapi, policies

VERSION = (1, 0)
"""Microversion that the page is of: the newest."""


def rst() -> Iterator[str]:
    """Yield the lines of the page."""
    document = openapi.document(assembly.documented_routes(), VERSION)
    yield from _overview(document["paths"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)


def _overview(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 50 34 16", "")
    yield from ("   * - Operation", "     - Effect", "     - Role")
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"   * - ``{method.upper()} {path}``"
            yield f"     - {operation['summary']}."
            yield f"     - {policies.role_of(_rule(operation))}"
    yield ""


def _rule(operation: Mapping[str, Any]) -> str:
    return f"acstor:{operation['operationId'].partition(':')[2]}"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from (f".. rubric:: {method} {path}", "")
    rule = _rule(operation)
    yield f"{operation['summary']}. Rule ``{rule}``, role {policies.role_of(rule)}."
    yield ""
    query = [each for each in operation["parameters"] if each["in"] == "query"]
    if query:
        names = ", ".join(f"``{each['name']}``" for each in query)
        yield from (f"Query: {names}.", "")
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        yield from _schema("Body", content["schema"])
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            yield from _answer(status, answer.get("content"))


def _answer(status: str, content: Mapping[str, Any] | None) -> Iterator[str]:
    if content is None:
        yield from (f"Answer {status}, without a body.", "")
    elif "application/json" in content:
        yield from _schema(f"Answer {status}", content["application/json"]["schema"])
    else:
        yield from (f"Answer {status}: bytes, ``{next(iter(content))}``.", "")


def _schema(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{title}:", "", ".. code-block:: text", "")
    yield from (f"   {line}" for line in _sketch(schema).splitlines())
    yield ""


def _sketch(schema: Mapping[str, Any]) -> str:
    """Return a schema as people read it: an object with a word for each value."""
    return json.dumps(_plain(schema), indent=2, ensure_ascii=False)


def _plain(schema: Mapping[str, Any]) -> Any:
    if "properties" in schema:
        required = schema.get("required", [])
        return {
            name if name in required else f"{name} (optional)": _plain(each)
            for name, each in schema["properties"].items()
        }
    if "anyOf" in schema:
        parts = [_plain(each) for each in schema["anyOf"]]
        plain = [part for part in parts if part != "null"]
        return f"{plain[0]} or null" if isinstance(plain[0], str) else plain[0]
    if schema.get("type") == "array":
        return [_plain(schema.get("items", {}))]
    if "oneOf" in schema:
        ways = [_plain(each) for each in schema["oneOf"]]
        return " or ".join(way if isinstance(way, str) else json.dumps(way) for way in ways)
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("format") or schema.get("type") or "any")


class ApiReference(SphinxDirective):
    """The reference."""

    def run(self) -> list[nodes.Node]:
        """Return the page."""
        container = nodes.Element()
        lines = StringList(list(rst()), source="acstor/api")
        self.state.nested_parse(lines, self.content_offset, container)
        return list(container.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("acstor-api", ApiReference)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

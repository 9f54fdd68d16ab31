"""ACStor's API as its contract has it: each request has the answer of one example.

The examples are in ``tests/contract/v1``; the API's own tests can hold its answers against them.
"""

import copy
import dataclasses
import json
import pathlib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

CONTRACT = pathlib.Path(__file__).parents[2] / "tests" / "contract" / "v1"
"""Folder of the examples, a file for each resource."""
PREFIX = "/acstor"
"""Path below which the API of the double is."""

PAGING = {"limit", "marker", "sort_key", "sort_dir", "all_projects", "project_id"}
"""Names that the query of any list may have."""

Query = Mapping[str, list[str]]
StartResponse = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Example:
    """One request and its answer.

    ``query`` and ``body`` of the request are what distinguishes it: a query may have more.
    """

    resource: str
    name: str
    request: Mapping[str, Any]
    response: Mapping[str, Any]

    @property
    def query(self) -> dict[str, list[str]]:
        """Query of the request; each name has a list of values."""
        given = self.request.get("query", {})
        return {key: value if isinstance(value, list) else [value] for key, value in given.items()}

    def accepts(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> bool:
        """Return whether it is an example of such a request, its body aside."""
        return (
            (self.request["method"], self.request["path"]) == (method, path)
            and all(query.get(name) == value for name, value in self.query.items())
            and all(
                headers.get(name) == value
                for name, value in self.request.get("headers", {}).items()
            )
        )


@dataclasses.dataclass
class Request:
    """A request that came."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclasses.dataclass
class Answer:
    """An answer; a body that is no bytes is sent as JSON."""

    status: int
    body: Any = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


def load_examples() -> list[Example]:
    """Return all examples, in the order of the files' names."""
    return [
        Example(path.stem, each["name"], each["request"], each["response"])
        for path in sorted(CONTRACT.glob("*.json"))
        for each in json.loads(path.read_text())["examples"]
    ]


def load_filters() -> dict[str, set[str]]:
    """Return the names that the queries of lists may have, by path."""
    return {
        path: PAGING | set(names)
        for file in sorted(CONTRACT.glob("*.json"))
        for path, names in json.loads(file.read_text()).get("filters", {}).items()
    }


class ContractApi:
    """WSGI application that answers by the contract.

    What tests need otherwise they put into ``scripted``: answers of a method and path, each given
    once, before the contract is looked at.
    """

    def __init__(self) -> None:
        self.examples = load_examples()
        self.filters = load_filters()
        self.requests: list[Request] = []
        self.scripted: dict[tuple[str, str], list[Answer]] = {}

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer."""
        request = read_request(environ)
        self.requests.append(request)
        return send(self.answer(request), request.method, start_response)

    def answer(self, request: Request) -> Answer:
        """Return the answer of a request."""
        if planned := self.scripted.get((request.method, request.path)):
            return planned.pop(0)
        fitting = list(self._fitting(request))
        if not fitting:
            return _unlike(404, f"{request.method} {request.path} {request.query}")
        same = [each for each in fitting if each.request.get("body") == request.body]
        if not same:
            wanted = [each.request.get("body") for each in fitting]
            return _unlike(400, f"{request.body} is none of {wanted}")
        known = {name for each in same for name in each.query}
        if unknown := request.query.keys() - known - self.filters.get(request.path, set()):
            return _unlike(400, f"{request.path} has no {unknown}")
        example = max(
            same, key=lambda each: (len(each.query), len(each.request.get("headers", {})))
        )
        response = copy.deepcopy(dict(example.response))
        body = response.get("body")
        if "text" in response:
            body = response["text"].encode()
        if "zeros" in response:
            body = bytes(response["zeros"])
        return _ranged(Answer(response["status"], body, dict(response.get("headers", {}))), request)

    def _fitting(self, request: Request) -> Iterator[Example]:
        for each in self.examples:
            if each.accepts(request.method, request.path, request.query, request.headers):
                yield each


def read_request(environ: Mapping[str, Any]) -> Request:
    """Return a request of WSGI."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    content = environ["wsgi.input"].read(length)
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").title(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    return Request(
        environ["REQUEST_METHOD"],
        environ["PATH_INFO"],
        urllib.parse.parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True),
        headers,
        json.loads(content) if content else None,
    )


def send(answer: Answer, method: str, start_response: StartResponse) -> Iterable[bytes]:
    """Send an answer."""
    headers = {"Content-Type": "application/json", **answer.headers}
    if answer.body is None:
        content = b""
    elif isinstance(answer.body, bytes):
        content = answer.body
    else:
        content = json.dumps(answer.body).encode()
    start_response(f"{answer.status} Answer", list(headers.items()))
    return [] if method == "HEAD" else [content]


def _ranged(answer: Answer, request: Request) -> Answer:
    """Return the end of a content where that is asked for."""
    asked = request.headers.get("Range")
    is_same = request.headers.get("If-Range") == answer.headers.get("ETag")
    if not asked or not is_same or not isinstance(answer.body, bytes):
        return answer
    begin = int(asked.removeprefix("bytes=").removesuffix("-"))
    rest = answer.body[begin:]
    return Answer(206, rest, {**answer.headers, "Content-Length": str(len(rest))})


def _unlike(status: int, detail: str) -> Answer:
    error = {
        "request_id": "req-00000000-0000-4000-8000-000000000000",
        "code": "double.unlike_contract",
        "status": status,
        "title": "Unlike the contract",
        "detail": f"No example of the contract: {detail}",
        "hint": "add one to tests/contract/v1",
        "links": [],
    }
    return Answer(status, {"errors": [error]})

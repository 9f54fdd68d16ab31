"""Operations: methods of resources with the rule, the schemas and the statuses of each.

A decorator says all of it once: requests are checked against it, tests check answers against it,
and the OpenAPI document is made of it.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import falcon

from acstor import exception, untrusted_json
from acstor.api import microversions, validation
from acstor.api.authorization import Authorizer
from acstor.api.caller import Caller
from acstor.api.errors import ApiError
from acstor.api.microversions import Microversion
from acstor.api.schemas import since
from acstor.api.validation import BYTES, Schema

BODY_BYTES_MAX = 64 << 10
"""Longest body of a request, bytes: more is not read."""
OPERATION = "operation"
"""Attribute of a responder."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """Method of a resource."""

    rule: str
    """Rule of oslo.policy, without the service."""
    summary: str
    answers: Mapping[int, Schema | None]
    """Schema of the body by status; None: there is no body."""
    query: Schema | None = None
    body: Schema | None = None
    headers: Schema | None = None
    """Headers of the request that matter, for the document."""
    introduced: Microversion = (1, 0)
    """First microversion that has it."""

    def at(self, version: Microversion) -> "Operation":
        """Return it with its schemas as a microversion has them."""
        answers = {
            status: schema if schema is None or schema is BYTES else since.at(schema, version)
            for status, schema in self.answers.items()
        }
        query = None if self.query is None else since.at(self.query, version)
        body = None if self.body is None else since.at(self.body, version)
        return dataclasses.replace(self, answers=answers, query=query, body=body)

    @property
    def rule_name(self) -> str:
        """Name of the rule, with the service."""
        return f"acstor:{self.rule}"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Request that is allowed, and checked against the schemas."""

    caller: Caller
    is_admin: bool
    path: Mapping[str, str]
    """Parts of the path; ids in their canonical form."""
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    request: falcon.Request
    microversion: Microversion

    @property
    def scope(self) -> str | None:
        """Project whose things are found; None: all, for an administrator."""
        return None if self.is_admin else self.caller.project

    @property
    def is_conditional_on(self) -> str:
        """Value of ``If-None-Match``; empty where there is none."""
        found: str = self.request.get_header("If-None-Match") or ""
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an operation."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stream: Iterable[bytes] | None = None
    """Body that is no JSON; closed when it was sent, or nobody takes it any more."""


class Resource(Protocol):
    """Resource with operations."""

    @property
    def gate(self) -> "Gate":
        """Gate that its calls come through."""


class Gate:
    """Checks of each call before an operation runs, and of answers in tests.

    :param checks_answers: whether an answer that is unlike its schema is a fault: in tests only.
    """

    def __init__(self, authorizer: Authorizer, *, checks_answers: bool = False) -> None:
        """Keep the rules."""
        self._authorizer = authorizer
        self.checks_answers = checks_answers

    def admit(
        self, operation: Operation, request: falcon.Request, path: Mapping[str, object]
    ) -> Call:
        """Return the call that a request is.

        :raises ForbiddenError: when the caller may not do that.
        :raises ApiError: when query or body are not as the schemas have them.
        """
        microversion: Microversion = request.context.microversion
        if microversion < operation.introduced:
            raise falcon.HTTPNotFound
        caller = Caller.of(request)
        self._authorizer.require(caller, operation.rule_name)
        wanted = operation.at(microversion)
        query = validation.query_of(request.params, wanted.query)
        body = {} if wanted.body is None else _read_body(request, wanted.body)
        return Call(
            caller=caller,
            is_admin=self._authorizer.is_admin(caller),
            path={name: str(value) for name, value in path.items()},
            query=query,
            body=body,
            request=request,
            microversion=microversion,
        )

    def send(
        self,
        operation: Operation,
        answer: Answer,
        response: falcon.Response,
        version: Microversion = microversions.NEWEST,
    ) -> None:
        """Put an answer of a microversion into a response."""
        if self.checks_answers:
            _check_answer(operation.at(version), answer)
        response.status = answer.status
        for name, value in answer.headers.items():
            response.set_header(name, value)
        if answer.body is not None:
            response.media = answer.body
        if answer.stream is not None:
            response.stream = answer.stream


R = TypeVar("R", bound=Resource)


def operation(
    rule: str,
    summary: str,
    answers: Mapping[int, Schema | None],
    *,
    query: Schema | None = None,
    body: Schema | None = None,
    headers: Schema | None = None,
) -> Callable[[Callable[[R, Call], Answer]], Callable[..., None]]:
    """Make a responder of falcon of a method that takes a call and returns an answer."""
    described = Operation(rule, summary, answers, query, body, headers)

    def decorate(method: Callable[[R, Call], Answer]) -> Callable[..., None]:
        @functools.wraps(method)
        def respond(
            self: R, request: falcon.Request, response: falcon.Response, **path: object
        ) -> None:
            call = self.gate.admit(described, request, path)
            self.gate.send(described, method(self, call), response, call.microversion)

        setattr(respond, OPERATION, described)
        return respond

    return decorate


def _read_body(request: falcon.Request, schema: Schema) -> Mapping[str, Any]:
    content = request.bounded_stream.read(BODY_BYTES_MAX + 1)
    if len(content) > BODY_BYTES_MAX:
        error = ApiError(
            f"the body is longer than {BODY_BYTES_MAX} bytes", code="acstor.body.too_large"
        )
        error.status = 413
        raise error
    try:
        found = untrusted_json.load(content, "the body")
    except ValueError as error:
        raise ApiError(
            f"the body is no JSON: {error}", hint="send a JSON object", code="acstor.body.malformed"
        ) from error
    validation.check(found, schema, "body")
    return found  # type: ignore[no-any-return]


def _check_answer(operation: Operation, answer: Answer) -> None:
    """Refuse an answer that the document does not have.

    :raises InternalError: saying what is wrong.
    """
    if answer.status not in operation.answers:
        raise exception.InternalError(f"{operation.rule} has no answer {answer.status}")
    schema = operation.answers[answer.status]
    is_stream = schema is BYTES
    if (schema is None or is_stream) != (answer.body is None):
        raise exception.InternalError(f"{operation.rule} has a body, or has none")
    if is_stream != (answer.stream is not None):
        raise exception.InternalError(f"{operation.rule} has bytes, or has none")
    if schema is not None and not is_stream:
        plain = untrusted_json.load(json.dumps(answer.body), "the answer")
        try:
            validation.check(plain, schema, "answer")
        except ApiError as error:
            raise exception.InternalError(f"{operation.rule}: {error}") from error

"""Errors of the API with their code and hint, and ends of tasks that are none.

Each is an exception of openstacksdk too: who catches those catches these.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import requests
from openstack import exceptions


@dataclasses.dataclass(frozen=True)
class Explanation:
    """An error as the API tells it.

    Source: api-sig, ``guidelines/errors.rst``. Differs: ``hint``, a sentence on what to do.
    """

    title: str
    detail: str = ""
    """A sentence: what failed, on what."""
    code: str = ""
    """Name for programs, ``acstor.version.not_committed``; it never changes."""
    hint: str = ""
    request_id: str = ""
    """Id by which an operator finds the request."""

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return an error of a body; what is missing or of another type is empty."""
        given = {field.name: body.get(field.name) for field in dataclasses.fields(cls)}
        return cls(
            **{name: value if isinstance(value, str) else "" for name, value in given.items()}
        )

    def text(self) -> str:
        """Return the lines for people: what failed with the code, what to do, the request."""
        first = self.detail or self.title or "The request failed"
        lines = [f"{first} ({self.code})" if self.code else first]
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        if self.request_id:
            lines.append(f"Request: {self.request_id}")
        return "\n".join(lines)


class ApiError(exceptions.HttpException):
    """An answer of 400 or above."""

    def __init__(self, response: requests.Response, explanation: Explanation) -> None:
        super().__init__(
            message=explanation.title or None, response=response, details=explanation.detail or None
        )
        self.explanation = explanation

    @property
    def code(self) -> str:
        """Name for programs; empty where the answer has none."""
        return self.explanation.code

    @property
    def hint(self) -> str:
        """Advice; empty where the answer has none."""
        return self.explanation.hint

    def __str__(self) -> str:
        """Return the lines for people."""
        return self.explanation.text()


class BadRequestError(ApiError, exceptions.BadRequestException):
    """The request is wrong (400)."""


class ForbiddenError(ApiError, exceptions.ForbiddenException):
    """A role or quota is missing (403)."""


class NotFoundError(ApiError, exceptions.NotFoundException):
    """There is no such thing, or it is another project's (404)."""


class ConflictError(ApiError, exceptions.ConflictException):
    """The state of the thing does not allow it (409)."""


_CLASSES: Mapping[int, type[ApiError]] = {
    400: BadRequestError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
}


def from_response(response: requests.Response) -> ApiError:
    """Return the error of an answer of 400 or above, whatever its body is."""
    explanation = _explanation(response)
    if not explanation.request_id:
        request_id = response.headers.get("x-openstack-request-id", "")
        explanation = dataclasses.replace(explanation, request_id=request_id)
    return _CLASSES.get(response.status_code, ApiError)(response, explanation)


def _explanation(response: requests.Response) -> Explanation:
    try:
        body = response.json()
    except ValueError:
        body = None
    match body:
        case {"errors": [dict(first), *_]}:
            return Explanation.from_body(first)
        case {"error": {"message": str(message)}}:  # of a middleware or a proxy before the API
            return Explanation(title=response.reason or "", detail=message)
        case _:
            status = f"{response.status_code} {response.reason or ''}".strip()
            url = response.url or ""
            return Explanation(title=status, detail=f"{url} answered {status}".strip())


class NoMicroversion(exceptions.NotSupported):
    """Client and API have no microversion in common."""


class TaskFailed(exceptions.ResourceFailure):
    """A task ended without what it was for."""

    def __init__(self, task_id: str, kind: str, explanation: Explanation) -> None:
        super().__init__(f"Task {task_id} ({kind}) failed: {explanation.text()}")
        self.explanation = explanation


class TaskCancelled(exceptions.ResourceFailure):
    """A task was cancelled by somebody."""


class TaskTimeout(exceptions.ResourceTimeout):
    """A task goes on after the time that somebody wanted to wait."""


class DownloadFailed(exceptions.SDKException):
    """A body did not come whole, or was another one in the end."""

"""Errors as the API answers them: status, code, hint.

Source: api-sig, ``guidelines/errors.rst``. Differs: each error has a ``hint``, a sentence on what
to do. A code never changes; texts do.
"""

import logging
from collections.abc import Mapping
from typing import Any

import falcon

from acstor import exception
from acstor.exception import ErrorKind

LOG = logging.getLogger(__name__)

STATUS: Mapping[ErrorKind, int] = {
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.INVALID: 400,
    ErrorKind.UNSUPPORTED: 400,
    ErrorKind.FENCED: 409,
    ErrorKind.EXHAUSTED: 507,
    ErrorKind.OVERLOADED: 503,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.CORRUPT: 502,
    ErrorKind.INTERNAL: 500,
}
"""Status of an error that has none of its own."""
TITLES: Mapping[ErrorKind, str] = {
    ErrorKind.NOT_FOUND: "Not found",
    ErrorKind.INVALID: "Invalid request",
    ErrorKind.UNSUPPORTED: "Not supported",
    ErrorKind.FENCED: "Conflict",
    ErrorKind.EXHAUSTED: "No room",
    ErrorKind.OVERLOADED: "Overloaded",
    ErrorKind.UNAVAILABLE: "Not available",
    ErrorKind.CORRUPT: "Damaged content",
    ErrorKind.INTERNAL: "Internal error",
}
"""Titles: the same text for each error of a kind."""
RETRY_SECONDS = 5
"""Seconds after which a client may try again what failed by load or absence."""
_INTERNAL_HINT = "report it with the id of the request; the operator finds it in the log"
_OF_HTTP: Mapping[int, str] = {
    404: "acstor.path.not_found",
    405: "acstor.method.not_allowed",
    413: "acstor.body.too_large",
    416: "acstor.range.not_satisfiable",
}
"""Codes of what the framework refuses."""


class ApiError(exception.AcstorError):
    """Error with a code, and a status that its kind does not say."""

    kind = ErrorKind.INVALID
    default_hint = "correct the request: the reference of the API says what is taken"
    code = "acstor.invalid"
    status: int | None = None
    title: str | None = None

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        """Keep the code of this one, where it has another than its class."""
        super().__init__(message, hint=hint)
        if code is not None:
            self.code = code


class ForbiddenError(ApiError):
    """The caller has not the role for it."""

    code = "acstor.forbidden"
    status = 403
    title = "Not allowed"
    default_hint = "ask somebody who has the role"


class QuotaError(ApiError):
    """The project has as much as it may have."""

    kind = ErrorKind.EXHAUSTED
    code = "acstor.quota"
    status = 403
    title = "Quota reached"
    default_hint = "delete some, or ask for a higher limit"


class BacklogError(ApiError):
    """The project has as many unfinished tasks as it may have; they pass by themselves."""

    kind = ErrorKind.OVERLOADED
    code = "acstor.tasks.too_many"
    status = 429
    title = "Too many unfinished tasks"
    default_hint = "wait until some have ended, or cancel some: openstack acstor task list"
    retry_seconds = 30


class ExportBacklogError(BacklogError):
    """The project exports as much as it may at a time; that passes by itself."""

    code = "acstor.quota.export_mib"
    title = "Too much is being exported"
    default_hint = "wait until exports have ended, or cancel some: openstack acstor task list"
    retry_seconds = 60


class UnacceptableVersionError(ApiError):
    """A microversion that this API does not have."""

    kind = ErrorKind.UNSUPPORTED
    code = "acstor.microversion.unacceptable"
    status = 406
    title = "No such microversion"
    default_hint = "ask for one of the range, or for 'latest'"

    def __init__(self, message: str, lowest: str, highest: str) -> None:
        """Keep the range that there is."""
        super().__init__(message)
        self.extra = {"min_version": lowest, "max_version": highest}


class LockedError(ApiError):
    """A version that is locked."""

    kind = ErrorKind.FENCED
    code = "acstor.version.locked"
    title = "The version is locked"
    default_hint = "a manager unlocks it: openstack acstor version unlock"


def not_found(kind: str, name: object, *, hint: str | None = None) -> exception.NotFoundError:
    """Return the error of a thing that is not there, or is another project's: both are the same.

    :param kind: one word, of which the code is made.
    """
    error = exception.NotFoundError(f"there is no {kind} {name}", hint=hint)
    error.code = f"acstor.{kind}.not_found"  # type: ignore[attr-defined]
    return error


def status_of(error: exception.AcstorError) -> int:
    """Return the status of an error."""
    own = getattr(error, "status", None)
    return STATUS[error.kind] if own is None else int(own)


def code_of(error: exception.AcstorError) -> str:
    """Return the code of an error: its own, or that of its kind."""
    return str(getattr(error, "code", None) or f"acstor.{error.kind.value}")


def document(error: exception.AcstorError, request_id: str | None) -> dict[str, Any]:
    """Return the body of an answer."""
    is_ours = error.kind is ErrorKind.INTERNAL
    return {
        "errors": [
            {
                "request_id": request_id,
                "code": code_of(error),
                "status": status_of(error),
                "title": getattr(error, "title", None) or TITLES[error.kind],
                "detail": "a fault of ACStor" if is_ours else error.message,
                "hint": _INTERNAL_HINT if is_ours else error.hint,
                "links": [],
                **getattr(error, "extra", {}),
            }
        ]
    }


def install(app: "falcon.App[Any, Any]") -> None:
    """Have an application answer every error as a document."""
    app.add_error_handler(Exception, _answer_fault)
    app.add_error_handler(exception.AcstorError, _answer)
    app.add_error_handler(falcon.HTTPError, _answer_http)


def _answer(
    request: falcon.Request, response: falcon.Response, error: Exception, params: Any
) -> None:
    del params
    assert isinstance(error, exception.AcstorError)
    if error.kind in (ErrorKind.INTERNAL, ErrorKind.CORRUPT):
        LOG.error("%s %s: %s", request.method, request.path, error, exc_info=error)
    request_id = request.env.get("openstack.request_id")
    response.status = status_of(error)
    response.media = document(error, request_id)
    response.content_type = falcon.MEDIA_JSON
    if response.status in (429, 503):
        response.retry_after = getattr(error, "retry_seconds", RETRY_SECONDS)


def _answer_fault(
    request: falcon.Request, response: falcon.Response, error: Exception, params: Any
) -> None:
    LOG.exception("%s %s failed", request.method, request.path, exc_info=error)
    _answer(request, response, exception.InternalError(type(error).__name__), params)


def _answer_http(
    request: falcon.Request, response: falcon.Response, error: Exception, params: Any
) -> None:
    """Answer what the framework refuses: an unknown path or method, a body that is no JSON."""
    assert isinstance(error, falcon.HTTPError)
    status = error.status_code
    found = ApiError(
        error.description or f"{request.method} {request.path}: {error.title}",
        hint="see the reference of the API",
        code=_OF_HTTP.get(status, "acstor.invalid"),
    )
    found.status, found.title = status, error.title
    _answer(request, response, found, params)
    if error.headers is not None:
        response.set_headers(error.headers)

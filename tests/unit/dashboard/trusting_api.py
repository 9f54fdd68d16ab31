"""The API behind a middleware that believes everybody."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from acstor.api import application
from tests.unit.api.setting import Setting

ROLES = {
    "reader": ("reader",),
    "member": ("member", "reader"),
    "manager": ("manager", "member", "reader"),
    "admin": ("admin", "manager", "member", "reader"),
    "nobody": ("auditor",),
}
"""Roles as Keystone puts them into tokens."""


@dataclasses.dataclass
class Call:
    """A request to the API."""

    method: str
    path: str
    query: str


class Api:
    """The API behind a middleware that believes everybody.

    :ivar calls: requests to it.
    :ivar error: raised by the transport in place of an answer.
    :ivar answer: status and body in place of the API's own.
    """

    def __init__(self) -> None:
        self.setting = Setting()
        self.role = "member"
        self.calls: list[Call] = []
        self.error: Exception | None = None
        self.answer: tuple[str, bytes] | None = None
        self._open = application.open_application(self.setting.routes)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer."""
        path = environ["PATH_INFO"].removeprefix("/acstor")
        environ = {**environ, "SCRIPT_NAME": "/acstor", "PATH_INFO": path}
        self.calls.append(Call(environ["REQUEST_METHOD"], path, environ["QUERY_STRING"]))
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            start_response(self.answer[0], [("Content-Type", "application/json")])
            return [self.answer[1]]
        if path.rstrip("/") in ("", "/v1"):
            return self._ask(self._open, environ, start_response)
        assert environ["HTTP_X_AUTH_TOKEN"] == "a-token"
        caller = {
            "HTTP_X_PROJECT_ID": self.setting.project,
            "HTTP_X_USER_ID": "alice",
            "HTTP_X_ROLES": ",".join(ROLES[self.role]),
        }
        return self._ask(self.setting.app, {**environ, **caller}, start_response)

    @staticmethod
    def _ask(
        app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        return app(environ, start)

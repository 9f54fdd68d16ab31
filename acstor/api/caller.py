"""Caller of a request: who asks, for which project, with which roles, as Keystone says."""

import dataclasses
from typing import Any

import falcon
from oslo_context import context

from acstor.api.errors import ApiError, ForbiddenError

TOKEN_AUTH = "keystone.token_auth"  # noqa: S105 - a key of the WSGI environment
"""Key under which keystonemiddleware leaves what asks other services in the user's name."""


@dataclasses.dataclass(frozen=True)
class Caller:
    """Caller of one request."""

    context: context.RequestContext
    """As oslo.policy and oslo.log take it."""
    project: str
    """Project of the token."""
    token_auth: Any = None
    """Plug-in of keystoneauth with the caller's token; None in tests without Keystone."""

    @property
    def user(self) -> str | None:
        """Id of the user."""
        found: str | None = self.context.user_id
        return found

    @property
    def request_id(self) -> str:
        """Id of the request."""
        return str(self.context.request_id)

    @classmethod
    def of(cls, request: falcon.Request) -> "Caller":
        """Return the caller of a request that keystonemiddleware has let pass.

        :raises ApiError: 401 without user, 403 when the token is not of a project: of the system
            or of a domain.
        """
        found = context.RequestContext.from_environ(request.env)
        if not found.user_id:
            error = ApiError("nobody asks", hint="send a token", code="acstor.unauthorized")
            error.status, error.title = 401, "Unauthorized"
            raise error
        if found.system_scope or not found.project_id:
            raise ForbiddenError(
                "the token is not of a project",
                hint="take one of a project; an administrator has the role admin in any",
                code="acstor.forbidden.scope",
            )
        return cls(found, found.project_id, request.env.get(TOKEN_AUTH))

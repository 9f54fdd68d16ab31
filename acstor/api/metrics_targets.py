"""Targets of Prometheus: ``/prometheus/targets``, for ``http_sd_configs``.

Prometheus has no token of Keystone; it sends a secret that the operator has given to both. It keeps
the list that it has while it gets an error, so an error is answered where members cannot be read,
never an empty list.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Any

import falcon

from acstor.api import errors
from acstor.api.errors import ApiError
from acstor.cluster.member import Member

PATH = "/prometheus/targets"


class MetricsTargets:
    """Resource of falcon.

    :param members: returns the hosts that are alive.
    :param token: secret; empty: there is no such resource.
    """

    def __init__(self, members: Callable[[], Mapping[str, Member]], token: str) -> None:
        """Keep whom to ask."""
        self._members = members
        self._token = token.encode()

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer all targets."""
        if not self._token:
            raise falcon.HTTPNotFound
        sent = (request.get_header("Authorization") or "").removeprefix("Bearer ")
        if not hmac.compare_digest(sent.encode(), self._token):
            error = ApiError(
                "the secret is not that of [api] metrics_targets_token",
                hint="set authorization credentials of http_sd_configs",
                code="acstor.unauthorized",
            )
            error.status, error.title = 401, "Unauthorized"
            raise error
        response.media = [
            {
                "targets": [member.metrics_address],
                "labels": {"acstor_host": name, "acstor_topology": member.topology},
            }
            for name, member in sorted(self._members().items())
        ]


def application(members: Callable[[], Mapping[str, Member]], token: str) -> Any:
    """Return the application that answers at :data:`PATH`."""
    app: Any = falcon.App()
    app.add_route(PATH, MetricsTargets(members, token))
    errors.install(app)
    return app

"""Routes: the paths of the API, with the resource behind each."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import falcon

from acstor.api.operations import OPERATION, Operation, Resource

PREFIX = "/v1"
"""Path of the major version."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""Methods that an operation may have."""
_CONVERTER = re.compile(r":[a-z]+\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """A path, and what answers there."""

    template: str
    """As falcon has it, below :data:`PREFIX`: ``/versions/{version_id:uuid}``."""
    resource: Resource | Callable[..., Resource]
    """Resource that answers; for documents its class will do."""

    @property
    def path(self) -> str:
        """Path as documents have it: ``/v1/versions/{version_id}``."""
        return PREFIX + _CONVERTER.sub("}", self.template)

    def operations(self) -> Iterator[tuple[str, Operation]]:
        """Yield the operations by method."""
        for method in METHODS:
            responder = getattr(self.resource, f"on_{method.lower()}", None)
            described = getattr(responder, OPERATION, None)
            if described is not None:
                yield method, described


def add(app: "falcon.App[Any, Any]", routes: Sequence[Route]) -> None:
    """Add routes to an application."""
    for route in routes:
        app.add_route(PREFIX + route.template, route.resource)

"""Microversions: which answers a client wants.

Source: api-sig, ``guidelines/microversion_specification.rst``. A client that asks for none gets the
oldest; each answer says which one it is of.
"""

import falcon
import microversion_parse

from acstor.api.errors import ApiError, UnacceptableVersionError

SERVICE_TYPE = "acstor"
"""Type of the service in Keystone's catalogue, and in the header."""
VERSIONS = ("1.0", "1.1")
"""All microversions, the oldest first; the reference says of each what it changed."""
MINIMUM, MAXIMUM = VERSIONS[0], VERSIONS[-1]
HEADER = "OpenStack-API-Version"

Microversion = tuple[int, int]
"""Major and minor number."""


def parse(text: str) -> Microversion:
    """Return the numbers of a microversion of :data:`VERSIONS`."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


NEWEST = parse(MAXIMUM)
"""Numbers of the newest."""


def wanted(request: falcon.Request) -> Microversion:
    """Return the microversion that a request asks for.

    :raises ApiError: 400 when it is malformed, 406 when there is no such one.
    """
    try:
        headers = microversion_parse.headers_from_wsgi_environ(request.env)
        found = microversion_parse.extract_version(headers, SERVICE_TYPE, VERSIONS)
    except TypeError as error:
        raise ApiError(
            f"the header {HEADER} is malformed",
            hint=f"write it as '{HEADER}: {SERVICE_TYPE} {MAXIMUM}'",
            code="acstor.microversion.malformed",
        ) from error
    except ValueError as error:
        raise UnacceptableVersionError(
            f"this API has microversions {MINIMUM} to {MAXIMUM}", MINIMUM, MAXIMUM
        ) from error
    return found.major, found.minor


class Microversions:
    """Middleware of falcon: reads the header, and answers it."""

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        """Note the microversion that is asked for."""
        del response
        request.context.microversion = wanted(request)

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: object,
        req_succeeded: bool,
    ) -> None:
        """Say of which microversion the answer is."""
        del resource, req_succeeded
        response.append_header("Vary", HEADER)
        found = getattr(request.context, "microversion", None)
        if found is not None:
            response.set_header(HEADER, f"{SERVICE_TYPE} {found[0]}.{found[1]}")

"""Version documents: which versions of the API there are, for clients that negotiate."""

from typing import Any

import falcon

from acstor.api import microversions

ID = "v1"
"""Id of the only major version."""


def version_document(root: str) -> dict[str, Any]:
    """Return the document of version 1.

    :param root: URL of the API, without a slash at its end.
    """
    return {
        "id": ID,
        "status": "CURRENT",
        "version": microversions.MAXIMUM,
        "min_version": microversions.MINIMUM,
        "links": [{"rel": "self", "href": f"{root}/{ID}/"}],
    }


class Versions:
    """All versions: ``/``."""

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer the list."""
        response.status = 300
        response.media = {"versions": [version_document(request.prefix)]}


class VersionOne:
    """Version 1: ``/v1/``."""

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer the version."""
        response.media = {"version": version_document(request.prefix)}

"""Requests of servers for versions, out of all places that may say so."""

from collections.abc import Callable, Mapping

from acstor.versions.database.opening import Stores
from acstor.versions.database.project_settings import ProjectDefaults
from acstor.versions.lifecycle.requested_versions import place_of, requested

ImageProperties = Callable[[str], Mapping[str, str]]
"""Returns the properties of an image, none where there is no such image."""


class ServerRequests:
    """Requests of servers.

    :param properties_of: asked for the image where neither server nor flavor says all.
    """

    def __init__(self, stores: Stores, properties_of: ImageProperties) -> None:
        """Keep what to ask."""
        self._stores = stores
        self._properties_of = properties_of

    def of(
        self,
        server: str,
        project: str,
        metadata: Mapping[str, str],
        flavor_specs: Mapping[str, str],
        image: str | None,
    ) -> ProjectDefaults:
        """Return the events at which versions of a server are asked for, and the policy for them.

        :raises UnavailableError: when database or Glance cannot be reached.
        """
        places = [
            place_of(f"metadata of server {server}", metadata),
            place_of(f"flavor of server {server}", flavor_specs),
        ]
        says_all = all(
            any(getattr(place, name) is not None for place in places)
            for name in ("version_on", "version_keep")
        )
        if image is not None and not says_all:
            places.append(place_of(f"image {image}", self._properties_of(image), is_image=True))
        return requested(places, self._stores.defaults.get(project))

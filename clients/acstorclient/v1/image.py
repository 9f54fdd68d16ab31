"""Images as the hosts have them, and their preloads."""

from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource


class Image(Resource):
    """An image of Glance that the user sees there, and where it is cached."""

    resource_key = "image"
    resources_key = "images"
    base_path = "/images"
    allow_fetch = True
    allow_list = True
    _query_mapping = resource.QueryParameters("name")

    state: str = resource.Body("state")
    coverage: dict[str, int] = resource.Body("coverage")
    """``hosts`` of the cloud, ``hosts_whole`` with all chunks of it."""
    size_bytes: int | None = resource.Body("size_bytes")


class Preload(Resource):
    """An image on its way to hosts before anybody boots it."""

    resource_key = "preload"
    resources_key = "preloads"
    base_path = "/images/%(image_id)s/preloads"
    allow_list = True
    allow_delete = True

    image_id: str = resource.URI("image_id")
    hosts: Any = resource.Body("hosts")
    """Names, or ``all``."""
    rate_mib: int | None = resource.Body("rate_mib")
    """Limit of each host, MiB/s."""
    state: str = resource.Body("state")
    progress: float | None = resource.Body("progress")
    """Part that is done, 0 to 1."""
    created_at: str | None = resource.Body("created_at")

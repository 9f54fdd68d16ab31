"""Hosts of the cluster, for administrators."""

from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource


class Host(Resource):
    """A compute host; its name is its id."""

    resource_key = "host"
    resources_key = "hosts"
    base_path = "/hosts"
    allow_fetch = True
    allow_list = True
    allow_commit = True
    _query_mapping = resource.QueryParameters("name", "state", include_pagination_defaults=False)

    name: str = resource.Body("name", alternate_id=True)
    state: str = resource.Body("state")
    is_draining: bool = resource.Body("draining")
    """Gives its share of the ring away and takes no new work."""
    store: dict[str, Any] | None = resource.Body("store")
    """``capacity_bytes`` of the chunk store."""
    topology: str = resource.Body("topology")
    """Place in the data centre."""
    release: str | None = resource.Body("release")
    seen_at: str | None = resource.Body("seen_at")

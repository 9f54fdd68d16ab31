"""Members of an origin that is in several stores, for administrators."""

from openstack import resource

from acstorclient.v1.base import Resource


class OriginMember(Resource):
    """A store of the origin; its name is its id."""

    resource_key = "origin_member"
    resources_key = "origin_members"
    base_path = "/origin/members"
    allow_fetch = True
    allow_list = True
    allow_commit = True

    name: str = resource.Body("name", alternate_id=True)
    state: str = resource.Body("state")
    """``joining``, ``active``, ``draining``, ``failed`` or ``removed``."""
    is_home: bool = resource.Body("home")
    """Has the refs, and the logs of volumes."""
    is_draining: bool = resource.Body("draining")
    """Gets nothing new; what it alone has is copied away."""
    is_reachable: bool | None = resource.Body("reachable")
    owed_bytes: int | None = resource.Body("owed_bytes")
    """Bytes of images that it shall have and lacks."""
    sole_bytes: int | None = resource.Body("sole_bytes")
    """Bytes of images that would be lost with it."""
    refs_behind: int | None = resource.Body("refs_behind")
    refs_age_seconds: int | None = resource.Body("refs_age_seconds")
    """Age of its copies of the refs."""
    problem: str = resource.Body("problem")
    seen_at: str | None = resource.Body("seen_at")
    """Time at which the registrar that leads looked last."""

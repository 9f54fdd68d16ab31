"""Images as Glance shows them to the caller, and how far the hosts have them."""

from collections.abc import Mapping
from typing import Any

from acstor.api import paging
from acstor.api.cluster.host_watch import HeardState
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import images as schemas
from acstor.api.user_services import Kind, SeenThing
from acstor.repository import layout

PAGE_MAX = 100
"""Most images of one page: for each a ref is read."""


class _OfImages(BackedResource):
    """Resource of images."""

    def _fields(self, image: SeenThing, heard: Mapping[str, HeardState]) -> dict[str, Any]:
        """Return an image.

        ``hosts_whole`` are hosts that have all of what boots of it read, and said so lately.
        """
        refs = self._backends.open_versions().repository.origin
        is_ready = refs.get_ref(layout.image_ref(image.id)) is not None
        whole = sum(one.state.coverage.get(image.id, 0.0) >= 1.0 for one in heard.values())
        return {
            "id": image.id,
            "name": image.name,
            "state": "ready" if is_ready else "absent",
            "coverage": {"hosts": len(heard), "hosts_whole": whole},
            "size_bytes": image.size_bytes,
        }


class Images(_OfImages):
    """Images: ``/v1/images``."""

    @operation("images:list", "List images", {200: schemas.LISTED}, query=schemas.QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer a page, in the order of Glance."""
        limit = min(call.query.get("limit", PAGE_MAX), PAGE_MAX)
        found = self._backends.user_services.page(
            call.caller, Kind.IMAGE, limit, call.query.get("marker"), call.query.get("name")
        )
        heard = self._backends.deployment.states()
        links = paging.links_after(call, found[-1].id) if len(found) == limit else []
        return Answer({"images": [self._fields(each, heard) for each in found], "links": links})


class OneImage(_OfImages):
    """One image: ``/v1/images/<id>``."""

    @operation("images:show", "Show an image", {200: schemas.SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the image."""
        image_id = call.path["image_id"]
        found = self._backends.user_services.find(call.caller, Kind.IMAGE, image_id)
        if found is None:
            raise not_found("image", image_id, hint="list what there is: openstack image list")
        return Answer({"image": self._fields(found, self._backends.deployment.states())})

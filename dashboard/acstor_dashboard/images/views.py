"""Lists and pages of images."""

from typing import Any

from django import urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from acstor_dashboard import marker_pages, wording
from acstor_dashboard.images import tables
from acstor_dashboard.marker_pages import Page, Place
from acstor_dashboard.views import MarkerListView, PageView
from acstorclient.v1.image import Image, Preload
from acstorclient.v1.task import ENDS

PRELOADS_SHOWN = 20
"""Preloads of an image that its page shows, the newest."""
REFRESH_SECONDS = 3
"""Distance of the looks at preloads that have not ended, while the page is seen."""


class IndexView(MarkerListView):
    """Images of the cloud, in the order of Glance, which has no way back."""

    table_class = tables.ImageTable
    page_title = gettext_lazy("Cached Images")
    rules = ("images:list", "preloads:list")
    kind = Image
    sort_dir = None

    def query(self) -> dict[str, Any]:
        """Return the user's filter."""
        name = self.table.get_filter_string().strip()
        return {"name": name} if name else {}


class DetailView(PageView):
    """An image, where it is, and its preloads."""

    template_name = "acstor_dashboard/images/detail.html"
    page_title = gettext_lazy("Cached Image {{ image.name|default:image.id }}")
    rules = ("images:show", "preloads:list")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: two calls of the API."""
        image_id = str(self.kwargs["image"])
        image = self.ask(lambda api: api.get_image(image_id), None)
        if image is None:
            context = super().get_context_data(**kwargs)
            return {**context, "page_title": str(_("Cached Image"))}
        path, place = f"/images/{image_id}/preloads", Place(None, False, PRELOADS_SHOWN)
        page = self.ask(
            lambda api: marker_pages.fetch(api, Preload, place, {}, path=path), Page[Preload](())
        )
        preload = tables.Preload()
        is_moving = any(each.state not in ENDS for each in page.items)
        return {
            **super().get_context_data(**kwargs),
            "image": image,
            "facts": _facts(image),
            "preloads": [self._preload(image_id, each) for each in page.items],
            "refresh_seconds": REFRESH_SECONDS if is_moving else None,
            "preload_url": preload.get_link_url(image)
            if preload.allowed(self.request, image)
            else "",
        }

    def _preload(self, image_id: str, preload: Preload) -> dict[str, Any]:
        may_stop = preload.state not in ENDS and self.has_right("preloads:delete")
        hosts = preload.hosts
        return {
            "time": wording.moment(preload.created_at),
            "state": wording.word(wording.TASK_STATES, preload.state),
            "percent": round((preload.progress or 0) * 100),
            "hosts": _("All") if hosts == "all" else ", ".join(hosts or ()),
            "rate": wording.UNKNOWN
            if preload.rate_mib is None
            else wording.rate(preload.rate_mib << 20),
            "stop_url": urls.reverse(
                f"{tables.PANEL}:stop", kwargs={"image": image_id, "preload": preload.id}
            )
            if may_stop
            else "",
        }


def _facts(image: Image) -> list[dict[str, object]]:
    facts = [
        (_("ID"), image.id),
        (_("State"), wording.word(tables.STATES, image.state)),
        (_("Whole on hosts"), tables.coverage_of(image)),
        (_("Size"), wording.size(image.size_bytes)),
    ]
    return [{"name": name, "value": value} for name, value in facts]

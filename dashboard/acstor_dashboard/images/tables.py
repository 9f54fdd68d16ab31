"""Table of images."""

from typing import Any

from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import tables

from acstor_dashboard import wording
from acstor_dashboard.tables import ItemLink, MarkerTable

PANEL = "horizon:admin:acstor_images"
"""Namespace of the panel's URLs."""
STATES = {"ready": _("Served by ACStor"), "absent": _("Not served by ACStor")}
"""States of images."""


class Preload(ItemLink):
    """Bring an image to hosts."""

    name = "preload"
    verbose_name = _("Preload")
    url = f"{PANEL}:preload"
    classes = ("ajax-modal",)
    rules = ("preloads:create",)
    key = "image"

    def is_sensible(self, datum: Any) -> bool:
        """Return whether ACStor has it."""
        return bool(datum.state == "ready")


class ImageFilter(tables.FilterAction):
    """Filter that the API applies to all pages."""

    filter_type = "server"
    filter_choices = (("name", _("Name ="), True),)


class ImageTable(MarkerTable):
    """Images, and how many hosts have all of what boots of them."""

    name = tables.Column(
        lambda image: image.name or image.id,
        verbose_name=_("Name"),
        link=lambda image: url_of(image.id, "detail"),
        sortable=False,
    )
    state = tables.Column(
        lambda image: wording.word(STATES, image.state), verbose_name=_("State"), sortable=False
    )
    coverage = tables.Column(
        lambda image: coverage_of(image), verbose_name=_("Whole on Hosts"), sortable=False
    )
    size = tables.Column(
        lambda image: wording.size(image.size_bytes), verbose_name=_("Size"), sortable=False
    )

    class Meta:
        """Options of the table."""

        name = "images"
        verbose_name = _("Cached Images")
        multi_select = False
        table_actions = (ImageFilter,)
        row_actions = (Preload,)

    def get_object_display(self, datum: Any) -> str:
        """Return what an image is called."""
        return str(datum.name or datum.id)


def coverage_of(image: Any) -> str:
    """Return the words for where an image is."""
    found = image.coverage or {}
    values = {"whole": found.get("hosts_whole", 0), "hosts": found.get("hosts", 0)}
    return str(_("%(whole)d of %(hosts)d")) % values


def url_of(image_id: str, name: str) -> str:
    """Return the URL of a page of an image."""
    return str(urls.reverse(f"{PANEL}:{name}", kwargs={"image": image_id}))

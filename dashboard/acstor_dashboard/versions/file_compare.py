"""Comparison of two versions of a disk by their files."""

import dataclasses
from typing import Any

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.versions import file_rows, files
from acstor_dashboard.versions.compare import CompareView
from acstor_dashboard.versions.file_rows import Place, Rights
from acstorclient.v1.version import Version


class CompareFilesView(CompareView):
    """Choice of a second version, then the files that differ.

    :ivar place: partition and path that the form names, once they are known.
    """

    place: dict[str, str]

    template_name = "acstor_dashboard/versions/compare_files.html"
    page_title = _("Compare Files of Versions")
    rules = ("versions:file_diff", "versions:show")
    other = ("compare", _("Compare by Extents"), "versions:diff")

    def difference(self, version: Version, against: str) -> dict[str, Any] | None:
        """Return a page of the files that differ; None: the page says why there is none."""
        query = self.request.GET
        place = Place.of(version.id, query)
        self.place = {"partition": place.partition, "path": place.path or "/"}
        marker = query.get("marker", "")
        found = self.ask(lambda api: files.fetch_changes(api, place, against, marker), None)
        if found is None:
            return None
        rights = Rights.of(self.request)
        before = dataclasses.replace(place, version_id=against)
        more = {"against": against}
        return {
            "rows": [file_rows.change_row(each, place, before, rights) for each in found.files],
            "is_behind": bool(marker),
            "first_url": place.url("compare_files", **more),
            "next_url": place.url("compare_files", **more, marker=found.following)
            if found.following
            else "",
        }

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context, with the place that the form names."""
        self.place = {}
        context = super().get_context_data(**kwargs)
        return {**context, **self.place}

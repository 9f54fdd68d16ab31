"""Comparison of two versions of a disk."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from django import urls
from django.utils.translation import gettext_lazy as _
from openstack import exceptions

from acstor_dashboard import marker_pages, wording
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.versions.tables import PANEL, detail_url
from acstor_dashboard.views import PageView
from acstorclient.v1.base import is_uuid
from acstorclient.v1.version import Version

EXTENTS_MAX = 200
"""Most extents of one page."""
CHOICES_MAX = 100
"""Most versions to compare with that the page offers, the newest."""
WIDTH = 1000
"""Width of the picture, its own units."""


@dataclasses.dataclass(frozen=True)
class Stripe:
    """Part of the disk that differs, in the picture's units."""

    x: int
    width: int


@dataclasses.dataclass(frozen=True)
class Diff:
    """Difference of two versions: bytes of all of it, its first extents."""

    changed_bytes: int
    extents: list[tuple[int, int]]
    """Offset and length, bytes, ascending."""
    has_more: bool


def fetch(api: PageProxy, version_id: str, against: str, limit: int) -> Diff:
    """Return a difference, by one call.

    :param limit: most extents.
    :raises openstack.exceptions.InvalidResponse: the answer is none.
    """
    query = {"against": against, "limit": limit}
    body = marker_pages.body_of(api.get(f"/versions/{version_id}/diff", params=query))
    match body.get("diff"):
        case {"changed_bytes": int(changed), "extents": list(extents)}:
            parts = [(int(offset), int(length)) for offset, length in extents]
            return Diff(changed, parts, bool(body.get("links")))
    raise exceptions.InvalidResponse(f"The difference of {version_id} is none")


def stripes(extents: Sequence[tuple[int, int]], size_bytes: int) -> list[Stripe]:
    """Return extents as stripes of a picture of the disk; those that touch are one.

    :param extents: offset and length, bytes, ascending.
    """
    found: list[Stripe] = []
    for offset, length in extents:
        begin = min(offset * WIDTH // max(size_bytes, 1), WIDTH - 1)
        end = min(max(-(-(offset + length) * WIDTH // max(size_bytes, 1)), begin + 1), WIDTH)
        if found and found[-1].x + found[-1].width >= begin:
            before = found.pop()
            begin = before.x
            end = max(end, before.x + before.width)
        found.append(Stripe(begin, end - begin))
    return found


class CompareView(PageView):
    """Choice of a second version, then the parts of the disk that differ.

    :cvar other: page that compares in another way: name of its URL, words, rule.
    """

    template_name = "acstor_dashboard/versions/compare.html"
    page_title = _("Compare Versions")
    rules = ("versions:diff", "versions:show")
    other: ClassVar[tuple[str, object, str]] = (
        "compare_files",
        _("Compare by Files"),
        "versions:file_diff",
    )

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: two calls of the API."""
        version_id, against = str(self.kwargs["version"]), self.request.GET.get("against", "")
        version = self.ask(lambda api: api.get_version(version_id), None)
        more: dict[str, Any] = {"version": version}
        if version is not None:
            more["version_url"] = detail_url(version)
            more["version_time"] = wording.moment(version.created_at)
            if is_uuid(against):
                more["against"] = against
                more["diff"] = self.difference(version, against)
            else:
                more["choices"] = self._choices(version)
            more["other"] = self._other(version, more.get("against"))
        return {**super().get_context_data(**kwargs), **more}

    def _other(self, version: Version, against: str | None) -> dict[str, str] | None:
        """Return words and URL of the other page; None: the user may not see it."""
        page, text, rule = self.other
        if not self.has_right(rule):
            return None
        url = urls.reverse(f"{PANEL}:{page}", kwargs={"version": version.id})
        return {"text": str(text), "url": f"{url}?against={against}" if against else url}

    def difference(self, version: Version, against: str) -> dict[str, Any] | None:
        """Return the difference as the page shows it; None: the page says why there is none."""
        found = self.ask(lambda api: fetch(api, version.id, against, EXTENTS_MAX), None)
        if found is None:
            return None
        return {
            "changed": wording.size(found.changed_bytes),
            "extents": [
                {"offset": offset, "length": length, "size": wording.size(length)}
                for offset, length in found.extents
            ],
            "stripes": stripes(found.extents, version.size_bytes or 0),
            "width": WIDTH,
            "has_more": found.has_more,
        }

    def _choices(self, version: Version) -> list[dict[str, str]]:
        owner = {"server_id": version.server_id, "volume_id": version.volume_id}
        query = {name: value for name, value in owner.items() if value}
        if version.disk:
            query["disk"] = f"eq:{version.disk}"
        place = marker_pages.Place(None, False, CHOICES_MAX)
        page = self.ask(
            lambda api: marker_pages.fetch(api, Version, place, query),
            marker_pages.Page[Version](()),
        )
        return [
            {"id": each.id, "text": f"{wording.moment(each.created_at)} {each.name or each.id}"}
            for each in page.items
            if each.id != version.id
        ]

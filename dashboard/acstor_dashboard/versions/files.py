"""Files of a version: partitions, and what is in their directories."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _
from openstack import exceptions

from acstor_dashboard import connection, marker_pages
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.versions import file_rows
from acstor_dashboard.versions.file_rows import Place, Rights
from acstor_dashboard.versions.tables import detail_url
from acstor_dashboard.views import PageView
from acstorclient.v1.files import FileChange, FileEntry, Partition

FILES_MAX = 200
"""Most files of one page."""
CHANGES_MAX = 500
"""Most differences of one page; each page compares from the beginning."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """A page of a directory.

    :ivar file: the directory; of anything else that alone.
    :ivar following: marker of the next page; None: there is none.
    """

    file: FileEntry
    files: Sequence[FileEntry]
    following: str | None


@dataclasses.dataclass(frozen=True)
class Changes:
    """A page of the differences of two versions by files."""

    files: Sequence[FileChange]
    following: str | None
    """Marker of the next page; None: there is none."""


def fetch_partitions(api: PageProxy, version_id: str) -> list[Partition]:
    """Return the partitions of a version, by one call.

    :raises openstack.exceptions.InvalidResponse: the answer is none; so are those below.
    """
    body = _look(api, f"/versions/{version_id}/partitions", {})
    with _understood("partitions", version_id):
        return [Partition.from_body(each) for each in body["partitions"]]


def fetch_listing(api: PageProxy, place: Place, marker: str) -> Listing:
    """Return a page of a directory, by one call.

    :param marker: name behind which the page begins; empty: the first page.
    """
    query = {**place.query(), "limit": FILES_MAX, **_behind(marker)}
    body = _look(api, f"/versions/{place.version_id}/files", query)
    with _understood("files", place.version_id):
        files = [FileEntry.from_body(each) for each in body["files"]]
        return Listing(FileEntry.from_body(body["file"]), files, marker_pages.marker_of(body))


def fetch_changes(api: PageProxy, place: Place, against: str, marker: str) -> Changes:
    """Return a page of differences below a place, by one call.

    :param against: id of the version that it is compared with.
    :param marker: path behind which the page begins; empty: the first page.
    """
    query = {**place.query(), "against": against, "limit": CHANGES_MAX, **_behind(marker)}
    body = _look(api, f"/versions/{place.version_id}/files/diff", query)
    with _understood("differences", place.version_id):
        files = [FileChange.from_body(each) for each in body["files"]]
        return Changes(files, marker_pages.marker_of(body))


def _look(api: PageProxy, path: str, query: dict[str, Any]) -> dict[str, Any]:
    answer = api.get(path, params=query, timeout=connection.look_seconds())
    return marker_pages.body_of(answer)


def _behind(marker: str) -> dict[str, str]:
    return {"marker": marker} if marker else {}


@contextlib.contextmanager
def _understood(what: str, version_id: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise exceptions.InvalidResponse(
            f"The {what} of {version_id} are not what they should be: {error!r}"
        ) from error


class FilesView(PageView):
    """Partitions of a version, or a directory of one of them."""

    template_name = "acstor_dashboard/versions/files.html"
    page_title = _("Files of Version {{ version.name|default:version.id }}")
    rules = ("versions:partitions", "versions:files", "versions:show")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: two calls of the API."""
        query = self.request.GET
        place = Place.of(self.kwargs["version"], query)
        version = self.ask(lambda api: api.get_version(place.version_id), None)
        more: dict[str, Any] = {"version": version}
        if version is not None:
            more["version_url"] = detail_url(version)
            is_chosen = place.partition or place.path
            shown = self._directory(place) if is_chosen else self._partitions(place.version_id)
            more.update(shown)
        context = {**super().get_context_data(**kwargs), **more}
        return context if version else {**context, "page_title": str(_("Files of a Version"))}

    def _partitions(self, version_id: str) -> dict[str, Any]:
        found = self.ask(lambda api: fetch_partitions(api, version_id), None)
        if found is None:
            return {}
        rows = [file_rows.partition_row(each, version_id) for each in found]
        return {"partitions": rows, "is_partial": not all(each.is_readable for each in found)}

    def _directory(self, place: Place) -> dict[str, Any]:
        marker = self.request.GET.get("marker", "")
        found = self.ask(lambda api: fetch_listing(api, place, marker), None)
        more = {"crumbs": file_rows.crumbs(place), "place_text": place.path or "/"}
        if found is None:
            return more
        rights = Rights.of(self.request)
        rows = [file_rows.file_row(each, place.below(each.name), rights) for each in found.files]
        own = file_rows.file_row(found.file, place, rights)
        is_directory = found.file.kind == "directory"
        return {
            **more,
            "own": own,
            "is_directory": is_directory,
            "files": rows if is_directory else [own],
            "is_behind": bool(marker),
            "first_url": place.url(),
            "next_url": place.url(marker=found.following) if found.following else "",
        }

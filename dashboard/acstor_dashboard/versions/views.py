"""Lists and pages of versions."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django import urls
from django.utils.translation import gettext_lazy as _

from acstor_dashboard import marker_pages, timeline, wording
from acstor_dashboard.tables import actions_of
from acstor_dashboard.versions import compare, tables
from acstor_dashboard.views import MarkerListView, PageView
from acstorclient.v1.version import Version

EXACT = frozenset({"name", "disk"})
"""Filters whose text may look like a comparison and is none."""


class IndexView(MarkerListView):
    """All versions of the project."""

    table_class = tables.VersionTable
    template_name = "acstor_dashboard/versions/index.html"
    page_title = _("Versions")
    rules = ("versions:list",)
    kind = Version

    def query(self) -> dict[str, Any]:
        """Return the user's filter."""
        return self.filters(EXACT)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context, with what the project has of what it may have."""
        context = super().get_context_data(**kwargs)
        if not self.failures and self.has_right("usage:show"):
            found = self.ask(lambda api: api.get_usage(), None)
            context["usage"] = None if found is None else usage_words(found.usage, found.limits)
        return context


def usage_words(usage: Any, limits: Any) -> list[tuple[str, str]]:
    """Return what a project has of what it may have: name and value of each."""
    room, export_room = (_size(limits.get(name, -1)) for name in ("version_mib", "export_mib"))
    return [
        (str(_("Versions")), _of(usage.get("versions"), limits.get("versions", -1))),
        (
            str(_("Held by one version alone")),
            _of(wording.size(usage.get("unique_bytes")), room),
        ),
        (str(_("Shared")), wording.size(usage.get("shared_bytes"))),
        (str(_("Schedules")), _of(usage.get("schedules"), limits.get("schedules", -1))),
        (
            str(_("Being exported")),
            _of(wording.size(usage.get("export_bytes", 0)), export_room),
        ),
    ]


def _size(mib: int) -> object:
    """Return a limit of MiB in words; -1: there is none."""
    return -1 if mib < 0 else wording.size(mib << 20)


def _of(value: object, limit: object) -> str:
    if limit == -1:
        return str(value)
    return str(_("%(value)s of %(limit)s")) % {"value": value, "limit": limit}


class OwnerView(MarkerListView):
    """Timeline of a server or volume, and its versions as a list.

    :cvar field: name of the filter that has the id.
    """

    table_class = tables.OwnerTable
    template_name = "acstor_dashboard/versions/owner.html"
    rules = ("versions:list",)
    kind = Version
    field: ClassVar[str]

    @property
    def owner(self) -> str:
        """Return the id of the server or volume."""
        return str(self.kwargs["owner"])

    def query(self) -> dict[str, Any]:
        """Return the filter; administrators see those of any project."""
        everywhere = {"all_projects": "true"} if self.has_right("admin") else {}
        return {self.field: self.owner, **everywhere}

    def get_data(self) -> list[Any]:
        """Return the rows, and have the form know of what another one is taken."""
        self.get_table().take_query = f"?{self.field}={self.owner}"
        return super().get_data()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context, with the timeline of the newest versions."""
        context = super().get_context_data(**kwargs)
        context["owner"] = self.owner
        context["timeline"] = timeline.draw(self._drawn())
        return context

    def _drawn(self) -> Sequence[timeline.Drawable]:
        """Return the versions of the drawing: the rows where they are all there are."""
        table = self.get_table()
        if self.failures or not (table.has_more_data() or table.has_prev_data()):
            return list(table.data or ())
        place = marker_pages.Place(None, False, timeline.VERSIONS_MAX)
        page = self.ask(
            lambda api: marker_pages.fetch_items(
                api, Version, place, self.query(), timeline.DrawnVersion.of
            ),
            marker_pages.Page[timeline.DrawnVersion](()),
        )
        return page.items


class ServerView(OwnerView):
    """Versions of a server."""

    page_title = _("Versions of Server {{ owner }}")
    field = "server_id"


class VolumeView(OwnerView):
    """Versions of a volume."""

    page_title = _("Versions of Volume {{ owner }}")
    field = "volume_id"


class DetailView(PageView):
    """One version."""

    template_name = "acstor_dashboard/versions/detail.html"
    page_title = _("Version {{ version.name|default:version.id }}")
    rules = ("versions:show",)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: the version, and what changed since the one before."""
        version_id = str(self.kwargs["version"])
        version = self.ask(lambda api: api.get_version(version_id), None)
        changed = self._changed(version)
        context = super().get_context_data(**kwargs)
        if version is None:
            return {**context, "page_title": str(_("Version"))}
        return {
            **context,
            "version": version,
            "facts": facts_of(version, changed),
            "metadata": sorted((version.metadata or {}).items()),
            "actions": actions_of(self.request, version, tables.ACTIONS),
        }

    def _changed(self, version: Version | None) -> int | None:
        """Return the bytes that differ from the version before; None: not known."""
        if version is None or not version.parent_id or not self.has_right("versions:diff"):
            return None
        parent = version.parent_id
        found = self.ask(lambda api: compare.fetch(api, version.id, parent, 1), None)
        if found is None:
            self.failures.clear()  # a page of a version without it is whole enough
            return None
        return found.changed_bytes


def facts_of(version: Version, changed: int | None) -> list[dict[str, object]]:
    """Return what is said of a version: name, value, and URL of each."""
    parent = version.parent_id
    facts = [
        (_("ID"), version.id, None),
        (_("Of"), tables.owner_text(version), tables.owner_url(version)),
        (_("Taken"), wording.moment(version.created_at), None),
        (_("Taken because"), wording.word(wording.TRIGGERS, version.trigger), None),
        (_("State"), wording.word(wording.STATES, version.state), None),
        (_("Can be restored"), _("Yes") if version.is_restorable else _("No"), None),
        (_("Consistency"), wording.word(wording.CONSISTENCIES, version.consistency), None),
        (_("Size of the disk"), wording.size(version.size_bytes), None),
        (_("Changed since the version before"), wording.size(changed), None),
        (_("Held by it alone"), wording.size(version.unique_bytes), None),
        (_("Shared with others"), wording.size(version.shared_bytes), None),
        (_("Version before"), parent or wording.UNKNOWN, _url_of(parent)),
        (_("Moment (group)"), version.group_id or wording.UNKNOWN, None),
        (_("Base image"), version.base_image_id or wording.UNKNOWN, None),
        (_("UEFI variables"), _("Kept") if version.has_nvram else _("None"), None),
        (_("Expires"), wording.moment(version.expires_at), None),
        (_("Lock"), wording.lock(version.lock) or _("None"), None),
    ]
    return [{"name": name, "value": value, "url": url} for name, value, url in facts]


def _url_of(version_id: str | None) -> str | None:
    if not version_id:
        return None
    return str(urls.reverse(f"{tables.PANEL}:detail", kwargs={"version": version_id}))

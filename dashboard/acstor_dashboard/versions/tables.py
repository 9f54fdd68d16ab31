"""Table of versions."""

from typing import Any, ClassVar

from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import tables

from acstor_dashboard import wording
from acstor_dashboard.tables import ItemLink, MarkerTable, PermittedLink
from acstorclient.v1.version import Version

PANEL = "horizon:project:acstor_versions"
"""Namespace of the panel's URLs."""

SNAPSHOT = "snapshot"
"""Trigger of snapshots: Cinder's, and shown only."""


class VersionLink(ItemLink):
    """A link to a page of one version."""

    key = "version"


class Take(PermittedLink):
    """Take a version."""

    name = "take"
    verbose_name = _("Take Version")
    url = f"{PANEL}:take"
    classes: tuple[str, ...] = ("ajax-modal",)
    icon = "camera"
    rules = ("versions:create",)

    def get_link_url(self, datum: Any = None) -> str:
        """Return the URL of the form, with the server or volume that the table is of."""
        del datum
        query = getattr(self.table, "take_query", "")
        return f"{urls.reverse(self.url)}{query}"


class Boot(VersionLink):
    """Boot a version as a new server."""

    name = "boot"
    verbose_name = _("Boot as New Server")
    url = f"{PANEL}:boot"
    classes: tuple[str, ...] = ("ajax-modal",)
    rules: ClassVar[tuple[str, ...]] = ("versions:create_image",)

    def is_sensible(self, datum: Any) -> bool:
        """Return whether its content is there."""
        return bool(datum.is_restorable)


class Restore(Boot):
    """Put a version back in place."""

    name = "restore"
    verbose_name = _("Restore")
    url = f"{PANEL}:restore"
    rules = ("restores:create",)


class Files(Boot):
    """Look into a version."""

    name = "files"
    verbose_name = _("Files")
    url = f"{PANEL}:files"
    classes: tuple[str, ...] = ()
    rules = ("versions:partitions", "versions:files")


class Compare(Boot):
    """Compare a version with another one of the disk."""

    name = "compare"
    verbose_name = _("Compare")
    url = f"{PANEL}:compare"
    classes: tuple[str, ...] = ()
    rules = ("versions:diff",)


class Export(Boot):
    """Make an image of a version that outlives it."""

    name = "export"
    verbose_name = _("Export as Image")
    url = f"{PANEL}:export"
    rules = ("exports:create",)


class Edit(VersionLink):
    """Change name or expiry, but of snapshots, which are Cinder's."""

    name = "edit"
    verbose_name = _("Edit")
    url = f"{PANEL}:edit"
    classes: tuple[str, ...] = ("ajax-modal",)
    rules = ("versions:update",)

    def is_sensible(self, datum: Any) -> bool:
        """Return whether it is a version's own."""
        return bool(datum.trigger != SNAPSHOT)


class Lock(VersionLink):
    """Lock a version."""

    name = "lock"
    verbose_name = _("Lock")
    url = f"{PANEL}:lock"
    classes: tuple[str, ...] = ("ajax-modal",)
    rules = ("versions:lock",)

    def is_sensible(self, datum: Any) -> bool:
        """Return whether it is not locked, and no snapshot."""
        return datum.lock is None and datum.trigger != SNAPSHOT


class Unlock(VersionLink):
    """Unlock a version."""

    name = "unlock"
    verbose_name = _("Unlock")
    url = f"{PANEL}:unlock"
    classes: tuple[str, ...] = ("ajax-modal", "btn-danger")
    rules = ("versions:unlock",)

    def is_sensible(self, datum: Any) -> bool:
        """Return whether it is locked."""
        return datum.lock is not None


class Delete(Lock):
    """Delete a version."""

    name = "delete"
    verbose_name = _("Delete")
    url = f"{PANEL}:delete"
    classes: tuple[str, ...] = ("ajax-modal", "btn-danger")
    action_type = "danger"
    rules = ("versions:delete",)


ACTIONS = (Boot, Restore, Files, Compare, Export, Edit, Lock, Unlock, Delete)
"""Pages of a version, in the order of its menu."""


class VersionFilter(tables.FilterAction):
    """Filter that the API applies to all pages."""

    filter_type = "server"
    filter_choices = (
        ("name", _("Name ="), True),
        ("server_id", _("Server ID ="), True),
        ("volume_id", _("Volume ID ="), True),
        ("disk", _("Disk ="), True),
        ("group_id", _("Moment (group ID) ="), True),
        ("state", _("State ="), True),
        ("trigger", _("Taken because ="), True),
        ("consistency", _("Consistency ="), True),
        ("locked", _("Locked ="), True, _("true or false")),
    )


class VersionTable(MarkerTable):
    """Versions as restore points: of what, from when, how large, how good."""

    created_at = tables.Column(
        lambda version: wording.moment(version.created_at),
        verbose_name=_("Time"),
        link=lambda version: detail_url(version),
        sortable=False,
    )
    name = tables.Column("name", verbose_name=_("Name"), sortable=False)
    owner = tables.Column(
        lambda version: owner_text(version),
        verbose_name=_("Of"),
        link=lambda version: owner_url(version),
        sortable=False,
    )
    size = tables.Column(
        lambda version: wording.size(version.size_bytes), verbose_name=_("Size"), sortable=False
    )
    unique = tables.Column(
        lambda version: wording.size(version.unique_bytes),
        verbose_name=_("Its Own"),
        help_text=_("Stored for this version alone; deleting it frees that."),
        sortable=False,
    )
    shared = tables.Column(
        lambda version: wording.size(version.shared_bytes),
        verbose_name=_("Shared"),
        help_text=_("Stored, and needed by others too; deleting it leaves that."),
        sortable=False,
    )
    trigger = tables.Column(
        lambda version: wording.word(wording.TRIGGERS, version.trigger),
        verbose_name=_("Taken Because"),
        sortable=False,
    )
    consistency = tables.Column(
        lambda version: wording.word(wording.CONSISTENCIES, version.consistency),
        verbose_name=_("Consistency"),
        sortable=False,
    )
    state = tables.Column(
        lambda version: wording.word(wording.STATES, version.state),
        verbose_name=_("State"),
        sortable=False,
    )
    lock = tables.Column(
        lambda version: wording.lock(version.lock), verbose_name=_("Lock"), sortable=False
    )

    class Meta:
        """Options of the table."""

        name = "versions"
        verbose_name = _("Versions")
        multi_select = False
        table_actions = (VersionFilter, Take)
        row_actions = ACTIONS

    def get_object_display(self, datum: Version) -> str:
        """Return what a version is called."""
        return datum.name or datum.id


class OwnerTable(VersionTable):
    """Versions of one server or volume.

    :ivar take_query: query of the form that takes another one.
    """

    take_query: str = ""

    class Meta:
        """Options of the table."""

        name = "versions_of_one"
        verbose_name = _("Versions")
        multi_select = False
        columns = (
            "created_at",
            "name",
            "owner",
            "size",
            "unique",
            "shared",
            "trigger",
            "consistency",
            "state",
            "lock",
        )
        table_actions = (Take,)
        row_actions = ACTIONS


def detail_url(version: Version) -> str:
    """Return the URL of a version's page."""
    return str(urls.reverse(f"{PANEL}:detail", kwargs={"version": version.id}))


def owner_url(version: Version) -> str | None:
    """Return the URL of the timeline that a version is in."""
    if version.server_id:
        return str(urls.reverse(f"{PANEL}:server", kwargs={"owner": version.server_id}))
    if version.volume_id:
        return str(urls.reverse(f"{PANEL}:volume", kwargs={"owner": version.volume_id}))
    return None


def owner_text(version: Version) -> str:
    """Return the words for what a version is of."""
    if version.server_id:
        return f"{_('Server')} {version.server_id} {version.disk or ''}".rstrip()
    if version.volume_id:
        return f"{_('Volume')} {version.volume_id}"
    return wording.UNKNOWN

"""Table of schedules."""

from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import tables

from acstor_dashboard import wording
from acstor_dashboard.tables import ItemLink, MarkerTable, PermittedLink
from acstorclient.v1.schedule import Schedule

PANEL = "horizon:project:acstor_schedules"
"""Namespace of the panel's URLs."""


class Create(PermittedLink):
    """Make a schedule."""

    name = "create"
    verbose_name = _("Create Schedule")
    url = f"{PANEL}:create"
    classes = ("ajax-modal",)
    icon = "plus"
    rules = ("schedules:create",)


class ScheduleLink(ItemLink):
    """A link to a form about one schedule."""

    classes: tuple[str, ...] = ("ajax-modal",)
    key = "schedule"


class AddTarget(ScheduleLink):
    """Have a schedule take versions of a server or volume, too."""

    name = "add_target"
    verbose_name = _("Add Server or Volume")
    url = f"{PANEL}:add_target"
    rules = ("schedules:add_target",)


class Edit(ScheduleLink):
    """Change a schedule."""

    name = "edit"
    verbose_name = _("Edit")
    url = f"{PANEL}:edit"
    rules = ("schedules:update",)


class Delete(ScheduleLink):
    """Delete a schedule."""

    name = "delete"
    verbose_name = _("Delete")
    url = f"{PANEL}:delete"
    classes: tuple[str, ...] = ("ajax-modal", "btn-danger")
    action_type = "danger"
    rules = ("schedules:delete",)


ACTIONS = (AddTarget, Edit, Delete)
"""Forms about a schedule, in the order of its menu."""


class ScheduleTable(MarkerTable):
    """Schedules: when, of what, what stays."""

    name = tables.Column(
        "name",
        verbose_name=_("Name"),
        link=lambda schedule: detail_url(schedule.id),
        sortable=False,
    )
    times = tables.Column(
        lambda schedule: times_of(schedule), verbose_name=_("When"), sortable=False
    )
    keep = tables.Column(
        lambda schedule: "; ".join(wording.retention(schedule.keep or {})),
        verbose_name=_("Keeps"),
        sortable=False,
    )
    targets = tables.Column(
        lambda schedule: len(schedule.targets or ()),
        verbose_name=_("Servers and Volumes"),
        sortable=False,
    )
    next_run_at = tables.Column(
        lambda schedule: wording.moment(schedule.next_run_at),
        verbose_name=_("Next"),
        sortable=False,
    )
    enabled = tables.Column(
        lambda schedule: _("Yes") if schedule.is_enabled else _("No"),
        verbose_name=_("Enabled"),
        sortable=False,
    )

    class Meta:
        """Options of the table."""

        name = "schedules"
        verbose_name = _("Schedules")
        multi_select = False
        table_actions = (Create,)
        row_actions = ACTIONS

    def get_object_display(self, datum: Schedule) -> str:
        """Return what a schedule is called."""
        return str(datum.name)


def times_of(schedule: Schedule) -> str:
    """Return the words for the times of a schedule."""
    return wording.when(schedule.every, schedule.at, schedule.on, schedule.timezone or "UTC")


def detail_url(schedule_id: str) -> str:
    """Return the URL of a schedule's page."""
    return str(urls.reverse(f"{PANEL}:detail", kwargs={"schedule": schedule_id}))

"""Table of tasks."""

from typing import Any

from django.utils.translation import gettext_lazy as _
from horizon import tables

from acstor_dashboard import wording
from acstor_dashboard.tables import ItemLink, MarkerTable
from acstor_dashboard.tasks import links


class Cancel(ItemLink):
    """Cancel a task."""

    name = "cancel"
    verbose_name = _("Cancel")
    url = f"{links.PANEL}:cancel"
    classes = ("ajax-modal", "btn-danger")
    rules = ("tasks:cancel",)
    key = "task"

    def is_sensible(self, datum: Any) -> bool:
        """Return whether it has not ended."""
        return not datum.is_ended


class TaskFilter(tables.FilterAction):
    """Filter that the API applies to all pages."""

    filter_type = "server"
    filter_choices = (
        ("kind", _("Kind ="), True),
        ("state", _("State ="), True),
        ("server_id", _("Server ID ="), True),
        ("volume_id", _("Volume ID ="), True),
        ("version_id", _("Version ID ="), True),
    )


class TaskTable(MarkerTable):
    """Tasks, those that are over too."""

    created_at = tables.Column(
        lambda task: wording.moment(task.created_at),
        verbose_name=_("Begun"),
        link=lambda task: links.url_of(task.id),
        sortable=False,
    )
    kind = tables.Column(
        lambda task: wording.word(wording.TASK_KINDS, task.kind),
        verbose_name=_("Kind"),
        sortable=False,
    )
    state = tables.Column(
        lambda task: wording.word(wording.TASK_STATES, task.state),
        verbose_name=_("State"),
        sortable=False,
    )
    progress = tables.Column(
        lambda task: wording.share(task.progress), verbose_name=_("Progress"), sortable=False
    )
    step = tables.Column("step", verbose_name=_("Step"), sortable=False)
    finished_at = tables.Column(
        lambda task: wording.moment(task.finished_at), verbose_name=_("Ended"), sortable=False
    )
    error = tables.Column(
        lambda task: task.explanation.detail or task.explanation.title,
        verbose_name=_("Error"),
        sortable=False,
    )

    class Meta:
        """Options of the table."""

        name = "tasks"
        verbose_name = _("Tasks")
        multi_select = False
        table_actions = (TaskFilter,)
        row_actions = (Cancel,)

    def get_object_display(self, datum: Any) -> str:
        """Return what a task is called."""
        return wording.word(wording.TASK_KINDS, datum.kind)

"""Panel of tasks, in the dashboard of projects."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Tasks(PermittedPanel):
    """Long work of the project."""

    name = _("Tasks")
    slug = "acstor_tasks"
    rules = ("tasks:list",)

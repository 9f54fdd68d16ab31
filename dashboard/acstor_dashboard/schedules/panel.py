"""Panel of schedules, in the dashboard of projects."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Schedules(PermittedPanel):
    """Times at which versions of the project's servers and volumes are taken."""

    name = _("Schedules")
    slug = "acstor_schedules"
    rules = ("schedules:list",)

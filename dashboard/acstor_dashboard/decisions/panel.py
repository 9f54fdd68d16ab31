"""Panel of decisions, in the dashboard of administrators."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Decisions(PermittedPanel):
    """Decision in force, and pinned weights."""

    name = _("Decisions")
    slug = "acstor_decisions"
    rules = ("decisions:list", "pins:list")

"""Panel of versions, in the dashboard of projects."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Versions(PermittedPanel):
    """Restore points of the project's servers and volumes."""

    name = _("Versions")
    slug = "acstor_versions"
    rules = ("versions:list",)

"""Panel of usage, in the dashboard of administrators."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Usage(PermittedPanel):
    """Versions of each project."""

    name = _("Versions per Project")
    slug = "acstor_usage"
    rules = ("usage:show", "admin")

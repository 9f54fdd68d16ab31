"""Panel of origins, in the dashboard of administrators."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Origins(PermittedPanel):
    """Members of the origin, and how far each is."""

    name = _("Origins")
    slug = "acstor_origins"
    rules = ("origin_members:list",)

"""Panel of the cluster, in the dashboard of administrators."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Cluster(PermittedPanel):
    """Hosts and their traffic now."""

    name = _("Cluster")
    slug = "acstor_cluster"
    rules = ("cluster:show",)

"""Start of the plug-in in Horizon's processes."""

from django.apps import AppConfig
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from acstor_dashboard import authorization


class AcstorDashboard(AppConfig):
    """The plug-in; Horizon's enabled files name its package."""

    name = "acstor_dashboard"
    verbose_name = _("ACStor")

    def ready(self) -> None:
        """Register the rules of the API, and extend Horizon's tables of servers and volumes."""
        authorization.register(settings)
        # Imported here: Horizon's tables need applications that are loaded.
        from acstor_dashboard.services import row_actions

        row_actions.extend_tables()

"""Group of the panels for users, and the plug-in itself."""

from django.utils.translation import gettext_lazy as _

PANEL_GROUP = "acstor"
PANEL_GROUP_NAME = _("Versions")
PANEL_GROUP_DASHBOARD = "project"
ADD_INSTALLED_APPS = ["acstor_dashboard"]

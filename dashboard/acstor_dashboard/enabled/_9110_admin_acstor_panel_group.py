"""Group of the panels for administrators."""

PANEL_GROUP = "acstor_admin"
PANEL_GROUP_NAME = "ACStor"
PANEL_GROUP_DASHBOARD = "admin"

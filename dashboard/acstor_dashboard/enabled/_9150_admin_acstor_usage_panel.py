"""Panel of usage."""

PANEL = "acstor_usage"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "acstor_admin"
ADD_PANEL = "acstor_dashboard.usage.panel.Usage"

"""Panel of origins."""

PANEL = "acstor_origins"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "acstor_admin"
ADD_PANEL = "acstor_dashboard.origins.panel.Origins"

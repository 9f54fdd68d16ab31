"""Panel of decisions."""

PANEL = "acstor_decisions"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "acstor_admin"
ADD_PANEL = "acstor_dashboard.decisions.panel.Decisions"

"""Panel of schedules."""

PANEL = "acstor_schedules"
PANEL_DASHBOARD = "project"
PANEL_GROUP = "acstor"
ADD_PANEL = "acstor_dashboard.schedules.panel.Schedules"

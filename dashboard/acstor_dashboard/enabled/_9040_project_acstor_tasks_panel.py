"""Panel of tasks."""

PANEL = "acstor_tasks"
PANEL_DASHBOARD = "project"
PANEL_GROUP = "acstor"
ADD_PANEL = "acstor_dashboard.tasks.panel.Tasks"

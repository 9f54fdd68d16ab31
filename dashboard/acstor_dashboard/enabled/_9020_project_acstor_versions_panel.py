"""Panel of versions."""

PANEL = "acstor_versions"
PANEL_DASHBOARD = "project"
PANEL_GROUP = "acstor"
ADD_PANEL = "acstor_dashboard.versions.panel.Versions"
ADD_JS_FILES = ["acstor_dashboard/acstor.js"]
ADD_SCSS_FILES = ["acstor_dashboard/acstor.scss"]

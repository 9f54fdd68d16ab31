"""Panel of the cluster."""

PANEL = "acstor_cluster"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "acstor_admin"
ADD_PANEL = "acstor_dashboard.cluster.panel.Cluster"

"""Panel of images."""

PANEL = "acstor_images"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "acstor_admin"
ADD_PANEL = "acstor_dashboard.images.panel.Images"

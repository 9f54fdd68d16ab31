"""Tabs at servers and volumes; the row actions there are added when Horizon starts."""

FEATURE = "acstor_tabs"
EXTRA_TABS = {
    "openstack_dashboard.dashboards.project.instances.tabs.InstanceDetailTabs": (
        (90, "acstor_dashboard.services.tabs.ServerTab"),
    ),
    "openstack_dashboard.dashboards.admin.instances.tabs.AdminInstanceDetailTabs": (
        (90, "acstor_dashboard.services.tabs.AdminServerTab"),
    ),
    "openstack_dashboard.dashboards.project.volumes.tabs.VolumeDetailTabs": (
        (90, "acstor_dashboard.services.tabs.VolumeTab"),
    ),
    "openstack_dashboard.dashboards.admin.volumes.tabs.VolumeDetailTabs": (
        (90, "acstor_dashboard.services.tabs.AdminVolumeTab"),
    ),
}

"""Glance's configuration."""

from testbed.onebox.configuration import endpoints
from testbed.onebox.configuration.writer import Configuration

STATE = "/var/lib/glance"
IMAGES = f"{STATE}/images"


def glance() -> Configuration:
    """Return glance-api.conf."""
    return {
        "DEFAULT": {
            "transport_url": endpoints.TRANSPORT_URL,
            "enabled_backends": "local:file",
            "worker_self_reference_url": endpoints.CATALOGUE["image"][1],
        },
        "database": {"connection": endpoints.database_url("glance")},
        "glance_store": {"default_backend": "local"},
        "local": {
            "filesystem_store_datadir": IMAGES,
            "filesystem_thin_provisioning": "true",
        },
        "os_glance_staging_store": {"filesystem_store_datadir": f"{STATE}/staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": f"{STATE}/tasks"},
        "keystone_authtoken": endpoints.token_validation("glance"),
        "paste_deploy": {"flavor": "keystone"},
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        "oslo_messaging_notifications": {"driver": "messagingv2"},
    }

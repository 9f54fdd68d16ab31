"""Glance's configuration."""

from acstor.testbed.onebox.configuration import endpoints
from acstor.testbed.onebox.configuration.writer import Configuration


def glance(state: str) -> Configuration:
    """Return glance-api.conf.

    :param state: folder of the images and of what is being imported.
    """
    return {
        "DEFAULT": {
            "transport_url": endpoints.TRANSPORT_URL,
            "enabled_backends": "local:file",
            "worker_self_reference_url": endpoints.CATALOGUE["image"][1],
        },
        "database": {"connection": endpoints.database_url("glance")},
        "glance_store": {"default_backend": "local"},
        "local": {
            "filesystem_store_datadir": f"{state}/images",
            "filesystem_thin_provisioning": "true",
        },
        "os_glance_staging_store": {"filesystem_store_datadir": f"{state}/staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": f"{state}/tasks"},
        "keystone_authtoken": endpoints.token_validation("glance"),
        "paste_deploy": {"flavor": "keystone"},
        "oslo_concurrency": {"lock_path": f"{state}/locks"},
        "oslo_messaging_notifications": {"driver": "messagingv2"},
    }

"""Nova's configuration: on the controller, and on a compute host."""

from testbed.onebox.configuration import endpoints, networking
from testbed.onebox.configuration.writer import Configuration
from testbed.onebox.network import CONTROLLER_ADDRESS

STATE = "/var/lib/nova"
CONFIG_FILE = "/etc/nova/nova.conf"
#: Of all encrypted volumes. No secret: it encrypts what only the one-box keeps.
FIXED_KEY = "0f" * 32
_FILTERS = (
    "ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter", "SameHostFilter",
    "DifferentHostFilter",
)  # fmt: skip


def nova_controller(venv: str, *, with_acstor: bool) -> Configuration:
    """Return the nova.conf of API, conductor and scheduler.

    :param with_acstor: whether the scheduler has ACStor's weigher and filter.
    """
    weighers = ["nova.scheduler.weights.all_weighers"]
    available = ["nova.scheduler.filters.all_filters"]
    enabled = list(_FILTERS)
    if with_acstor:
        weighers.append("acstor.scheduler.nova.weigher.BootCoverageWeigher")
        available.append("acstor.scheduler.nova.filter.DataPlaneFilter")
        enabled.append("DataPlaneFilter")
    return {
        **_nova(venv, CONTROLLER_ADDRESS, with_acstor=False),
        "api_database": {"connection": endpoints.database_url("nova_api")},
        "database": {"connection": endpoints.database_url("nova")},
        "keystone_authtoken": endpoints.token_validation("nova"),
        "wsgi": {"api_paste_config": f"{venv}/etc/nova/api-paste.ini"},
        "scheduler": {"discover_hosts_in_cells_interval": "5", "workers": "1"},
        "conductor": {"workers": "1"},
        "filter_scheduler": {
            "available_filters": available,
            "enabled_filters": ",".join(enabled),
            "weight_classes": ",".join(weighers),
        },
        "quota": {"instances": "-1", "cores": "-1", "ram": "-1"},
        **({"acstor": {"state_ttl": "10"}} if with_acstor else {}),
    }


def nova_compute(venv: str, name: str, address: str, *, with_acstor: bool) -> Configuration:
    """Return the nova.conf of a compute host.

    :param with_acstor: whether it can attach ACStor's volumes.
    """
    return {
        **_nova(venv, address, host=name, with_acstor=with_acstor),
        "libvirt": {
            "virt_type": "qemu",
            "cpu_mode": "none",
            "images_type": "qcow2",
            "live_migration_scheme": "tcp",
            "live_migration_inbound_addr": address,
            "live_migration_permit_auto_converge": "true",
            "remote_filesystem_transport": "ssh",
            "nfs_mount_point_base": f"{STATE}/mnt",
        },
        "image_cache": {"manager_interval": "2400"},
        "os_vif_ovs": {"ovsdb_connection": f"unix:{networking.SWITCH_DATABASE}"},
    }


def _nova(venv: str, address: str, host: str | None = None, *, with_acstor: bool) -> Configuration:
    privsep = f"{venv}/bin/privsep-helper --config-file {CONFIG_FILE}"
    default = {
        "my_ip": address,
        "state_path": STATE,
        "transport_url": endpoints.TRANSPORT_URL,
        "compute_driver": "libvirt.LibvirtDriver",
        "initial_cpu_allocation_ratio": "16.0",
        "initial_ram_allocation_ratio": "4.0",
        "initial_disk_allocation_ratio": "10.0",
        "reserved_host_memory_mb": "0",
        "allow_resize_to_same_host": "false",
        # Else periodic tasks, the discovery of hosts among them, begin after up to a minute.
        "periodic_fuzzy_delay": "0",
        # A host that is lost is known to be so soon, and may still be slow for a while.
        "report_interval": "5",
        "service_down_time": "30",
        "shutdown_timeout": "5",
    }
    return {
        "DEFAULT": default if host is None else {"host": host, **default},
        "placement": endpoints.login("nova"),
        "neutron": endpoints.login("neutron"),
        "glance": endpoints.login("nova"),
        "cinder": {
            **endpoints.login("nova"),
            "catalog_info": "block-storage::publicURL",
            "os_region_name": endpoints.REGION,
        },
        "service_user": {**endpoints.login("nova"), "send_service_user_token": "true"},
        "key_manager": {
            "backend": "nova.keymgr.conf_key_mgr.ConfKeyManager",
            "fixed_key": FIXED_KEY,
        },
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        # ACStor's does not notify: it is where Nova lets it register volumes. What the other one
        # sends the registrar hears, which looks for servers that move.
        "oslo_messaging_notifications": {
            "driver": ["messagingv2", "acstor"] if with_acstor else "noop"
        },
        "notifications": {
            "notification_format": "versioned" if with_acstor else "unversioned",
            "bdms_in_notifications": "true",
        },
        "vnc": {"enabled": "false"},
        "workarounds": {"disable_rootwrap": "true"},
        "nova_sys_admin": {"helper_command": privsep},
        "privsep_osbrick": {"helper_command": privsep},
        "vif_plug_linux_bridge_privileged": {"helper_command": privsep},
        "vif_plug_ovs_privileged": {"helper_command": privsep},
    }

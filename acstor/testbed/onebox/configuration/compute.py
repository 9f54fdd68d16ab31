"""Nova's configuration: on the controller, and on a compute host."""

from acstor.testbed.onebox.configuration import endpoints
from acstor.testbed.onebox.configuration.writer import Configuration
from acstor.testbed.onebox.network import CONTROLLER_ADDRESS

STATE = "/var/lib/nova"
CONFIG_FILE = "/etc/nova/nova.conf"
#: No secret: it encrypts what only the one-box keeps.
_FIXED_KEY = "0f" * 32
_FILTERS = (
    "ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter", "SameHostFilter",
    "DifferentHostFilter", "DataPlaneFilter",
)  # fmt: skip


def nova_controller(venv: str, state: str) -> Configuration:
    """Return the nova.conf of API, conductor and scheduler."""
    return {
        **_nova(venv, CONTROLLER_ADDRESS, state),
        "api_database": {"connection": endpoints.database_url("nova_api")},
        "database": {"connection": endpoints.database_url("nova")},
        "keystone_authtoken": endpoints.token_validation("nova"),
        "wsgi": {"api_paste_config": f"{venv}/etc/nova/api-paste.ini"},
        "scheduler": {"discover_hosts_in_cells_interval": "5", "workers": "1"},
        "conductor": {"workers": "1"},
        "filter_scheduler": {
            "available_filters": [
                "nova.scheduler.filters.all_filters",
                "acstor.scheduler.nova.filter.DataPlaneFilter",
            ],
            "enabled_filters": ",".join(_FILTERS),
            "weight_classes": (
                "nova.scheduler.weights.all_weighers,"
                "acstor.scheduler.nova.weigher.BootCoverageWeigher"
            ),
        },
        "acstor": {"state_ttl": "10"},
    }


def nova_compute(venv: str, name: str, address: str) -> Configuration:
    """Return the nova.conf of a compute host."""
    return {
        **_nova(venv, address, STATE, host=name),
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
    }


def _nova(venv: str, address: str, state: str, host: str | None = None) -> Configuration:
    privsep = f"{venv}/bin/privsep-helper --config-file {CONFIG_FILE}"
    default = {
        "my_ip": address,
        "state_path": state,
        "transport_url": endpoints.TRANSPORT_URL,
        "compute_driver": "libvirt.LibvirtDriver",
        "initial_cpu_allocation_ratio": "16.0",
        "initial_ram_allocation_ratio": "4.0",
        "initial_disk_allocation_ratio": "10.0",
        "reserved_host_memory_mb": "0",
        "allow_resize_to_same_host": "false",
        # Else periodic tasks, the discovery of hosts among them, begin after up to a minute.
        "periodic_fuzzy_delay": "0",
        # An emulated guest takes its time; beyond this it is switched off.
        "shutdown_timeout": "30",
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
            "fixed_key": _FIXED_KEY,
        },
        "oslo_concurrency": {"lock_path": f"{state}/locks"},
        "oslo_messaging_notifications": {"driver": "noop"},
        "vnc": {"enabled": "false"},
        "workarounds": {"disable_rootwrap": "true"},
        "nova_sys_admin": {"helper_command": privsep},
        "privsep_osbrick": {"helper_command": privsep},
        "vif_plug_linux_bridge_privileged": {"helper_command": privsep},
        "vif_plug_ovs_privileged": {"helper_command": privsep},
    }

"""Cinder's configuration: volumes of ACStor, and files in a shared folder by the NFS driver."""

from testbed.onebox.configuration import compute, endpoints
from testbed.onebox.configuration.writer import Configuration
from testbed.onebox.network import CONTROLLER, CONTROLLER_ADDRESS

CONFIG_FILE = "/etc/cinder/cinder.conf"
STATE = "/var/lib/cinder"
SHARE = f"{CONTROLLER}:/volumes"
STOCK_BACKEND = "shared-folder"
ACSTOR_BACKEND = "acstor"
#: Of the same repository: volumes move to it without a copy.
SECOND_BACKEND = "acstor-second"
DRIVER = "acstor.drivers.cinder.driver.AcstorVolumeDriver"
#: Volume types: name, extra specs. The first is what a volume of no named type gets.
STOCK_TYPES: tuple[tuple[str, dict[str, str]], ...] = (
    (STOCK_BACKEND, {"volume_backend_name": STOCK_BACKEND}),
)
ACSTOR_TYPES: tuple[tuple[str, dict[str, str]], ...] = tuple(
    (name, {"volume_backend_name": ACSTOR_BACKEND, **specs})
    for name, specs in (
        # Tests wait for what the default leaves half a minute for.
        ("acstor", {"acstor:durability": "write-back", "acstor:period": "5"}),
        ("acstor-through", {"acstor:durability": "write-through"}),
        ("acstor-none", {"acstor:durability": "none"}),
    )
)

#: Where an image is weighs more than how much room there is.
_SCHEDULING = {
    "scheduler_default_weighers": "CapacityWeigher,AcstorImageWeigher",
    "acstor_image_weight_multiplier": "2.0",
}


def volume_types(*, with_acstor: bool) -> tuple[tuple[str, dict[str, str]], ...]:
    """Return the volume types with their extra specs, the default one first."""
    return (*ACSTOR_TYPES, *STOCK_TYPES) if with_acstor else STOCK_TYPES


def backends(*, with_acstor: bool) -> tuple[str, ...]:
    """Return the names of cinder-volume's backends."""
    ours = (ACSTOR_BACKEND, SECOND_BACKEND) if with_acstor else ()
    return (*ours, STOCK_BACKEND)


def cinder(venv: str, *, with_acstor: bool) -> Configuration:
    """Return cinder.conf."""
    privsep = f"{venv}/bin/privsep-helper --config-file {CONFIG_FILE}"
    return {
        "DEFAULT": {
            "my_ip": CONTROLLER_ADDRESS,
            "host": CONTROLLER,
            "state_path": STATE,
            "transport_url": endpoints.TRANSPORT_URL,
            "auth_strategy": "keystone",
            "api_paste_config": f"{venv}/etc/cinder/api-paste.ini",
            "rootwrap_config": "/etc/cinder/rootwrap.conf",
            "enabled_backends": ",".join(backends(with_acstor=with_acstor)),
            "default_volume_type": volume_types(with_acstor=with_acstor)[0][0],
            "glance_api_servers": endpoints.CATALOGUE["image"][1],
            "backup_driver": "cinder.backup.drivers.posix.PosixBackupDriver",
            "backup_posix_path": f"{STATE}/backups",
            "backup_file_size": str(16 << 20),
            "backup_sha_block_size_bytes": str(32 << 10),
            "report_interval": "5",
            "service_down_time": "60",
            # What back-ends have and how full they are is known this soon.
            "backend_stats_polling_interval": "5",
            **(_SCHEDULING if with_acstor else {}),
        },
        **{
            name: _acstor(name)
            for name in backends(with_acstor=with_acstor)
            if name != STOCK_BACKEND
        },
        STOCK_BACKEND: {
            "volume_driver": "cinder.volume.drivers.nfs.NfsDriver",
            "volume_backend_name": STOCK_BACKEND,
            "nas_host": CONTROLLER,
            "nas_share_path": SHARE.partition(":")[2],
            "nas_secure_file_operations": "true",
            "nas_secure_file_permissions": "false",
            "nfs_mount_point_base": f"{STATE}/mnt",
            "nfs_mount_attempts": "1",
        },
        "database": {"connection": endpoints.database_url("cinder")},
        "keystone_authtoken": endpoints.token_validation("cinder"),
        "nova": endpoints.login("nova"),
        "service_user": {**endpoints.login("cinder"), "send_service_user_token": "true"},
        "key_manager": {
            "backend": "cinder.keymgr.conf_key_mgr.ConfKeyManager",
            "fixed_key": compute.FIXED_KEY,
        },
        "coordination": {"backend_url": f"file://{STATE}/coordination"},
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        # ACStor's does not notify: it is where cinder-volume lets it register its connector.
        "oslo_messaging_notifications": {"driver": "acstor" if with_acstor else "noop"},
        "cinder_sys_admin": {"helper_command": privsep},
        "privsep_osbrick": {"helper_command": privsep},
    }


def _acstor(name: str) -> dict[str, str]:
    return {
        "volume_driver": DRIVER,
        "volume_backend_name": name,
        "acstor_multiattach_on_one_host": "true",
        # All back-ends are on one disk: by its capacity alone the shared folder is preferred.
        "max_over_subscription_ratio": "10",
    }


def rootwrap(venv: str) -> Configuration:
    """Return rootwrap.conf."""
    return {
        "DEFAULT": {
            "filters_path": f"{venv}/etc/cinder/rootwrap.d,{venv}/etc/os-brick/rootwrap.d",
            "exec_dirs": f"{venv}/bin,/sbin,/usr/sbin,/bin,/usr/bin",
            "use_syslog": "False",
        }
    }


def mount_program(shared: str) -> str:
    """Return the program that ``mount -t nfs`` runs on the hosts.

    All hosts are on one machine: the share is a folder, mounted by a bind instead of over NFS,
    for which a kernel may lack the module. Nova and Cinder take their usual way.
    """
    return f'#!/bin/sh\nexec /bin/mount --bind "{shared}" "$2"\n'

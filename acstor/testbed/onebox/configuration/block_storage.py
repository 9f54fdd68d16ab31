"""Cinder's configuration: volumes as files in a shared folder, by the stock NFS driver."""

from acstor.testbed.onebox.configuration import endpoints
from acstor.testbed.onebox.configuration.writer import Configuration
from acstor.testbed.onebox.network import CONTROLLER, CONTROLLER_ADDRESS

CONFIG_FILE = "/etc/cinder/cinder.conf"
STATE = "/var/lib/cinder"
SHARE = f"{CONTROLLER}:/volumes"


def cinder(venv: str) -> Configuration:
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
            "enabled_backends": "shared-folder",
            "default_volume_type": "__DEFAULT__",
            "glance_api_servers": endpoints.CATALOGUE["image"][1],
        },
        "shared-folder": {
            "volume_driver": "cinder.volume.drivers.nfs.NfsDriver",
            "volume_backend_name": "shared-folder",
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
        "coordination": {"backend_url": f"file://{STATE}/coordination"},
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        "oslo_messaging_notifications": {"driver": "noop"},
        "cinder_sys_admin": {"helper_command": privsep},
        "privsep_osbrick": {"helper_command": privsep},
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

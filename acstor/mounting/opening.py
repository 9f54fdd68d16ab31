"""Choosing what mounts for this process."""

from oslo_config import cfg

from acstor.mounting import direct
from acstor.mounting.client import SocketMounter
from acstor.mounting.mounter import Mounter, MountOptions


def open_mounter(conf: cfg.ConfigOpts) -> Mounter:
    """Return what mounts for a data plane: itself where it may, else acstor-mount."""
    options = MountOptions.from_conf(conf)
    if direct.may_mount():
        return direct.DirectMounter(options)
    return SocketMounter(conf.dataplane.mount_socket, options.mount_point)

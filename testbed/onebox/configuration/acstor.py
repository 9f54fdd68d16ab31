"""ACStor's configuration: of the controller, and of a compute host."""

import enum

from testbed.onebox.configuration import ceph, endpoints, image
from testbed.onebox.configuration.writer import Configuration
from testbed.onebox.network import CONTROLLER, CONTROLLER_ADDRESS

STATE = "/var/lib/acstor"
CONFIG_FILE = "/etc/acstor/acstor.conf"
#: All hosts of the one-box share one disk, on which each preallocates its store.
STORE_CAPACITY = "1GiB"
CONTROLLER_STORE_CAPACITY = "256MiB"
STORE = f"{STATE}/store"
ADMIN_SOCKET = "/run/acstor/dataplane.sock"
CONTROL_SOCKET = "/run/acstor/volumes.sock"
MOUNT_SOCKET = "/run/acstor-mount/mount.sock"
VOLUME_SOCKETS = "/run/acstor/nbd"
#: Its time says when the data plane's user was last given what root had written.
STATE_GIVEN = "/run/acstor-mount/state-given"
#: Of the data plane and the registrar.
USER = "acstor"
#: Who opens and closes volumes, reads and writes those that are open, reads images.
VOLUMES_GROUP = "acstor-volumes"
NBD_GROUP = "acstor-nbd"
IMAGES_GROUP = "acstor-images"
#: Debian's QEMU runs guests as this user.
GUEST_USER = "libvirt-qemu"
#: What the installation guide has the operator do; Nova and Cinder are root here.
MEMBERS = ((GUEST_USER, IMAGES_GROUP), (GUEST_USER, NBD_GROUP))
PEER_PORT = 7420
METRICS_PORT = 9471
#: Mbit/s that a host's link is taken to have: little enough for a test to fill it. What the hosts'
#: virtual interfaces say of themselves, 10 Gbit/s, is more than this machine has to give.
LINK_SPEED = 100


class Origin(enum.StrEnum):
    """Kind of the origin."""

    POSIX = "posix"
    """A folder that all hosts share."""
    CEPH = "ceph"
    """Pools of a Ceph that runs on the controller."""


def acstor_controller(shared: str, *, tls: bool, origin: Origin = Origin.POSIX) -> Configuration:
    """Return the acstor.conf of the controller: its services and the operator's commands.

    It has a data plane too, through which Cinder itself opens volumes.

    :param shared: folder that all hosts share.
    """
    found = _host(shared, CONTROLLER, CONTROLLER_ADDRESS, CONTROLLER_STORE_CAPACITY, tls=tls)
    if origin is Origin.CEPH:
        found["origin"] = {"url": ceph.controller_url()}
    return {
        **found,
        "DEFAULT": {**found["DEFAULT"], **acstor_secrets()["DEFAULT"]},
        "glance": {**found["glance"], "filesystem_store_datadir": image.IMAGES},
        # Tests wait for what the defaults leave minutes for.
        "registrar": {
            "interval": "5",
            "withdraw_grace": "5",
            "retry_delay": "2",
            "nova_notification_topics": "versioned_notifications",
        },
        "database": {"connection": endpoints.database_url("acstor")},
        "keystone_authtoken": {
            **endpoints.token_validation("acstor"),
            "service_type": "acstor",
        },
        "worker": {
            "flow_connection": endpoints.database_url("acstor_flows"),
            "nova_notification_topics": "versioned_notifications",
            "poll_interval": "1",
            "tick_interval": "2",
            "follow_interval": "60",
        },
    }


def acstor_compute(
    shared: str, name: str, address: str, *, tls: bool, origin: Origin = Origin.POSIX
) -> Configuration:
    """Return the acstor.conf of holder, data plane and agent."""
    found = _host(shared, name, address, STORE_CAPACITY, tls=tls)
    if origin is Origin.CEPH:
        found["origin"] = {"url": ceph.host_url()}
    return {
        **found,
        "image_links": {"enabled": "true", "scan_interval": "5"},
        "captures": {"enabled": "true", "commit_delay": "1", "reserve_percent": "0"},
    }


def acstor_secrets() -> Configuration:
    """Return what agent and operator read on a compute host, and the data plane does not."""
    return {"DEFAULT": {"transport_url": endpoints.TRANSPORT_URL}}


def _host(
    shared: str, name: str, address: str, capacity: str, *, tls: bool
) -> dict[str, dict[str, str]]:
    return {
        **_acstor(name, shared),
        "store": {"capacity": capacity},
        "volumes": {
            "enabled": "true",
            "control_group": VOLUMES_GROUP,
            "socket_group": NBD_GROUP,
            # A share of the disk that is not the one-box's own may be more than is free of it.
            "reserve_percent": "0",
        },
        "peer": {
            "listen_address": address,
            "listen_port": str(PEER_PORT),
            "tls_enabled": str(tls).lower(),
        },
        "agent": {
            "interval": "2",
            "state_interval": "1",
            "working_set_interval": "2",
            "ring_settle_delay": "2",
            "ring_shrink_interval": "15",
            "metrics_address": address,
            "metrics_port": str(METRICS_PORT),
            "link_speed": str(LINK_SPEED),
        },
    }


def _acstor(name: str, shared: str) -> dict[str, dict[str, str]]:
    return {
        "DEFAULT": {"host": name},
        "origin": {"url": f"posix://{shared}/origin"},
        "coordination": {"backend_url": f"file://{shared}/coordination"},
        "keystone": endpoints.credentials("acstor"),
        "glance": {"region_name": endpoints.REGION},
        "nova": {"region_name": endpoints.REGION},
    }

"""ACStor's configuration: of the registrar on the controller, and of a compute host."""

from acstor.testbed.onebox.configuration import endpoints, image
from acstor.testbed.onebox.configuration.writer import Configuration
from acstor.testbed.onebox.network import CONTROLLER

STATE = "/var/lib/acstor"
CONFIG_FILE = "/etc/acstor/acstor.conf"
#: All hosts of the one-box share one disk, on which each preallocates its store.
STORE_CAPACITY = "1GiB"
PEER_PORT = 7420
METRICS_PORT = 9471


def acstor_controller(shared: str) -> Configuration:
    """Return the acstor.conf of the registrar and of the operator's commands.

    :param shared: folder that all hosts share.
    """
    common = _acstor(CONTROLLER, shared)
    return {
        **common,
        "glance": {**common["glance"], "filesystem_store_datadir": image.IMAGES},
        # Tests wait for what the defaults leave minutes for.
        "registrar": {"interval": "10", "withdraw_grace": "5", "retry_delay": "2"},
    }


def acstor_compute(shared: str, name: str, address: str, *, tls: bool) -> Configuration:
    """Return the acstor.conf of holder, data plane and agent."""
    return {
        **_acstor(name, shared),
        "store": {"capacity": STORE_CAPACITY},
        "dataplane": {
            "mount_point": f"{STATE}/images",
            "admin_socket": f"{STATE}/dataplane.sock",
            "holder_socket": f"{STATE}/holder.sock",
        },
        "peer": {
            "listen_address": address,
            "listen_port": str(PEER_PORT),
            "tls_enabled": str(tls).lower(),
        },
        "agent": {
            "interval": "2",
            "state_interval": "2",
            "working_set_interval": "2",
            "ring_settle_delay": "2",
            "metrics_address": address,
            "metrics_port": str(METRICS_PORT),
        },
        "image_links": {"enabled": "true", "scan_interval": "5"},
    }


def _acstor(name: str, shared: str) -> Configuration:
    return {
        "DEFAULT": {
            "host": name,
            "state_path": f"{STATE}/state",
            "transport_url": endpoints.TRANSPORT_URL,
        },
        "origin": {"url": f"posix://{shared}/origin"},
        "coordination": {"backend_url": f"file://{shared}/coordination"},
        "keystone": endpoints.credentials("acstor"),
        "glance": {"region_name": endpoints.REGION},
        "nova": {"region_name": endpoints.REGION},
    }

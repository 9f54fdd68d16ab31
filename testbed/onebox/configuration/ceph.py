"""Configuration of a Ceph that is the origin: monitor, manager and one OSD on the controller."""

import uuid

from testbed.ceph_clients import CONTROLLER, HOST
from testbed.ceph_cluster import DAEMONS, Cluster
from testbed.onebox.configuration.writer import Configuration
from testbed.onebox.network import CONTROLLER_ADDRESS

CONFIG_FOLDER = "/etc/ceph"
STATE = "/var/lib/ceph"
RUN = "/run/ceph"
PORT = 3300
_OLDER_PORT = 6789
#: Of the OSD's file, of which there is as much as was written.
OSD_BYTES = 20 << 30
#: Heads and small objects; stripes of large ones; and the refs.
POOL, STRIPE_POOL, REF_POOL = "acstor", "acstor-stripes", "acstor-refs"
_POOLS_IN_URL = f"{POOL}?stripe_pool={STRIPE_POOL}&ref_pool={REF_POOL}"
PLACEMENT_GROUPS = 8
#: One-boxes do not meet, so all of them have the same one.
_FSID = uuid.uuid5(uuid.NAMESPACE_DNS, "ceph.onebox.acstor")
CLUSTER = Cluster(str(_FSID), CONTROLLER_ADDRESS, (PORT, _OLDER_PORT), STATE, RUN, OSD_BYTES)


def ceph() -> Configuration:
    """Return ceph.conf, the same on all hosts; only the controller has the daemons' keyring."""
    daemon = {
        **CLUSTER.daemon_options(),
        "keyring": CLUSTER.keyring,
        "log to file": "false",
        "log to stderr": "true",
        "err to stderr": "true",
    }
    return {
        "global": CLUSTER.options(),
        **dict.fromkeys(DAEMONS, daemon),
        "client.admin": {"keyring": CLUSTER.keyring},
    }


def keyring_of(client: str) -> str:
    """Return the name of a client's keyring, where librados looks for it by itself."""
    return f"ceph.client.{client}.keyring"


def controller_url() -> str:
    """Return the origin's URL for controllers."""
    return f"rados://{CONTROLLER}@{_POOLS_IN_URL}"


def host_url() -> str:
    """Return the origin's URL for hosts with volumes."""
    return f"rados://{HOST}@{_POOLS_IN_URL}&role=host"

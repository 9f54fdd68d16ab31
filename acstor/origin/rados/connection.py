"""Parameters of a connection to a Ceph cluster."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Connection:
    """Cluster and client, with the deadline of everything.

    :param conf: path of ceph.conf.
    :param client: name of the client without its type, as in ``client.NAME``.
    :param timeout_seconds: of each call, and of connecting.
    """

    conf: str
    client: str
    timeout_seconds: float

    @property
    def options(self) -> dict[str, str]:
        """Options of librados, all of which would be no deadline by default, or a long one."""
        seconds = f"{self.timeout_seconds:g}"
        return {
            "rados_osd_op_timeout": seconds,
            "rados_mon_op_timeout": seconds,
            # It takes whole seconds only, and none for no end.
            "client_mount_timeout": str(max(1, round(self.timeout_seconds))),
        }

"""Parameters of a connection to a Ceph cluster."""

import dataclasses
from collections.abc import Mapping

LATE_SHARE = 0.25
"""Share of the deadline after which librados takes an operation for late, and looks for such ones.

It asks the monitors for the newest map then, and only then for another one: the map that it asks
for when it loses an OSD may be one too old. With an OSD that has started again at its former port,
operations that end before they are late, as with librados' own ten seconds, would end so for ever.
"""
LATE_SECONDS_MAX = 10.0
"""Seconds after which operations are late by default; they are with longer deadlines."""
TICK_SECONDS_MAX = 5.0
"""Seconds from one look for late operations to the next by default."""


@dataclasses.dataclass(frozen=True)
class Connection:
    """Cluster and client, with the deadline of everything.

    :param conf: path of ceph.conf.
    :param client: name of the client without its type, as in ``client.NAME``.
    :param timeout_seconds: of each call, and of connecting.
    :param more_options: of librados, beside those that make the deadlines.
    """

    conf: str
    client: str
    timeout_seconds: float
    more_options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """Options of librados: deadlines, which it has none of by default, and what fits them."""
        seconds = f"{self.timeout_seconds:g}"
        share = self.timeout_seconds * LATE_SHARE
        return {
            **self.more_options,
            "rados_osd_op_timeout": seconds,
            "rados_mon_op_timeout": seconds,
            # It takes whole seconds only, and none for no end.
            "client_mount_timeout": str(max(1, round(self.timeout_seconds))),
            "objecter_timeout": f"{min(LATE_SECONDS_MAX, share):g}",
            "objecter_tick_interval": f"{min(TICK_SECONDS_MAX, share):g}",
        }

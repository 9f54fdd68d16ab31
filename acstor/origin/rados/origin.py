"""The origin that a URL of Ceph pools names."""

import urllib.parse

from acstor.origin.pair import OriginPair
from acstor.origin.rados.batch import Batches
from acstor.origin.rados.binding import Binding
from acstor.origin.rados.classes import ClassedObjects
from acstor.origin.rados.cluster import Cluster
from acstor.origin.rados.connection import Connection
from acstor.origin.rados.doorbell import RadosDoorbell
from acstor.origin.rados.location import (
    CLIENT_DEFAULT,
    CONF_DEFAULT,
    HOSTS,
    NAMESPACE_DEFAULT,
    TIMEOUT_SECONDS,
    parse_url,
)
from acstor.origin.rados.objects import RadosObjects
from acstor.origin.rados.pools import UsedPools
from acstor.origin.rados.reading import Rounds
from acstor.origin.rados.refs import RadosRefs


class RadosOrigin(OriginPair):
    """Objects and refs in the pools of one Ceph cluster.

    :param pool: of heads and small objects.
    :param stripe_pool: of the bytes of large objects. None: the same.
    :param ref_pool: of the refs, replicated. None: the first. All others may be erasure-coded.
    :param conf: path of ceph.conf.
    :param client: name of the client without ``client.``; its key is where ceph.conf says.
    :param namespace: first part of all namespaces: what tells repositories in one pool apart.
    :param is_host: whether to store what a host stores where its key may.
    :param timeout_seconds: of each operation.
    :param binding: of librados; None: the distribution's.
    """

    def __init__(
        self,
        pool: str,
        *,
        stripe_pool: str | None = None,
        ref_pool: str | None = None,
        conf: str = CONF_DEFAULT,
        client: str = CLIENT_DEFAULT,
        namespace: str = NAMESPACE_DEFAULT,
        is_host: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
        binding: Binding | None = None,
    ) -> None:
        """Name the pools; the cluster is connected to at the first call."""
        used = UsedPools(ref_pool or pool, frozenset({pool, stripe_pool or pool}))
        cluster = Cluster(Connection(conf, client, timeout_seconds), binding, used)
        rounds = Rounds(Batches(cluster, timeout_seconds))
        of_controllers, of_hosts = (
            RadosObjects(cluster, pool, stripe_pool or pool, prefix, rounds)
            for prefix in (f"{namespace}.", f"{namespace}.{HOSTS}.")
        )
        refs = RadosRefs(cluster, used.refs, f"{namespace}.")
        super().__init__(ClassedObjects(of_controllers, of_hosts, is_host=is_host), refs)
        self._doorbell = refs.doorbell()

    def doorbell(self) -> RadosDoorbell:
        """Return what hosts are woken by."""
        return self._doorbell

    def close(self) -> None:
        """Close the refs at first: their doorbell ends over the connection of both."""
        self.refs.close()
        super().close()

    @classmethod
    def from_url(cls, url: urllib.parse.SplitResult) -> "RadosOrigin":
        """Open what :func:`acstor.origin.rados.location.parse_url` reads.

        :raises InvalidError: when the URL is none.
        """
        location = parse_url(url)
        return cls(
            location.pool,
            stripe_pool=location.stripe_pool,
            ref_pool=location.ref_pool,
            conf=location.conf,
            client=location.client,
            namespace=location.namespace,
            is_host=location.is_host,
            timeout_seconds=location.timeout_seconds,
        )

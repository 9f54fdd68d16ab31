"""The native reader of an origin in Ceph, made of what a URL names."""

from acstor.native import RadosReader, map_errors
from acstor.origin.rados.location import RadosLocation


def open_reader(location: RadosLocation) -> RadosReader:
    """Return a reader; the cluster is connected to at the first read.

    :raises UnsupportedError: when librados cannot be loaded.
    :raises InvalidError: when librados cannot be given what the location says.
    """
    connection = location.connection
    with map_errors("reading the origin in Ceph natively"):
        return RadosReader(
            conf=connection.conf,
            client=connection.client,
            pool=location.pool,
            stripe_pool=location.stripe_pool or location.pool,
            namespace=location.namespace,
            timeout_seconds=connection.timeout_seconds,
            options=connection.options,
        )

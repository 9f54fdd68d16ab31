"""Connecting to a cluster that is slow to answer, or refuses."""

import concurrent.futures
import errno
import threading
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin.rados.binding import Binding
from acstor.origin.rados.cluster import Cluster
from acstor.origin.rados.connection import Connection
from acstor.origin.rados.listing import Listed, ListingError
from testbed.doubles import memory_rados

CONNECTION = Connection("ceph.conf", "acstor", 0.5)


class SlowHandle(memory_rados.Handle):
    """Connects when it may."""

    def __init__(self, cluster: "SlowRados") -> None:
        super().__init__(cluster)
        self._slow = cluster

    def connect(self) -> None:
        self._slow.is_connecting.set()
        self._slow.may_connect.wait()
        if self._slow.error is not None:
            raise self._slow.error

    def shutdown(self) -> None:
        self._slow.shutdowns += 1


class SlowRados(memory_rados.MemoryRados):
    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.is_connecting = threading.Event()
        self.may_connect = threading.Event()
        self.error = error
        self.shutdowns = 0

    def Rados(self, conffile: str, rados_id: str) -> SlowHandle:  # noqa: N802
        return SlowHandle(self)


def test_call_that_waits_for_another_ones_connecting_has_a_deadline() -> None:
    rados = SlowRados()
    cluster = Cluster(CONNECTION, rados.binding)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(cluster.context, "pool", "namespace")
        rados.is_connecting.wait()
        for call in (lambda: cluster.context("pool", "other"), cluster.statistics):
            with pytest.raises(exception.UnavailableError, match="another call"):
                call()
        rados.may_connect.set()
        first.result()
    assert cluster.context("pool", "other") is cluster.context("pool", "other")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (memory_rados.TimedOut("no answer", 110), exception.UnavailableError),
        (memory_rados.ObjectNotFound("no keyring", 2), exception.InvalidError),
        (memory_rados.PermissionError("slow monitor or bad key", 1), exception.UnavailableError),
        (memory_rados.PermissionDeniedError("bad key", 13), exception.InvalidError),
    ],
    ids=["no answer", "no keyring", "not permitted", "denied"],
)
def test_connection_that_failed_is_ended_and_tried_anew(error: Exception, kind: type) -> None:
    rados = SlowRados(error)
    rados.may_connect.set()
    cluster = Cluster(CONNECTION, rados.binding)
    with pytest.raises(exception.AcstorError) as caught:
        cluster.context("pool", "namespace")
    assert type(caught.value) is kind
    assert rados.shutdowns == 1
    rados.error = None
    assert cluster.context("pool", "namespace") is not None


class EndingLister(memory_rados.MemoryLister):
    """Fails in the middle."""

    def __init__(self, code: int) -> None:
        super().__init__(memory_rados.MemoryRados())
        self._code = code

    def entries(self, pool: str, namespace: str) -> Iterator[Listed]:
        yield Listed("namespace", "first")
        raise ListingError(self._code, "listing")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ETIMEDOUT, exception.UnavailableError),
        (errno.EIO, exception.UnavailableError),
        (errno.ESHUTDOWN, exception.UnavailableError),
        (errno.EPERM, exception.InvalidError),
        (errno.EACCES, exception.InvalidError),
        (errno.ENOENT, exception.InvalidError),
    ],
    ids=errno.errorcode.get,
)
def test_listing_that_fails_has_no_end(code: int, kind: type) -> None:
    binding = Binding(memory_rados.MemoryRados(), lambda _: EndingLister(code))
    found = Cluster(CONNECTION, binding).listed("pool", "namespace", "listing refs")
    assert next(found).key == "first"
    with pytest.raises(exception.AcstorError, match="listing refs: listing: ") as caught:
        next(found)
    assert type(caught.value) is kind

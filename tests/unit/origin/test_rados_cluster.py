"""Connecting to a cluster that is slow to answer, or refuses."""

import concurrent.futures
import threading
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin.rados.cluster import Cluster
from testbed.doubles import memory_rados
from testbed.doubles.virtual_time import VirtualTime

TIMEOUT_S = 0.5


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
    cluster = Cluster("ceph.conf", "acstor", TIMEOUT_S, rados)
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
        (memory_rados.PermissionError("bad key", 1), exception.InvalidError),
    ],
    ids=["no answer", "no keyring", "bad key"],
)
def test_connection_that_failed_is_ended_and_tried_anew(error: Exception, kind: type) -> None:
    rados = SlowRados(error)
    rados.may_connect.set()
    cluster = Cluster("ceph.conf", "acstor", TIMEOUT_S, rados)
    with pytest.raises(exception.AcstorError) as caught:
        cluster.context("pool", "namespace")
    assert type(caught.value) is kind
    assert rados.shutdowns == 1
    rados.error = None
    assert cluster.context("pool", "namespace") is not None


class EndingContext(memory_rados.Context):
    """Ends its listing in the middle after some time, as the binding does at any error."""

    def __init__(self, time: VirtualTime, seconds: float) -> None:
        super().__init__(memory_rados.MemoryRados(), "pool")
        self._time = time
        self._seconds = seconds

    def list_objects(self) -> Iterator[memory_rados.Listed]:
        yield memory_rados.Listed("namespace", "first")
        self._time.now += self._seconds


@pytest.mark.parametrize(("seconds", "is_whole"), [(TIMEOUT_S / 2, True), (TIMEOUT_S, False)])
def test_listing_that_ends_with_the_deadline_is_not_whole(
    seconds: float, *, is_whole: bool
) -> None:
    time = VirtualTime()
    cluster = Cluster("ceph.conf", "acstor", TIMEOUT_S, memory_rados.MemoryRados(), time)
    found = cluster.listed(EndingContext(time, seconds), "listing")
    assert next(found).key == "first"
    if is_whole:
        assert next(found, None) is None
    else:
        with pytest.raises(exception.UnavailableError):
            next(found)

"""Connecting to a cluster that is slow to answer, or refuses."""

import concurrent.futures
import errno
import threading
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados.binding import Binding
from acstor.origin.rados.cluster import Cluster, mapped_error
from acstor.origin.rados.connection import Connection
from acstor.origin.rados.listing import Listed, ListingError
from acstor.origin.rados.origin import RadosOrigin
from acstor.repository.origin_reserve import OriginReserve
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


@pytest.mark.parametrize("seconds", [0.5, 10.0, 600.0])
def test_operation_is_late_before_it_ends(seconds: float) -> None:
    """An operation that never is late asks for no newer map, and finds no OSD that restarted."""
    options = {name: float(text) for name, text in Connection("", "", seconds).options.items()}
    late, tick = options["objecter_timeout"], options["objecter_tick_interval"]
    assert 0 < late <= 10
    assert 0 < tick <= 5
    assert late + tick < options["rados_osd_op_timeout"] == seconds


def test_call_that_waits_for_another_ones_connecting_has_a_deadline() -> None:
    rados = SlowRados()
    cluster = Cluster(CONNECTION, rados.binding)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(cluster.context, "pool", "namespace")
        rados.is_connecting.wait()
        for call in (lambda: cluster.context("pool", "other"), lambda: cluster.room("pool")):
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


def test_blocked_client_is_told_so() -> None:
    """Every OSD refuses it, and all of them are up."""
    error = mapped_error(errno.ESHUTDOWN, "reading one")
    assert type(error) is exception.UnavailableError
    assert "ceph osd blocklist ls" in error.hint


def test_room_is_that_of_the_pool_of_stripes_within_its_quota() -> None:
    rados = memory_rados.MemoryRados()
    origin = RadosOrigin("acstor", stripe_pool="stripes", binding=rados.binding)
    assert origin.put_if_absent("packs/aa/one", [bytes(9 << 20)])
    assert origin.put_if_absent("packs/aa/two", [b"in the other pool"])
    stored = sum(len(content) for place, content in rados.stored.items() if place[0] == "stripes")
    assert stored == 9 << 20
    rados.free_bytes = 100 << 20
    assert origin.space() == base.Space(100 << 20, 109 << 20)
    rados.quotas = {"stripes": 20 << 20, "acstor": 1}
    assert origin.space() == base.Space(11 << 20, 20 << 20)
    rados.quotas = {"stripes": 5 << 20}
    assert origin.space() == base.Space(0, 9 << 20)


def test_images_leave_their_share_of_a_quota_to_volumes() -> None:
    rados = memory_rados.MemoryRados()
    origin = RadosOrigin("acstor", binding=rados.binding)
    reserve = OriginReserve(origin, 10)
    origin.put_if_absent("format", [b""])
    reserve.check(9 << 20)
    rados.quotas = {"acstor": 10 << 20}
    reserve.check(8 << 20)
    with pytest.raises(exception.ExhaustedError, match="9 MiB free"):
        reserve.check(9 << 20)


def test_room_of_a_pool_that_is_not_known_yet_is_the_clusters() -> None:
    cluster = Cluster(CONNECTION, memory_rados.MemoryRados().binding)
    assert cluster.room("new") == (1 << 39, 1 << 38)


def test_room_that_nobody_tells_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    rados = memory_rados.MemoryRados()
    cluster = Cluster(CONNECTION, rados.binding)
    for code, kind in (
        (errno.ETIMEDOUT, exception.UnavailableError),
        (errno.EACCES, exception.InvalidError),
    ):
        rados.command_error = code
        with pytest.raises(exception.AcstorError, match="room of pool acstor") as caught:
            cluster.room("acstor")
        assert type(caught.value) is kind
    for answer in (b"", b"{}", b"[]", b'{"pools": [{"name": "acstor", "stats": {}}]}'):
        told = (0, answer, "")
        monkeypatch.setattr(memory_rados.Handle, "mon_command", lambda *_, told=told: told)
        with pytest.raises(exception.UnavailableError, match="no figures were told"):
            cluster.room("acstor")

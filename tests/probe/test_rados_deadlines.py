"""Deadlines of all calls to a Ceph that is not there, or says nothing."""

import concurrent.futures
import contextlib
import pathlib
import socket
from collections.abc import Iterator

import pytest

from acstor import exception, native
from acstor.origin import base
from acstor.origin.rados import binding, native_reader
from acstor.origin.rados.location import RadosLocation
from acstor.origin.rados.origin import RadosOrigin
from tests.probe.rados_calls import CALLS, DEADLINE_S, HANGS_AFTER_S, KEY, outcomes

THREADS = 8


@contextlib.contextmanager
def monitor(*, accepts: bool) -> Iterator[int]:
    """Have a port where nobody listens, or where somebody does and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if accepts:
            listener.listen(64)
        yield listener.getsockname()[1]


@pytest.fixture(params=[False, True], ids=["nobody", "silent"])
def conf(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Path of a ceph.conf of a cluster without monitors, or with one that says nothing."""
    if binding.find() is None:
        pytest.skip("needs python3-rados")
    with monitor(accepts=request.param) as port:
        path = tmp_path / "ceph.conf"
        path.write_text(
            f"[global]\nmon host = [v2:127.0.0.1:{port}]\nauth client required = none\n"
        )
        yield str(path)


def test_client_without_a_cluster_does_not_hang(conf: str) -> None:
    origin = RadosOrigin("none", conf=conf, timeout_seconds=DEADLINE_S)
    ended = outcomes(origin)
    assert ended == dict.fromkeys(CALLS, exception.UnavailableError)
    with pytest.raises(exception.UnavailableError):
        origin.space()
    ranges = [base.ReadRange(KEY, 0, memoryview(bytearray(1))) for _ in range(100)]
    found = origin.read_many(ranges)
    assert [type(error) for error in found] == [exception.UnavailableError] * 100
    origin.doorbell().listen(lambda: None)
    origin.doorbell().ring()
    origin.close()


def test_native_reader_without_a_cluster_does_not_hang(conf: str) -> None:
    location = RadosLocation("none", conf=conf, timeout_seconds=DEADLINE_S)
    reader = native_reader.open_reader(location)

    def read(_: int) -> str:
        try:
            reader.readinto(KEY, 0, bytearray(1))
        except native.DataPlaneError as error:
            return str(error.kind)
        return "read"

    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        kinds = list(threads.map(read, range(THREADS), timeout=HANGS_AFTER_S))
    assert kinds == [exception.ErrorKind.UNAVAILABLE] * THREADS
    reader.close()

"""Deadlines of all calls to a Ceph that is not there, or says nothing."""

import contextlib
import pathlib
import socket
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import binding
from acstor.origin.rados.origin import RadosOrigin
from tests.probe.rados_calls import CALLS, DEADLINE_S, KEY, outcomes


@contextlib.contextmanager
def monitor(*, accepts: bool) -> Iterator[int]:
    """Have a port where nobody listens, or where somebody does and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if accepts:
            listener.listen(64)
        yield listener.getsockname()[1]


@pytest.mark.parametrize("accepts", [False, True], ids=["nobody", "silent"])
def test_client_without_a_cluster_does_not_hang(tmp_path: pathlib.Path, *, accepts: bool) -> None:
    if binding.find() is None:
        pytest.skip("needs python3-rados")
    with monitor(accepts=accepts) as port:
        conf = tmp_path / "ceph.conf"
        conf.write_text(
            f"[global]\nmon host = [v2:127.0.0.1:{port}]\nauth client required = none\n"
        )
        origin = RadosOrigin("none", conf=str(conf), timeout_seconds=DEADLINE_S)
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

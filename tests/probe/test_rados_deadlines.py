"""Deadlines of all calls to a Ceph that is not there, says nothing, or stops answering."""

import concurrent.futures
import contextlib
import pathlib
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import binding
from acstor.origin.rados.origin import RadosOrigin
from testbed import processes
from testbed.fixtures.ceph import CephNode
from tests.compliance.conftest import ceph  # noqa: F401 - a fixture
from tests.compliance.origins import POOL, rados_origin

KEY = "packs/aa/large"
LARGE = bytes(9 << 20)
DEADLINE_S = 1.0
HANGS_AFTER_S = 60.0
"""Far more than any deadline: what has not ended by then never will."""

CALLS: dict[str, Callable[[RadosOrigin], object]] = {
    "put": lambda origin: origin.put_if_absent("packs/aa/small", [b"x"]),
    "put of stripes": lambda origin: origin.put_if_absent("packs/aa/other", [LARGE]),
    "read": lambda origin: origin.get_range(KEY, 1, 1),
    "read of stripes": lambda origin: origin.get_range(KEY, 0, len(LARGE)),
    "size": lambda origin: origin.size(KEY),
    "list": lambda origin: list(origin.list("packs/")),
    "delete": lambda origin: origin.delete(KEY),
    "sweep": lambda origin: origin.sweep(),
    "get_ref": lambda origin: origin.get_ref("ring"),
    "refresh_ref": lambda origin: origin.refresh_ref("ring", base.Ref("11" * 16, b"")),
    "swap_ref": lambda origin: origin.swap_ref("ring", None, b"x"),
    "list_refs": lambda origin: list(origin.list_refs()),
}


def outcomes(origin: RadosOrigin) -> dict[str, object]:
    """Return what each call ends with: the kind of its error, else what it returns."""

    def outcome(call: Callable[[RadosOrigin], object]) -> object:
        try:
            return call(origin)
        except exception.AcstorError as error:
            return type(error)

    with concurrent.futures.ThreadPoolExecutor(len(CALLS)) as pool:
        started = {name: pool.submit(outcome, call) for name, call in CALLS.items()}
        return {name: one.result(HANGS_AFTER_S) for name, one in started.items()}


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
        found = origin.read_many([base.ReadRange(KEY, 0, memoryview(bytearray(1)))])
        assert [type(error) for error in found] == [exception.UnavailableError]
        origin.close()


def test_osds_that_stop_answering_fail_every_call_until_they_are_back(
    ceph: CephNode,  # noqa: F811
) -> None:
    origin = rados_origin(ceph, POOL, DEADLINE_S)
    origin.put_if_absent(KEY, [LARGE])
    token = origin.swap_ref("ring", None, b"before")
    for osd in ceph.osds:
        osd.send_signal(signal.SIGSTOP)
    try:
        ended = outcomes(origin)
    finally:
        for osd in ceph.osds:
            osd.send_signal(signal.SIGCONT)
    assert ended == dict.fromkeys(CALLS, exception.UnavailableError)

    def is_back() -> bool:
        try:
            return origin.get_ref("ring") == base.Ref(str(token), b"before")
        except exception.UnavailableError:
            return False

    processes.wait_until(is_back, "the OSDs answer", timeout_s=HANGS_AFTER_S)
    origin.close()


@pytest.mark.parametrize("lacking", ["pool", "configuration"])
def test_what_is_not_there_is_said(
    ceph: CephNode,  # noqa: F811
    tmp_path: pathlib.Path,
    lacking: str,
) -> None:
    conf = tmp_path / "none" if lacking == "configuration" else ceph.configuration
    origin = RadosOrigin("none", conf=str(conf), client="admin")
    with pytest.raises(exception.InvalidError, match="pool none" if lacking == "pool" else "admin"):
        origin.get_ref("ring")
    origin.close()

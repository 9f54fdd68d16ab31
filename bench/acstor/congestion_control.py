"""TCP congestion control of a testbed's hosts, whatever this machine's own is."""

import contextlib
import functools
import pathlib
from collections.abc import Iterable, Iterator

from bench.acstor.namespace_calls import in_namespace
from testbed.exception import TestbedError
from testbed.network import Namespace

_SETTINGS = pathlib.Path("/proc/sys/net/ipv4")
_OWN = _SETTINGS / "tcp_congestion_control"
"""Setting of the network namespace of the thread that looks."""
_ALLOWED = _SETTINGS / "tcp_allowed_congestion_control"
"""Setting of the machine; namespaces may choose from its values only."""


def choose(hosts: Iterable[Namespace], name: str) -> None:
    """Have every connection that is made on these hosts from now on use it.

    :raises TestbedError: when this kernel does not have it.
    """
    try:
        with _allowed(name):
            for host in hosts:
                in_namespace(host.namespace, functools.partial(_OWN.write_text, name))
    except OSError as error:
        available = (_SETTINGS / "tcp_available_congestion_control").read_text().split()
        raise TestbedError(
            f"congestion control {name!r}: {error.strerror}",
            hint=f"choose from {', '.join(available)}, or load its kernel module",
        ) from error


@contextlib.contextmanager
def _allowed(name: str) -> Iterator[None]:
    """Allow namespaces to choose it; those that have keep it when it is not allowed any more."""
    before = _ALLOWED.read_text()
    if name in before.split():
        yield
        return
    _ALLOWED.write_text(f"{before.strip()} {name}")
    try:
        yield
    finally:
        _ALLOWED.write_text(before)


def of(host: Namespace) -> str:
    """Return what new connections of a host use."""
    return in_namespace(host.namespace, _OWN.read_text).strip()

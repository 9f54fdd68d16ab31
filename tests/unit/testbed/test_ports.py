"""Ports that a test gives to its servers."""

import errno
import platform
import socket
import struct

import pytest

from testbed.fixtures.ports import free_port

IP_LOCAL_PORT_RANGE = 51
"""Option of a socket, which Python has no name for."""


def test_port_is_kept_for_the_server_that_is_started_later() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use") as refused:
        other.bind(("127.0.0.1", port))
    assert refused.value.errno == errno.EADDRINUSE
    for _ in range(2):  # it may be started again
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 60)
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", port), 60) as client,
        ):
            server.accept()[0].close()
            assert client.recv(1) == b""


def has_only(port: int) -> socket.socket:
    """Return a socket to which the kernel may give one port alone (Linux 6.3, ip(7))."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=I", port << 16 | port))
    return found


@pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (6, 3), reason="needs Linux 6.3"
)
def test_nobody_is_given_it_who_asks_for_any() -> None:
    with has_only(free_port()) as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", 0))
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        has_only(free_port()) as client,
        pytest.raises(OSError, match="assign requested address"),
    ):
        client.connect(server.getsockname())

"""Connecting to a unix socket whose listener is busy."""

import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from acstor import exception, sockets
from acstor.control.client import AdminClient
from acstor.nbd_connection import ConnectionLostError, NbdConnection

PATIENCE = 60.0
KINDS = [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]
PATCHED = """
import sys

import eventlet

eventlet.monkey_patch()

import socket

from acstor import sockets

with socket.socket(socket.AF_UNIX) as connection:
    try:
        sockets.connect_within(connection, sys.argv[1], 0.05)
    except TimeoutError:
        print("timed out")
"""
"""In a service that eventlet has patched, as cinder-volume may be."""


class Busy:
    """A listener that takes nobody for now, and has no room for more."""

    def __init__(self, path: pathlib.Path, kind: socket.SocketKind) -> None:
        self.path = str(path)
        self.kind = kind
        self.listener = socket.socket(socket.AF_UNIX, kind)
        self.listener.bind(self.path)
        self.listener.listen(0)
        self.waiting: list[socket.socket] = []
        self._fill()

    def _fill(self) -> None:
        while True:
            one = socket.socket(socket.AF_UNIX, self.kind)
            one.setblocking(False)
            self.waiting.append(one)
            try:
                one.connect(self.path)
            except BlockingIOError:
                return

    def take_all(self) -> None:
        """Take who waited before, and who comes then."""
        for _ in self.waiting:
            self.listener.accept()[0].close()

    def close(self) -> None:
        for one in (self.listener, *self.waiting):
            one.close()


@pytest.fixture(params=KINDS)
def busy(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Busy]:
    made = Busy(tmp_path / "socket", request.param)
    yield made
    made.close()


def test_room_in_the_queue_is_waited_for(busy: Busy) -> None:
    is_connected = threading.Event()

    def connect() -> None:
        with socket.socket(socket.AF_UNIX, busy.kind) as connection:
            sockets.connect_within(connection, busy.path, PATIENCE)
            assert connection.gettimeout() == PATIENCE
            is_connected.set()

    connecting = threading.Thread(target=connect)
    connecting.start()
    busy.take_all()
    connecting.join(PATIENCE)
    assert is_connected.is_set()


def test_wait_ends(busy: Busy) -> None:
    with socket.socket(socket.AF_UNIX, busy.kind) as connection, pytest.raises(TimeoutError):
        sockets.connect_within(connection, busy.path, 0.01)


@pytest.mark.parametrize("busy", [socket.SOCK_STREAM], indirect=True)
def test_wait_ends_where_sockets_are_eventlets(busy: Busy) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PATCHED, busy.path]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ended.stdout == "timed out\n"


def test_nobody_there_is_no_timeout(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection, pytest.raises(FileNotFoundError):
        sockets.connect_within(connection, str(tmp_path / "absent"), PATIENCE)


def test_shortest_time_is_not_for_ever(busy: Busy) -> None:
    with socket.socket(socket.AF_UNIX, busy.kind) as connection, pytest.raises(TimeoutError):
        sockets.connect_within(connection, busy.path, 1e-9)


def test_connection_lasts_longer_than_the_wait_for_it(tmp_path: pathlib.Path) -> None:
    """The time is none for what is sent later."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as connection:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        sockets.connect_within(connection, str(tmp_path / "socket"), 0.5)
        left = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
        assert left == bytes(len(left))


@pytest.mark.parametrize("busy", [socket.SOCK_STREAM], indirect=True)
def test_clients_of_a_busy_data_plane_say_that_it_did_not_answer(busy: Busy) -> None:
    with pytest.raises(exception.UnavailableError, match="did not answer"):
        AdminClient(busy.path).call("status", call_timeout=0.01)
    with pytest.raises(ConnectionLostError, match="timed out"):
        NbdConnection(busy.path, "export", 0.01)

import errno
import json
import os
import pathlib
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from acstor import exception
from acstor.control import protocol
from acstor.control.client import AdminClient
from acstor.control.server import AdminServer


def echo(params: Mapping[str, Any]) -> object:
    return dict(params)


def refuse(params: Mapping[str, Any]) -> object:
    raise exception.NotFoundError("no such image")


def fail(params: Mapping[str, Any]) -> object:
    raise RuntimeError("boom")


class Gate:
    """A method that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, params: Mapping[str, Any]) -> object:
        self.entered.release()
        assert self.opened.wait(20)
        return True


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def path(tmp_path: pathlib.Path, gate: Gate) -> Iterator[str]:
    path = str(tmp_path / "admin.sock")
    server = AdminServer(path, {"echo": echo, "refuse": refuse, "fail": fail, "wait": gate})
    server.start()
    yield path
    gate.opened.set()
    server.stop()


def test_connection_that_cannot_be_accepted_is_not_the_last(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is out of descriptors for a moment; its data plane could be asked nothing more."""
    accept = socket.socket.accept
    failures = [OSError(errno.EMFILE, "too many"), OSError(errno.ENOMEM, "no memory")]

    def fail_first(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", fail_first)
    for _ in range(2):
        assert AdminClient(path).call("echo", a=1) == {"a": 1}
    assert failures == []


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(20)
    connection.connect(path)
    return connection


def receive(connection: socket.socket) -> Any:
    with connection.makefile("rb") as stream:
        line = stream.readline()
    return json.loads(line) if line else None


def test_result_is_returned(path: str) -> None:
    assert AdminClient(path).call("echo", a=[1, "x"], b=None) == {"a": [1, "x"], "b": None}


def test_refusal_becomes_the_class_of_its_kind(path: str) -> None:
    with pytest.raises(exception.NotFoundError, match="no such image"):
        AdminClient(path).call("refuse")


def test_unknown_method_is_unsupported(path: str) -> None:
    with pytest.raises(exception.UnsupportedError, match="nothing"):
        AdminClient(path).call("nothing")


def test_fault_in_a_method_is_internal(path: str) -> None:
    with pytest.raises(exception.InternalError):
        AdminClient(path).call("fail")
    assert AdminClient(path).call("echo") == {}


def test_socket_is_for_its_owner_only(path: str) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_several_requests_share_a_connection(path: str) -> None:
    with connect(path) as connection:
        for number in range(3):
            connection.sendall(protocol.encode_request(protocol.Request("echo", {}, number)))
            assert receive(connection)["id"] == number


def test_malformed_line_is_answered_on_an_open_connection(path: str) -> None:
    with connect(path) as connection:
        connection.sendall(b"hello\n")
        assert receive(connection)["error"]["code"] == protocol.Code.PARSE_ERROR
        connection.sendall(protocol.encode_request(protocol.Request("echo")))
        assert receive(connection)["result"] == {}


def test_endless_line_ends_the_connection(path: str) -> None:
    with connect(path) as connection:
        connection.sendall(b"x" * protocol.REQUEST_BYTES_MAX)
        assert receive(connection)["error"]["code"] == protocol.Code.INVALID_REQUEST
        assert connection.recv(1) == b""


def test_half_a_line_is_given_up_at_the_deadline(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "REQUEST_DEADLINE", 0.05)
    with connect(path) as connection:
        connection.sendall(b"{")
        assert connection.recv(1) == b""


def test_silent_connection_is_closed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "IDLE_TIMEOUT", 0.05)
    with connect(path) as connection:
        assert connection.recv(1) == b""


def test_waiting_method_does_not_hold_up_another_connection(path: str, gate: Gate) -> None:
    with connect(path) as connection:
        connection.sendall(protocol.encode_request(protocol.Request("wait")))
        assert gate.entered.acquire(timeout=20)
        assert AdminClient(path).call("echo") == {}
        gate.opened.set()
        assert receive(connection)["result"] is True


def test_one_connection_too_many_is_refused_at_once(path: str, gate: Gate) -> None:
    connections = [connect(path) for _ in range(protocol.CONNECTIONS_MAX)]
    for connection in connections:
        connection.sendall(protocol.encode_request(protocol.Request("wait")))
        assert gate.entered.acquire(timeout=20)
    with pytest.raises(exception.OverloadedError):
        AdminClient(path).call("echo")
    gate.opened.set()
    for connection in connections:
        assert receive(connection)["result"] is True
        connection.close()


def test_late_answer_is_a_deadline_error(path: str) -> None:
    with pytest.raises(exception.DeadlineError, match="did not answer wait"):
        AdminClient(path).call("wait", call_timeout=0.05)


def test_absent_data_plane_is_unavailable_with_its_path(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.UnavailableError, match=r"absent\.sock cannot be reached"):
        AdminClient(str(tmp_path / "absent.sock")).call("status")


def test_leftover_of_a_killed_server_is_replaced(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "admin.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as leftover:
        leftover.bind(path)
    server = AdminServer(path, {"echo": echo})
    server.start()
    assert AdminClient(path).call("echo") == {}
    server.stop()
    assert not os.path.exists(path)

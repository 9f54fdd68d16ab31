import os
import pathlib
import socket

import pytest

from acstor.supervision import supervisor


def listening(path: pathlib.Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(path))
    receiver.settimeout(5)
    return receiver


def receive(receiver: socket.socket) -> tuple[bytes, int]:
    message, descriptors, _, _ = socket.recv_fds(receiver, 4096, 4)
    for descriptor in descriptors:
        os.close(descriptor)
    return message, len(descriptors)


def test_without_a_supervisor_every_call_does_nothing() -> None:
    parent = supervisor.Supervisor.from_environment({})
    assert not parent.is_configured
    assert not parent.notify(READY="1")
    assert not parent.store("fuse", 0)
    assert not parent.holds_descriptors()


def test_store_sends_name_and_descriptor(tmp_path: pathlib.Path) -> None:
    with listening(tmp_path / "s") as receiver:
        parent = supervisor.Supervisor(str(tmp_path / "s"))
        assert parent.store("fuse", 0)
        assert receive(receiver) == (b"FDSTORE=1\nFDNAME=fuse\nFDPOLL=0", 1)
        assert parent.holds_descriptors()


def test_supervisor_that_is_gone_holds_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    with listening(path):
        parent = supervisor.Supervisor(str(path))
        parent.store("fuse", 0)
    assert not parent.holds_descriptors()


def test_new_supervisor_is_given_the_descriptors_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    parent = supervisor.Supervisor(str(path))
    with listening(path) as receiver:
        parent.store("fuse", 0)
        receive(receiver)
    assert not parent.refresh(WATCHDOG="1")
    path.unlink()
    with listening(path) as receiver:
        assert parent.refresh(WATCHDOG="1")
        assert receive(receiver) == (b"WATCHDOG=1", 0)
        assert receive(receiver) == (b"FDSTORE=1\nFDNAME=fuse\nFDPOLL=0", 1)
        assert parent.refresh(WATCHDOG="1")
        assert receive(receiver) == (b"WATCHDOG=1", 0)


def test_abstract_address_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        name = f"acstor-test-{os.getpid()}"
        receiver.bind("\0" + name)
        assert supervisor.Supervisor("@" + name).notify(READY="1")
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "fuse"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "-1"},
    ],
)
def test_descriptors_for_somebody_else_are_left_alone(environment: dict[str, str]) -> None:
    assert supervisor.take_descriptors(environment) == {}
    assert not environment


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_watchdog_interval(environment: dict[str, str], expected: float | None) -> None:
    assert supervisor.watchdog_interval(environment) == expected

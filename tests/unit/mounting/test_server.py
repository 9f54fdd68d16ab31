"""The end of acstor-mount, with a mounter in memory."""

import errno
import os
import pathlib
import pwd
import socket
import stat
import struct
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.mounting import protocol
from acstor.mounting.client import SocketMounter
from acstor.mounting.mounter import MountOptions
from acstor.mounting.server import MountServer
from testbed.doubles.memory_mounter import MemoryMounter
from testbed.fixtures.conditions import wait_for

MOUNT_POINT = "/srv/images"


class Served:
    """A server whose options and mounter the test changes."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.mounter = MemoryMounter()
        self.options = MountOptions(MOUNT_POINT, True, 0, 1.0)
        self.failure: exception.AcstorError | None = None
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.server = MountServer(str(path), user, self.load, lambda _: self.mounter)
        self.server.start()

    def load(self) -> MountOptions:
        if self.failure is not None:
            raise self.failure
        return self.options

    def client(self) -> SocketMounter:
        return SocketMounter(str(self.path), MOUNT_POINT, wait=0)

    def ask(self, packet: bytes, descriptors: tuple[int, ...] = ()) -> bytes:
        """Send a packet and return the answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(30)
            connection.connect(str(self.path))
            rights = struct.pack(f"={len(descriptors)}i", *descriptors)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
            connection.sendmsg([packet], ancillary)
            return connection.recv(8192)


@pytest.fixture
def served(short_path: pathlib.Path) -> Iterator[Served]:
    made = Served(short_path / "mount.sock")
    yield made
    made.server.stop()
    made.mounter.close()


def test_operations_are_carried_out(served: Served) -> None:
    client = served.client()
    os.close(client.mount())
    client.set_read_ahead()
    client.unmount()
    client.detach()
    assert served.mounter.calls == ["mount", "set_read_ahead", "unmount", "detach"]


def test_descriptor_is_the_caller_s_alone(served: Served) -> None:
    """The mount ends with the data plane, not with acstor-mount."""
    descriptor = served.client().mount()
    link = os.readlink(f"/proc/self/fd/{descriptor}")

    def holders() -> int:
        found = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                found += os.readlink(f"/proc/self/fd/{name}") == link
            except FileNotFoundError:
                continue
        return found

    wait_for("the server has closed its own", lambda: holders() == 1)
    os.close(descriptor)


def test_socket_is_of_the_user_s_group_and_of_nobody_else(served: Served) -> None:
    found = served.path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert found.st_gid == pwd.getpwuid(os.geteuid()).pw_gid


def test_other_user_is_refused(
    short_path: pathlib.Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.server, "_uid", os.geteuid() + 1)
    for _ in range(2):
        with pytest.raises(exception.InvalidError, match=f"user {os.geteuid()} asked"):
            served.client().mount()
    assert served.mounter.calls == []


@pytest.mark.root
def test_socket_below_a_directory_of_another_is_refused(
    served: Served, short_path: pathlib.Path
) -> None:
    """Root would change the mode of whatever he puts in its place."""
    folder = short_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65533, -1)
    user = pwd.getpwuid(os.geteuid()).pw_name
    server = MountServer(str(folder / "x.sock"), user, served.load, lambda _: served.mounter)
    with pytest.raises(exception.InvalidError, match=str(folder)):
        server.start()


def test_user_who_does_not_exist_is_named(served: Served, short_path: pathlib.Path) -> None:
    path, user = str(short_path / "x.sock"), "nobody-of-that-name"
    server = MountServer(path, user, served.load, lambda _: served.mounter)
    with pytest.raises(exception.ConfigurationError, match=r"\[dataplane\] user"):
        server.start()


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"nonsense", b"another version"),
        (b"1 mount", b"no absolute mount point"),
        (b"1 format /srv/images", b"no such operation"),
        (b"1 mount /" + b"x" * protocol.REQUEST_BYTES_MAX, b"too long"),
        (b"1 mount /etc", b"this process at '/srv/images'"),
        (b"1 unmount /", b"this process at '/srv/images'"),
    ],
)
def test_wrong_request_is_refused(served: Served, packet: bytes, reason: bytes) -> None:
    answer = served.ask(packet)
    assert answer.startswith(b"1 invalid ")
    assert reason in answer
    assert served.mounter.calls == []
    served.client().unmount()


def test_descriptors_of_a_request_are_closed(served: Served) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert b"had descriptors" in served.ask(b"1 mount /srv/images", (theirs.fileno(),))
        theirs.close()
        ours.settimeout(30)
        assert ours.recv(1) == b"", "nobody has the other end"
    assert served.mounter.calls == []


def test_silent_connection_keeps_nobody_waiting_for_long(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        with monkeypatch.context() as short:  # not for the one that has something to say
            short.setattr(protocol, "REQUEST_DEADLINE", 0.05)
            silent.connect(str(served.path))
            silent.settimeout(60)
            assert b"timed out" in silent.recv(protocol.RESPONSE_BYTES_MAX)
        served.client().unmount()
    assert served.mounter.calls == ["unmount"]


def test_connection_without_a_request_is_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may connect looks whether somebody listens."""
    with monkeypatch.context() as patch:
        patch.setattr(served.server, "_uid", os.geteuid() + 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(served.path))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            assert connection.recv(1024) == b""
    assert "asked" not in caplog.text
    served.client().unmount()


def test_failures_keep_their_kind(served: Served) -> None:
    served.mounter.failures["mount"] = exception.FencedError("held by another")
    with pytest.raises(exception.FencedError, match="held by another"):
        served.client().mount()
    served.failure = exception.ConfigurationError("the file is malformed")
    with pytest.raises(exception.InvalidError, match="the file is malformed"):
        served.client().unmount()


def test_options_are_those_of_now(served: Served) -> None:
    served.options = MountOptions("/srv/other", True, 0, 1.0)
    with pytest.raises(exception.InvalidError, match="this process at '/srv/other'"):
        served.client().mount()


def test_mount_that_nobody_takes_is_taken_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(socket, "send_fds", refuse)
    assert served.ask(b"1 mount /srv/images") == b""
    assert served.mounter.calls == ["mount", "detach"]


def test_second_server_takes_the_place_of_one_that_was_killed(short_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as former:
        former.bind(str(short_path / "mount.sock"))
    served = Served(short_path / "mount.sock")
    served.client().unmount()
    served.server.stop()
    assert not served.path.exists()


def test_socket_is_there_only_when_it_listens(
    served: Served, short_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data plane waits for a socket that is missing, and gives up on one that it may not use."""
    path, seen = short_path / "x.sock", []
    listen = socket.socket.listen

    def look(listener: socket.socket, *arguments: int) -> None:
        seen.append(path.exists())
        listen(listener, *arguments)
        seen.append(path.exists())

    monkeypatch.setattr(socket.socket, "listen", look)
    user = pwd.getpwuid(os.geteuid()).pw_name
    server = MountServer(str(path), user, served.load, lambda _: served.mounter)
    server.start()
    server.stop()
    assert seen == [False, False]
    assert sorted(os.listdir(short_path)) == ["mount.sock"]


def test_connection_that_cannot_be_accepted_is_not_the_last(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is out of descriptors, for a moment."""
    accept = socket.socket.accept
    failures = [OSError(errno.ENFILE, "too many"), OSError(errno.ENOMEM, "no memory")]

    def fail(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", fail)
    for _ in range(2):
        served.client().set_read_ahead()
    assert failures == []


def test_request_of_who_is_gone_is_not_carried_out(served: Served) -> None:
    """The next data plane may be served by the mount already that the one before gave up."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone,
    ):
        silent.connect(str(served.path))
        gone.connect(str(served.path))
        gone.send(b"1 detach /srv/images")
    served.client().set_read_ahead()
    assert served.mounter.calls == ["set_read_ahead"]

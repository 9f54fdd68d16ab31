"""A data plane's end, against an acstor-mount that answers whatever the test has it answer."""

import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.mounting import protocol
from acstor.mounting.client import SocketMounter
from acstor.mounting.protocol import Operation, OperationTraits

MOUNT_POINT = "/srv/images"

Answer = Callable[[socket.socket], None]


class Scripted:
    """Listens, keeps the request and answers one connection."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.requests: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._thread: threading.Thread | None = None

    def answer(self, answer: Answer) -> None:
        def run() -> None:
            connection, _ = self._listener.accept()
            with connection:
                self.requests.append(connection.recv(8192))
                answer(connection)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def fill(self) -> list[socket.socket]:
        """Return connections that wait to be accepted, as many as there is room for."""
        waiting: list[socket.socket] = []
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.setblocking(False)
            try:
                connection.connect(str(self.path))
            except BlockingIOError:
                connection.close()
                return waiting
            waiting.append(connection)

    def refuse(self) -> None:
        """Accept a connection and close it."""
        self._listener.accept()[0].close()

    def close(self) -> None:
        self._listener.close()
        if self._thread is not None:
            self._thread.join(30)


@pytest.fixture
def scripted(short_path: pathlib.Path) -> Iterator[Scripted]:
    made = Scripted(short_path / "mount.sock")
    yield made
    made.close()


@pytest.fixture
def mounter(scripted: Scripted) -> SocketMounter:
    return SocketMounter(str(scripted.path), MOUNT_POINT, wait=0)


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def send(packet: bytes, descriptors: int = 0) -> Answer:
    def run(connection: socket.socket) -> None:
        null = os.open("/dev/null", os.O_RDONLY)
        socket.send_fds(connection, [packet], [null] * descriptors)
        os.close(null)

    return run


def test_mount_returns_the_descriptor_that_was_sent(
    scripted: Scripted, mounter: SocketMounter
) -> None:
    scripted.answer(send(b"1 ok", descriptors=1))
    descriptor = mounter.mount()
    try:
        assert os.readlink(f"/proc/self/fd/{descriptor}") == "/dev/null"
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)
    assert scripted.requests == [b"1 mount /srv/images"]


@pytest.mark.parametrize(
    ("call", "request_sent"),
    [
        (SocketMounter.set_read_ahead, b"1 read-ahead /srv/images"),
        (SocketMounter.unmount, b"1 unmount /srv/images"),
        (SocketMounter.detach, b"1 detach /srv/images"),
    ],
)
def test_others_return_nothing(
    scripted: Scripted,
    mounter: SocketMounter,
    call: Callable[[SocketMounter], None],
    request_sent: bytes,
) -> None:
    scripted.answer(send(b"1 ok"))
    call(mounter)
    assert scripted.requests == [request_sent]


@pytest.mark.parametrize("count", [0, 2, 3, 20])
def test_mount_with_another_number_of_descriptors_is_refused_and_leaks_none(
    scripted: Scripted, mounter: SocketMounter, count: int
) -> None:
    before = opened()
    scripted.answer(send(b"1 ok", descriptors=count))
    with pytest.raises(exception.InternalError):
        mounter.mount()
    scripted.close()
    assert opened() == before - 1, "the listener has gone, nothing has come"


def test_descriptor_that_nobody_asked_for_is_refused(
    scripted: Scripted, mounter: SocketMounter
) -> None:
    scripted.answer(send(b"1 ok", descriptors=1))
    with pytest.raises(exception.InternalError, match="1 descriptors"):
        mounter.unmount()


def test_error_of_the_other_side_is_raised(scripted: Scripted, mounter: SocketMounter) -> None:
    scripted.answer(send(b"1 fenced another process holds it", descriptors=1))
    with pytest.raises(exception.FencedError, match="another process holds it"):
        mounter.mount()


def test_another_protocol_is_said(scripted: Scripted, mounter: SocketMounter) -> None:
    scripted.answer(send(b"2 ok"))
    with pytest.raises(exception.UnsupportedError, match="another protocol"):
        mounter.unmount()


def test_too_long_an_answer_is_refused(scripted: Scripted, mounter: SocketMounter) -> None:
    scripted.answer(send(b"1 ok" + b"x" * protocol.RESPONSE_BYTES_MAX))
    with pytest.raises(exception.InternalError, match="more than the protocol allows"):
        mounter.unmount()


def test_process_that_ends_before_it_answers_is_noticed(
    scripted: Scripted, mounter: SocketMounter
) -> None:
    scripted.answer(lambda _: None)
    with pytest.raises(exception.UnavailableError, match="ended before it answered"):
        mounter.mount()


def test_process_that_does_not_answer_is_not_waited_for(
    scripted: Scripted, mounter: SocketMounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = OperationTraits(timeout=0.05, returns_descriptor=True)
    monkeypatch.setitem(protocol.OPERATIONS, Operation.MOUNT, short)
    may_end = threading.Event()

    def wait(_: socket.socket) -> None:
        may_end.wait(30)

    scripted.answer(wait)
    with pytest.raises(exception.DeadlineError, match=r"did not answer mount in 0\.05 s"):
        mounter.mount()
    may_end.set()


def test_dead_process_is_said_with_what_to_do(scripted: Scripted, mounter: SocketMounter) -> None:
    scripted.close()
    with pytest.raises(exception.UnavailableError, match="cannot be reached") as caught:
        mounter.mount()
    assert "systemctl start acstor-mount" in caught.value.hint
    scripted.path.unlink()
    with pytest.raises(exception.UnavailableError, match="No such file"):
        mounter.unmount()


def test_mount_waits_for_a_process_that_starts(short_path: pathlib.Path) -> None:
    path = short_path / "late.sock"
    started: list[Scripted] = []

    def start(_: float) -> None:
        started.append(Scripted(path))
        started[0].answer(send(b"1 ok", descriptors=1))

    os.close(SocketMounter(str(path), MOUNT_POINT, wait=60, sleep=start).mount())
    assert len(started) == 1
    started[0].close()


def test_full_queue_is_waited_for(scripted: Scripted) -> None:
    waiting = scripted.fill()

    def drain(_: float) -> None:
        while waiting:
            scripted.refuse()
            waiting.pop().close()
        scripted.answer(send(b"1 ok"))

    SocketMounter(str(scripted.path), MOUNT_POINT, wait=30, sleep=drain).detach()
    assert scripted.requests == [b"1 detach /srv/images"]


def test_unmount_waits_while_acstor_mount_is_restarted(short_path: pathlib.Path) -> None:
    """It is the last thing that a data plane does; the mount would stay without a server."""
    made: list[Scripted] = []

    def start(_: float) -> None:
        made.append(Scripted(short_path / "mount.sock"))
        made[0].answer(send(b"1 ok"))

    SocketMounter(str(short_path / "mount.sock"), MOUNT_POINT, sleep=start).unmount()
    made[0].close()

"""The receiver of Ceilometer's http publisher: who gets in, what it answers, what it bears."""

import base64
import contextlib
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from acstor.http_server.server import BoundedHandler
from acstor.http_server.tls import ServerTls
from acstor.policy.feeds.ceilometer.feed import CeilometerSamples
from acstor.policy.feeds.ceilometer.http import PATH, ReceiverSettings, SampleReceiver
from acstor.policy.load_samples import LoadSamples
from testbed.fixtures.conditions import wait_for
from tests.unit.policy.ceilometer_cases import Clock

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "ceilometer-samples-http-v1.json"
AT = 1795298401.0  # a second after the golden samples
USER, PASSWORD = "ceilometer", "päss:word"
Answer = tuple[int, str]


@pytest.fixture
def load_samples() -> LoadSamples:
    return LoadSamples(10.0, posix_clock=Clock(AT))


@pytest.fixture
def start(
    tmp_path: pathlib.Path, load_samples: LoadSamples
) -> Iterator[Callable[..., SampleReceiver]]:
    running: list[SampleReceiver] = []

    def start(tls: ServerTls | None = None, **changes: Any) -> SampleReceiver:
        settings = ReceiverSettings("127.0.0.1", 0, USER, PASSWORD, **changes)
        samples = CeilometerSamples(load_samples, str(tmp_path / "traffic.json"), Clock(AT))
        receiver = SampleReceiver(settings, samples, tls)
        receiver.start()
        running.append(receiver)
        return receiver

    yield start
    for receiver in running:
        receiver.stop(10)


@pytest.fixture
def receiver(start: Callable[..., SampleReceiver]) -> SampleReceiver:
    return start()


def authorization(password: str = PASSWORD, user: str = USER) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def post(
    receiver: SampleReceiver,
    body: bytes | str,
    headers: Mapping[str, str] | None = None,
    path: str = PATH,
    method: str = "POST",
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=20)
    try:
        connection.request(
            method, path, body, dict(authorization() if headers is None else headers)
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_samples_are_taken_and_counted(receiver: SampleReceiver, load_samples: LoadSamples) -> None:
    status, text = post(receiver, GOLDEN.read_bytes())
    assert status == 200
    assert json.loads(text) == {"samples": {"first": 3, "ignored": 1, "part": 3}}
    assert load_samples.counts["ceilometer", "part"] == 3
    assert json.loads(post(receiver, GOLDEN.read_bytes())[1])["samples"] == {"ignored": 1, "old": 6}


def test_single_sample_is_taken_as_well(receiver: SampleReceiver) -> None:
    sample = json.loads(GOLDEN.read_text())[0]
    assert post(receiver, json.dumps(sample))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {}, authorization("wrong"), authorization(user="root"), authorization(""),
        {"Authorization": "Basic"}, {"Authorization": "Basic !!!"}, {"Authorization": "Basic ==="},
        {"Authorization": authorization()["Authorization"].replace("Basic", "Bearer")},
    ],
)  # fmt: skip
def test_nobody_gets_in_without_the_password(
    receiver: SampleReceiver, load_samples: LoadSamples, headers: dict[str, str]
) -> None:
    status, text = post(receiver, GOLDEN.read_bytes(), headers)
    assert status == 401
    assert "[ceilometer] username and password" in text
    assert PASSWORD not in text
    assert load_samples.counts == {("ceilometer", "unauthenticated"): 1}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[", 400, "no JSON"),
        (b"[" * 100_000, 400, "in one another"),
        (b'[{"volume": NaN}]', 400, "NaN is no number"),
        (b'[{"volume": ' + b"9" * 10_000 + b"}]", 400, "no JSON"),
        (b"5", 400, "no list of samples"),
        (b"[5]", 400, "no list of samples"),
        (b'"text"', 400, "no list of samples"),
        (b"[" + b"{}," * 20_000 + b"{}]", 413, "more than 20000 samples"),
    ],
)
def test_bodies_of_nobodys_making_get_clear_words(
    receiver: SampleReceiver, body: bytes, status: int, words: str
) -> None:
    found, text = post(receiver, body)
    assert (found, words in text) == (status, True), text


def test_malformed_samples_do_not_keep_others_out(receiver: SampleReceiver) -> None:
    messages = [{}, {"name": "network.incoming.bytes"}, *json.loads(GOLDEN.read_text())]
    status, text = post(receiver, json.dumps(messages))
    assert status == 200
    assert json.loads(text)["samples"]["malformed"] == 2
    assert json.loads(text)["samples"]["first"] == 3


def test_too_much_is_refused_before_it_is_read(
    start: Callable[..., SampleReceiver], load_samples: LoadSamples
) -> None:
    receiver = start(body_max=1000)
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in authorization().items())
        connection.sendall(f"POST {PATH} HTTP/1.1\r\n{head}Content-Length: 1001\r\n\r\n".encode())
        with connection.makefile("rb") as reader:
            answer = reader.read().decode()
    assert " 413 " in answer
    assert "body_max" in answer
    assert load_samples.counts["ceilometer", "too-large"] == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 411), ({"Content-Length": "many"}, 400), ({"Content-Length": "-5"}, 400),
        ({"Content-Length": "5", "Transfer-Encoding": "chunked"}, 411),
        ({"Content-Length": "1" * 19}, 400),
    ],
)  # fmt: skip
def test_length_is_needed(receiver: SampleReceiver, headers: dict[str, str], status: int) -> None:
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as connection:
        both = authorization() | headers
        head = "".join(f"{name}: {value}\r\n" for name, value in both.items())
        connection.sendall(f"POST {PATH} HTTP/1.1\r\n{head}\r\n".encode())
        assert f" {status} " in connection.recv(1 << 16).decode()


def test_other_paths_and_methods_are_refused(receiver: SampleReceiver) -> None:
    assert post(receiver, "[]", path="/v2/samples")[0] == 404
    status, text = post(receiver, "", method="GET")
    assert (status, PATH in text) == (405, True)
    assert post(receiver, "", method="DELETE")[0] == 501


def test_client_that_dribbles_is_cut_off(
    start: Callable[..., SampleReceiver], load_samples: LoadSamples
) -> None:
    """It sends something again and again, but not the whole in time."""
    receiver = start(request_timeout=0.3)

    def is_counted() -> bool:
        dribble_until_cut_off(receiver)
        # Not where the server stood still before it had read who that is.
        return load_samples.counts["ceilometer", "timeout"] > 0

    wait_for("a timeout", is_counted)


def dribble_until_cut_off(receiver: SampleReceiver) -> None:
    stop = threading.Event()
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in authorization().items())
        connection.sendall(f"POST {PATH} HTTP/1.1\r\n{head}Content-Length: 9999\r\n\r\n".encode())

        def dribble() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            connection.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        finally:
            stop.set()
            thread.join(10)


def connections(receiver: SampleReceiver, stack: contextlib.ExitStack, count: int) -> None:
    """Open connections that say nothing."""
    for _ in range(count):
        address = ("127.0.0.1", receiver.port)
        stack.enter_context(socket.create_connection(address, timeout=20))


def test_silent_clients_keep_nobody_out(
    start: Callable[..., SampleReceiver], load_samples: LoadSamples
) -> None:
    receiver = start(connections_max=2, request_timeout=600.0)
    with contextlib.ExitStack() as stack:
        connections(receiver, stack, 40)
        assert post(receiver, "[]")[0] == 200
    assert load_samples.counts["ceilometer", "busy"] == 0


def test_clients_that_said_the_password_make_room_for_nobody(
    start: Callable[..., SampleReceiver], load_samples: LoadSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled, settle = threading.Semaphore(0), BoundedHandler.settle

    def settle_and_tell(handler: BoundedHandler) -> None:
        settle(handler)
        settled.release()

    monkeypatch.setattr(BoundedHandler, "settle", settle_and_tell)
    receiver = start(connections_max=2, request_timeout=600.0)
    head = "".join(f"{name}: {value}\r\n" for name, value in authorization().items())
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(2):
            address = ("127.0.0.1", receiver.port)
            client = stack.enter_context(socket.create_connection(address, timeout=20))
            client.sendall(f"POST {PATH} HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n".encode())
            assert settled.acquire(timeout=20)
            clients.append(client)
        assert _is_refused(receiver)
        assert load_samples.counts["ceilometer", "busy"] == 1
        for client in clients:
            client.sendall(b"[]")
            assert b" 200 " in client.recv(1 << 16)
    wait_for("free places", lambda: not _is_refused(receiver), 20)


def _is_refused(receiver: SampleReceiver) -> bool:
    try:
        return post(receiver, "[]")[0] != 200
    except (OSError, http.client.HTTPException):
        return True


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A file with a certificate for the loopback address and its key."""
    path = tmp_path_factory.mktemp("tls") / "receiver.pem"
    key = path.with_suffix(".key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(key), "-out", str(path), "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    path.write_text(path.read_text() + key.read_text())
    return path


def post_by_tls(receiver: SampleReceiver, certificate: pathlib.Path, body: bytes) -> Answer:
    trusting = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", receiver.port, timeout=60, context=trusting
    )
    with contextlib.closing(connection):
        connection.request("POST", PATH, body, authorization())
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_tls(start: Callable[..., SampleReceiver], certificate: pathlib.Path) -> None:
    receiver = start(ServerTls(str(certificate)))
    status, text = post_by_tls(receiver, certificate, GOLDEN.read_bytes())
    assert status == 200
    assert json.loads(text)["samples"]["first"] == 3
    with pytest.raises((OSError, http.client.HTTPException)):
        post(receiver, "[]")  # in the clear


def test_handshakes_that_never_begin_keep_nobody_out(
    start: Callable[..., SampleReceiver], certificate: pathlib.Path
) -> None:
    receiver = start(ServerTls(str(certificate)), connections_max=2, request_timeout=600.0)
    with contextlib.ExitStack() as stack:
        connections(receiver, stack, 40)
        assert post_by_tls(receiver, certificate, b"[]")[0] == 200


def test_handshake_that_dribbles_is_cut_off(
    start: Callable[..., SampleReceiver], certificate: pathlib.Path
) -> None:
    """Each byte comes in time, the whole does not."""
    receiver = start(ServerTls(str(certificate)), request_timeout=0.3)
    hello, ours = ssl.MemoryBIO(), ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        ours.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
    record = hello.read()
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as connection:
        connection.settimeout(0.05)

        def is_closed() -> bool:
            nonlocal record
            connection.sendall(record[:1])
            record = record[1:]
            try:
                return connection.recv(1) == b""
            except TimeoutError:
                return False

        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wait_for("it is cut off", is_closed, 10)
        assert record, "before the hello was whole"

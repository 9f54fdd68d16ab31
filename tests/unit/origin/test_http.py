"""The HTTP driver and servers that do not do as they should."""

import contextlib
import pathlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin.http.driver import HttpOrigin
from acstor.origin.memory import MemoryOrigin
from testbed.origin_server import OriginServer

TIMEOUT = 0.2
PATIENCE = 10.0


class ScriptedServer:
    """Answers each request with the next of its answers, then closes the connection or keeps it.

    :param answers: bytes to send; None: nothing, and the connection stays open.
    """

    def __init__(self, *answers: bytes | None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def origin(self) -> HttpOrigin:
        """Return a client of it."""
        return HttpOrigin(f"http://127.0.0.1:{self._listener.getsockname()[1]}/base", TIMEOUT)

    def close(self) -> None:
        """Close everything."""
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self.connections += 1
                self._open.append(connection)
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        while True:
            request = b""
            while b"\r\n\r\n" not in request:
                part = connection.recv(65536)
                if not part:
                    return
                request += part
            self.requests.append(request)
            answer = self._answers.pop(0)
            if answer is None:
                continue
            connection.sendall(answer)
            if b"X-Last" in answer:
                connection.close()
                return


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(*answers: bytes | None) -> ScriptedServer:
        servers.append(ScriptedServer(*answers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def head(length: int, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def part(content: bytes, last: int, *headers: str) -> bytes:
    lines = ["HTTP/1.1 206 Part", f"Content-Length: {last + 1}", f"Content-Range: bytes 0-{last}/9"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + content


def test_connection_is_used_again(scripted: Callable[..., ScriptedServer]) -> None:
    server = scripted(head(5), head(6))
    origin = server.origin
    assert [origin.size("a"), origin.size("b")] == [5, 6]
    assert server.connections == 1


def test_request_says_no_more_than_it_must(scripted: Callable[..., ScriptedServer]) -> None:
    server = scripted(head(5))
    server.origin.size("packs/a")
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "HEAD /base/packs/a HTTP/1.1"
    names = {line.partition(":")[0] for line in lines[1:] if line}
    assert names == {"Host", "Accept-Encoding"}
    assert "Accept-Encoding: identity" in lines


def test_kept_connection_that_was_closed_is_opened_again(
    scripted: Callable[..., ScriptedServer],
) -> None:
    server = scripted(head(5, "X-Last: yes"), head(6))
    origin = server.origin
    assert origin.size("a") == 5
    server._open[0].close()
    assert origin.size("a") == 6
    assert server.connections == 2


def test_answer_that_breaks_off_is_not_the_end_of_an_object(
    scripted: Callable[..., ScriptedServer],
) -> None:
    server = scripted(part(b"ab", 8, "X-Last: yes"))
    with pytest.raises(exception.UnavailableError, match=r"GET /base/a at 127\.0\.0\.1"):
        server.origin.readinto("a", 0, memoryview(bytearray(9)))


def test_silence_ends_with_the_timeout(scripted: Callable[..., ScriptedServer]) -> None:
    server = scripted(None)
    with pytest.raises(exception.UnavailableError, match=r"127\.0\.0\.1: timed out"):
        server.origin.size("a")
    assert len(server.requests) == 1, "it is asked again by those who know that it may be"


@pytest.mark.parametrize("status", ["503 Busy", "302 Found"])
def test_an_error_is_told_once(scripted: Callable[..., ScriptedServer], status: str) -> None:
    text = f"HTTP/1.1 {status}\r\nLocation: /other\r\nContent-Length: 4\r\n\r\nno!\n"
    server = scripted(text.encode())
    with pytest.raises(exception.UnavailableError, match=f"GET /base/refs/a: {status[:3]} no!"):
        server.origin.get_ref("a")
    assert len(server.requests) == 1


def test_nobody_there_is_named_without_the_library(
    scripted: Callable[..., ScriptedServer],
) -> None:
    server = scripted()
    origin = server.origin
    server.close()
    with pytest.raises(exception.UnavailableError) as caught:
        HttpOrigin("http://127.0.0.1:1/").size("a")
    assert caught.value.message.endswith("at 127.0.0.1: [Errno 111] Connection refused")
    origin.close()


def test_closed_origin_opens_connections_again(scripted: Callable[..., ScriptedServer]) -> None:
    server = scripted(head(5), head(6))
    origin = server.origin
    assert origin.size("a") == 5
    origin.close()
    assert origin.size("a") == 6
    assert server.connections == 2


@pytest.fixture
def tls_origin(tmp_path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Serve an origin over TLS; give its URL and the certificate that it shows."""
    certificate, key = tmp_path / "host.pem", tmp_path / "host.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=origin",
            "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    server = OriginServer(("127.0.0.1", 0), MemoryOrigin())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/", certificate
    server.shutdown()
    thread.join(PATIENCE)
    server.server_close()


def test_certificate_of_an_unknown_authority_is_refused(
    tls_origin: tuple[str, pathlib.Path],
) -> None:
    with pytest.raises(exception.UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        HttpOrigin(tls_origin[0]).size("a")


def test_certificate_of_the_systems_authorities_is_accepted(
    tls_origin: tuple[str, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, certificate = tls_origin
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    origin = HttpOrigin(url)
    assert origin.put_if_absent("a", [b"ab", b"c"])
    assert origin.get("a", 3) == b"abc"


def test_certificate_of_another_name_is_refused(
    tls_origin: tuple[str, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, certificate = tls_origin
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(exception.UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        HttpOrigin(url.replace("127.0.0.1", "localhost")).size("a")

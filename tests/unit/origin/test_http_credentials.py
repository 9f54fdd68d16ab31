"""Credentials at the web server of an origin: read, refused, renewed, and never told."""

import contextlib
import pathlib
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from acstor import exception
from acstor.origin.http.credentials import CredentialFiles
from acstor.origin.http.driver import HttpOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.origin.opening import open_origin
from testbed.origin_server import OriginServer

PATIENCE = 20
TOKEN = "b-first.one~/+="
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(folder: pathlib.Path, *arguments: str) -> None:
    command = ["openssl", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


def make_authority(folder: pathlib.Path, name: str) -> None:
    openssl(
        folder, "req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem",
        "-days", "2", "-subj", f"/CN={name}",
    )  # fmt: skip


def make_certificate(folder: pathlib.Path, name: str, authority: str) -> None:
    openssl(
        folder, "req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr",
        "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
    )  # fmt: skip
    openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem",
        "-CAkey", f"{authority}.key", "-copy_extensions", "copy", "-days", "2",
        "-out", f"{name}.pem",
    )  # fmt: skip
    (folder / f"{name}.key").chmod(0o600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two authorities; a server and a host of the one, a stranger of the other."""
    made = tmp_path_factory.mktemp("tls")
    make_authority(made, "ca")
    make_authority(made, "other")
    make_certificate(made, "server", "ca")
    make_certificate(made, "host", "ca")
    make_certificate(made, "stranger", "other")
    return made


Serve = Callable[..., OriginServer]


def stop(server: OriginServer) -> None:
    server.shutdown()
    server.server_close()


@pytest.fixture
def serve(folder: pathlib.Path) -> Iterator[Serve]:
    """Start servers: with a token, with TLS, with certificates of hosts asked for."""
    running: list[tuple[OriginServer, threading.Thread]] = []

    def start(token: str | None = None, is_tls: bool = False, port: int = 0) -> OriginServer:
        server = OriginServer(("127.0.0.1", port), MemoryOrigin(), token)
        if is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem", folder / "server.key")
            context.load_verify_locations(folder / "ca.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        stop(server)
        thread.join(PATIENCE)


@pytest.fixture
def token_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def url(server: OriginServer, **files: pathlib.Path) -> str:
    scheme = "https" if isinstance(server.socket, ssl.SSLSocket) else "http"
    query = "&".join(f"{name}={path}" for name, path in files.items())
    return f"{scheme}://127.0.0.1:{server.server_address[1]}/" + (f"?{query}" if query else "")


def store(origin: HttpOrigin) -> None:
    assert origin.put_if_absent("a", [b"ab", b"c"])
    assert origin.get("a", 3) == b"abc"
    assert origin.swap_ref("r", None, b"content") is not None
    assert list(origin.list()) == ["a"]
    assert origin.delete("a")


def test_token_goes_along_with_each_request(serve: Serve, token_file: pathlib.Path) -> None:
    store(HttpOrigin(url(serve(TOKEN), token_file=token_file)))


def test_host_without_a_token_is_told_so(serve: Serve) -> None:
    origin = HttpOrigin(url(serve(TOKEN)))
    with pytest.raises(exception.UnavailableError, match="401") as caught:
        origin.size("a")
    assert "token file" in caught.value.hint


def test_refused_token_is_read_again(serve: Serve, token_file: pathlib.Path) -> None:
    server = serve(TOKEN)
    origin = HttpOrigin(url(server, token_file=token_file))
    assert origin.put_if_absent("a", [b"a"])
    server.token = "second"
    with pytest.raises(exception.UnavailableError, match="401") as caught:
        origin.put_if_absent("b", [b"b"])
    assert TOKEN not in str(caught.value)
    token_file.write_text("second\n")
    assert origin.put_if_absent("b", [b"b"])
    assert origin.get("b", 1) == b"b"


def test_token_that_cannot_be_read_again_is_named(serve: Serve, token_file: pathlib.Path) -> None:
    server = serve(TOKEN)
    origin = HttpOrigin(url(server, token_file=token_file))
    server.token = "second"
    token_file.unlink()
    with pytest.raises(exception.ConfigurationError, match=str(token_file)):
        origin.size("a")


def test_host_with_a_certificate_of_the_authority_is_served(
    serve: Serve, folder: pathlib.Path
) -> None:
    files = {
        "ca_cert": folder / "ca.pem",
        "cert_cert": folder / "host.pem",
        "cert_key": folder / "host.key",
    }
    store(HttpOrigin(url(serve(is_tls=True), **files)))


def test_certificate_and_key_may_be_in_one_file(
    serve: Serve, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_text((folder / "host.pem").read_text() + (folder / "host.key").read_text())
    both.chmod(0o600)
    store(HttpOrigin(url(serve(is_tls=True), ca_cert=folder / "ca.pem", cert_cert=both)))


@pytest.mark.parametrize("name", [None, "stranger"])
def test_strangers_are_not_served(serve: Serve, folder: pathlib.Path, name: str | None) -> None:
    files = {"ca_cert": folder / "ca.pem"}
    if name is not None:
        files |= {"cert_cert": folder / f"{name}.pem", "cert_key": folder / f"{name}.key"}
    with pytest.raises(exception.UnavailableError):
        HttpOrigin(url(serve(is_tls=True), **files)).size("a")


def test_server_of_another_authority_is_refused(serve: Serve, folder: pathlib.Path) -> None:
    origin = HttpOrigin(url(serve(is_tls=True), ca_cert=folder / "other.pem"))
    with pytest.raises(exception.UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        origin.size("a")


def test_renewed_certificate_is_shown_at_the_next_attempt(
    serve: Serve, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    mine, key = tmp_path / "mine.pem", tmp_path / "mine.key"

    def install(name: str) -> None:
        for path, source in ((mine, f"{name}.pem"), (key, f"{name}.key")):
            fresh = path.with_suffix(".new")
            fresh.write_bytes((folder / source).read_bytes())
            fresh.chmod(0o600)
            fresh.replace(path)

    install("stranger")
    origin = HttpOrigin(
        url(serve(is_tls=True), ca_cert=folder / "ca.pem", cert_cert=mine, cert_key=key)
    )
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("a", [b"a"])
    install("host")
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("a", [b"a"])
    store(origin)


def test_half_a_renewed_certificate_leaves_the_former_one(
    serve: Serve, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A certificate and its key are two files: there is a moment between them."""
    mine = tmp_path / "mine.pem"
    mine.write_bytes((folder / "host.pem").read_bytes())
    server = serve(is_tls=True)
    files = {"ca_cert": folder / "ca.pem", "cert_cert": mine, "cert_key": folder / "host.key"}
    origin = HttpOrigin(url(server, **files))
    stop(server)
    mine.write_bytes((folder / "stranger.pem").read_bytes())
    with pytest.raises(exception.UnavailableError):
        origin.size("a")
    serve(is_tls=True, port=server.server_address[1])
    store(origin)


def test_refusal_without_an_end_is_not_read_to_it(token_file: pathlib.Path) -> None:
    class Refusal(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            if self.headers["Authorization"] == "Bearer second":
                self.send_response(200)
                self.send_header("Content-Length", "3")
                self.end_headers()
                return
            token_file.write_text("second")
            self.send_response(401)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"1\r\na\r\n")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    origin = HttpOrigin(f"http://127.0.0.1:{server.server_address[1]}/?token_file={token_file}")
    with pytest.raises(exception.UnsupportedError):
        origin.get_ref("r")
    server.shutdown()
    server.server_close()


def test_entry_point_opens_an_origin_with_credentials(
    serve: Serve, token_file: pathlib.Path
) -> None:
    origin = open_origin(url(serve(TOKEN), token_file=token_file), 5.0)
    assert origin.put_if_absent("a", [b"a"])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("password=secret", "'password'"),
        ("token_file=/a&token_file=/b", "twice"),
        ("token_file=a", "absolute"),
        ("token_file=", "absolute"),
        ("cert_key=/a", "needs cert_cert"),
        ("secret", "malformed"),
        ("ca_cert=/" + "a" * 9000, "too long"),
    ],
)
def test_malformed_query_is_refused(query: str, message: str) -> None:
    with pytest.raises(exception.InvalidError, match=message) as caught:
        CredentialFiles.of_query(query)
    assert "secret" not in str(caught.value)


def test_query_may_escape_paths() -> None:
    assert CredentialFiles.of_query("token_file=%2Fa%20b").token_file == "/a b"


def test_token_is_not_sent_in_the_clear(token_file: pathlib.Path) -> None:
    with pytest.raises(exception.InvalidError, match="in the clear"):
        HttpOrigin(f"http://192.0.2.1/?token_file={token_file}")


def test_certificates_want_tls(folder: pathlib.Path) -> None:
    with pytest.raises(exception.InvalidError, match="https"):
        HttpOrigin(f"http://127.0.0.1/?ca_cert={folder / 'ca.pem'}")


@pytest.mark.parametrize("content", ["", "two words", "a\nb", 'quote"', "a" * 20_000])
def test_file_without_a_token_is_refused(token_file: pathlib.Path, content: str) -> None:
    token_file.write_text(content)
    with pytest.raises(exception.ConfigurationError) as caught:
        HttpOrigin(f"https://127.0.0.1/?token_file={token_file}")
    assert not content or content not in str(caught.value)


def test_token_that_others_may_read_is_refused(token_file: pathlib.Path) -> None:
    token_file.chmod(0o640)
    with pytest.raises(exception.ConfigurationError, match="others may read"):
        HttpOrigin(f"https://127.0.0.1/?token_file={token_file}")


@pytest.mark.parametrize("broken", ["ca_cert", "cert_cert", "cert_key"])
def test_file_without_a_certificate_is_refused(
    folder: pathlib.Path, tmp_path: pathlib.Path, broken: str
) -> None:
    files = {
        "ca_cert": folder / "ca.pem",
        "cert_cert": folder / "host.pem",
        "cert_key": folder / "host.key",
    }
    for path in (tmp_path / "absent", tmp_path / "empty"):
        if path.name == "empty":
            path.touch(0o600)
        query = "&".join(f"{name}={one}" for name, one in {**files, broken: path}.items())
        with pytest.raises(exception.ConfigurationError):
            HttpOrigin(f"https://127.0.0.1/?{query}")


def test_key_that_others_may_read_is_refused(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    key = tmp_path / "key"
    key.write_bytes((folder / "host.key").read_bytes())
    key.chmod(0o644)
    with pytest.raises(exception.ConfigurationError, match="others may read"):
        HttpOrigin(f"https://127.0.0.1/?cert_cert={folder / 'host.pem'}&cert_key={key}")

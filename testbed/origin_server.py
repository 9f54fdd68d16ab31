"""A web server over any origin, so that the testbed's origin can stand behind a shaped link.

The requests are those of :mod:`acstor.origin.http.driver`. Objects of a POSIX origin leave by
``sendfile``. One thread per connection: hosts keep a handful of connections each.
"""

import hmac
import os
import re
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from acstor import exception
from acstor.origin import base, posix, retrying

OBJECT_BYTES_MAX = 1 << 30
"""Largest object that is accepted."""
IDLE_TIMEOUT_SECONDS = 300.0
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")

_STATUS: dict[exception.ErrorKind, HTTPStatus] = {
    exception.ErrorKind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    exception.ErrorKind.INVALID: HTTPStatus.BAD_REQUEST,
    exception.ErrorKind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    exception.ErrorKind.OVERLOADED: HTTPStatus.TOO_MANY_REQUESTS,
    exception.ErrorKind.CORRUPT: HTTPStatus.INTERNAL_SERVER_ERROR,
    exception.ErrorKind.FENCED: HTTPStatus.PRECONDITION_FAILED,
    exception.ErrorKind.UNSUPPORTED: HTTPStatus.NOT_IMPLEMENTED,
    exception.ErrorKind.EXHAUSTED: HTTPStatus.INSUFFICIENT_STORAGE,
    exception.ErrorKind.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class OriginServer(ThreadingHTTPServer):
    """Serves one origin at an address.

    :param address: host and port; port 0 takes a free one, see ``server_address``.
    :param token: bearer token that each request has to bring; None: anybody is served.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], origin: base.Origin, token: str | None = None
    ) -> None:
        self.origin = origin
        self.token = token
        inner = origin.inner if isinstance(origin, retrying.RetryingOrigin) else origin
        self.posix_root = inner.root if isinstance(inner, posix.PosixOrigin) else None
        super().__init__(address, _OriginRequest)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away; everything else was answered."""

    def note_answer(self, command: str, path: str, received: int, sent: int) -> None:
        """Hear of a request before its answer goes out; a server that counts has its own.

        :param path: of the URL, with the query.
        :param received: bytes of the request's body.
        :param sent: bytes of the answer's body.
        """


class _OriginRequest(BaseHTTPRequestHandler):
    """One connection."""

    server: OriginServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_SECONDS
    disable_nagle_algorithm = True
    wbufsize = 65536  # headers and a small body in one segment
    _received = 0  # bytes of the body of the request that is being answered

    def log_message(self, *_: object) -> None:
        """Log nothing per request."""

    def do_GET(self) -> None:
        """Answer an object, a range of it, a ref or a list."""
        self._answer(self._get)

    def do_HEAD(self) -> None:
        """Answer the size of an object."""
        self._answer(lambda: self._head(self.server.origin.size(self._name())))

    def do_PUT(self) -> None:
        """Store an object or change a ref."""
        self._answer(self._put)

    def do_DELETE(self) -> None:
        """Remove an object or a ref."""
        self._answer(self._delete)

    def _answer(self, action: Callable[[], None]) -> None:
        self._received = 0
        if not self._is_authorised():
            # A body that was not read would be taken for the next request.
            self.close_connection = self.command == "PUT"
            self._send(HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"})
            self.wfile.flush()
            return
        try:
            action()
        except exception.AcstorError as error:
            # A body that was not read would be taken for the next request.
            self.close_connection = self.command == "PUT"
            self._send(_STATUS[error.kind], error.message.encode())
        self.wfile.flush()

    def _is_authorised(self) -> bool:
        token = self.server.token
        sent = self.headers.get("Authorization", "")
        return token is None or hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())

    def _get(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        if parts.query:
            self._list(urllib.parse.parse_qs(parts.query, keep_blank_values=True))
            return
        name = self._name()
        if name.startswith("refs/"):
            ref = self.server.origin.get_ref(name.removeprefix("refs/"))
            if ref is None:
                raise exception.NotFoundError(f"there is no ref {name}")
            tag = _tag(ref.token)
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
            else:
                self._send(HTTPStatus.OK, ref.content, {"ETag": tag})
            return
        size = self.server.origin.size(name)
        wanted = self.headers.get("Range")
        first, last = 0, size - 1
        if wanted is not None:
            match = _RANGE.fullmatch(wanted.strip())
            if match is None:
                raise exception.InvalidError(f"range {wanted!r} is not served")
            first, last = int(match[1]), min(int(match[2]), size - 1)
            if first >= size or first > last:
                self._send(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    headers={"Content-Range": f"bytes */{size}"},
                )
                return
        self._send_object(name, first, last - first + 1, size, is_range=wanted is not None)

    def _send_object(
        self, key: str, offset: int, length: int, size: int, *, is_range: bool
    ) -> None:
        headers = {}
        if is_range:
            headers["Content-Range"] = f"bytes {offset}-{offset + length - 1}/{size}"
        status = HTTPStatus.PARTIAL_CONTENT if is_range else HTTPStatus.OK
        root = self.server.posix_root
        if root is None:
            self._send(status, self.server.origin.get_range(key, offset, length), headers)
            return
        # The key was validated by size(), so it stays below the root.
        with open(os.path.join(root, key), "rb") as file:
            self._headers(status, length, headers)
            self.wfile.flush()
            if length:
                self.connection.sendfile(file, offset, length)

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        match query.get("list", [""])[0]:
            case "objects":
                names = self.server.origin.list(prefix)
            case "refs":
                names = self.server.origin.list_refs(prefix)
            case other:
                raise exception.InvalidError(f"there is no list of {other!r}")
        self._send(HTTPStatus.OK, "".join(f"{name}\n" for name in names).encode())

    def _put(self) -> None:
        name = self._name()
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > OBJECT_BYTES_MAX:
            raise exception.InvalidError(f"length {length!r} is none, or above {OBJECT_BYTES_MAX}")
        content = self.rfile.read(int(length))
        if len(content) != int(length):
            raise exception.InvalidError("the body broke off")
        self._received = len(content)
        if name.startswith("refs/"):
            token = self.server.origin.swap_ref(
                name.removeprefix("refs/"), self._expected(), content
            )
            self._send(HTTPStatus.CREATED, headers={"ETag": _tag(str(token))})
            return
        if self.headers.get("If-None-Match") != "*":
            raise exception.InvalidError("objects are only stored where they are absent")
        if self.server.origin.put_if_absent(name, [content]):
            self._send(HTTPStatus.CREATED)
        else:
            self._send(HTTPStatus.PRECONDITION_FAILED)

    def _delete(self) -> None:
        name = self._name()
        if name.startswith("refs/"):
            self.server.origin.swap_ref(name.removeprefix("refs/"), self._expected(), None)
            self._send(HTTPStatus.NO_CONTENT)
        elif self.server.origin.delete(name):
            self._send(HTTPStatus.NO_CONTENT)
        else:
            self._send(HTTPStatus.NOT_FOUND)

    def _expected(self) -> str | None:
        """Return the token that the client has seen; None: it expects no ref."""
        if self.headers.get("If-None-Match") == "*":
            return None
        tag = self.headers.get("If-Match", "")
        if not (len(tag) > 2 and tag[0] == tag[-1] == '"'):
            raise exception.InvalidError("a ref is only changed with If-Match or If-None-Match")
        return urllib.parse.unquote(tag[1:-1])

    def _name(self) -> str:
        return urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).removeprefix("/")

    def _head(self, size: int) -> None:
        self._headers(HTTPStatus.OK, size, {"Accept-Ranges": "bytes"})

    def _send(
        self, status: HTTPStatus, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self._headers(status, len(body), headers or {})
        if self.command != "HEAD" and status != HTTPStatus.NO_CONTENT:
            self.wfile.write(body)

    def _headers(self, status: HTTPStatus, length: int, headers: dict[str, str]) -> None:
        self.server.note_answer(self.command, self.path, self._received, length)
        self.send_response_only(status)
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self.send_header("Content-Length", str(length))
            self.send_header("Content-Type", _content_type(self.path))
        if self.close_connection:
            self.send_header("Connection", "close")  # or the client would ask over it again
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _content_type(path: str) -> str:
    return "text/plain; charset=us-ascii" if "?list=" in path else "application/octet-stream"


def _tag(token: str) -> str:
    return f'"{urllib.parse.quote(token, safe="")}"'

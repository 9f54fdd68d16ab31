"""An origin behind HTTP: ranged GET to read, conditional PUT to write.

Any static web server over the directory of a POSIX origin serves the objects. Refs, and writing,
take a server that knows them and conditional requests (RFC 9110, section 13), as ``tools/testbed
origin`` is one. Requests, relative to the origin's URL::

    GET, HEAD, PUT, DELETE  <key>          an object
    GET, PUT, DELETE        refs/<name>    a ref; its ETag is the token of its state
    GET                     ?list=objects&prefix=<prefix>   one key per line
    GET                     ?list=refs&prefix=<prefix>      one name per line

Hosts authenticate by a certificate or a token that the URL names
(:mod:`acstor.origin.http.credentials`). Without, use it on a network that only hosts reach: content
is safe all the same, because every chunk is verified against its digest; refs are not.
"""

import contextlib
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse
from urllib3.util import SKIP_HEADER

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.http.credentials import CredentialFiles, HttpCredentials

TIMEOUT_SECONDS = 10.0
"""Longest wait for the server: to connect, and for each piece of an answer."""
IDLE_CONNECTIONS_MAX = 32
"""Connections that are kept for the next call: more than ``[readpath] origin_threads`` may be."""
REFS_REMEMBERED_MAX = 256
"""Refs of which the last state is kept, to ask only for what changed since."""
REMEMBERED_BYTES_MAX = 4 << 20
"""Largest content of a ref that is kept for that."""
LISTING_BYTES_MAX = 256 << 20
"""Largest listing that is accepted, bytes: a name has at most 256 with its line end."""
_ERROR_TEXT_BYTES_MAX = 1000
_PART_BYTES = 1 << 20
"""Most that is read before it is copied to where the caller wants it."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class HttpOrigin(base.Origin):
    """Reads and writes over HTTP/1.1 with connections that are kept open.

    A request is sent once, unless the server refuses a token that was renewed meanwhile:
    :class:`~acstor.origin.retrying.RetryingOrigin` knows what may be repeated.

    :param url: ``http://host:port/path/`` or ``https://...``, with the query that
        :mod:`acstor.origin.http.credentials` describes.
    :param timeout_seconds: of each socket operation.
    :raises InvalidError: when the URL is none, holds a user, another query or a fragment, or would
        send credentials in the clear.
    :raises ConfigurationError: when credentials cannot be used.
    """

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        parts = urllib.parse.urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise exception.InvalidError(f"origin URL {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise exception.InvalidError(f"{url!r} is no URL of a web server")
        if parts.username or parts.password or parts.fragment:
            raise exception.InvalidError(
                f"the URL of the origin on {parts.hostname} holds more than host, port and path",
                hint="name files with credentials in its query",
            )
        files = CredentialFiles.of_query(parts.query) if parts.query else CredentialFiles()
        self._credentials = HttpCredentials(files, parts.scheme, parts.hostname)
        self._host, self._port = parts.hostname, port
        self._path = parts.path.rstrip("/") + "/"
        self._timeout = timeout_seconds
        self._seen: dict[str, base.Ref] = {}
        self._pool = self._new_pool()

    @classmethod
    def from_url(cls, url: urllib.parse.SplitResult) -> "HttpOrigin":
        """Open ``http://host[:port][/path][?credentials]`` or ``https://...``.

        :raises InvalidError: as the constructor.
        :raises ConfigurationError: as the constructor.
        """
        return cls(url.geturl())

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        path = keys.validate_key(key)
        with self._request(
            "PUT", path, {"If-None-Match": "*"}, base.as_views(buffers), ok=(201, 204, 412)
        ) as answer:
            return bool(answer.status != HTTPStatus.PRECONDITION_FAILED)

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        path = keys.validate_key(key)
        if offset < 0:
            raise exception.InvalidError(f"offset {offset} is negative")
        if not len(buffer):
            self.size(key)
            return 0
        wanted = {"Range": f"bytes={offset}-{offset + len(buffer) - 1}"}
        with self._request("GET", path, wanted, ok=(200, 206, 416)) as answer:
            if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return 0
            count = _range_length(answer, key, offset, len(buffer))
            return _read_body(answer, buffer[:count])

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        with self._request("HEAD", keys.validate_key(key)) as answer:
            return _content_length(answer, key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        yield from self._listing("objects", prefix)

    def delete(self, key: str) -> bool:
        """Delete an object."""
        with self._request("DELETE", keys.validate_key(key), ok=(204, 404)) as answer:
            return bool(answer.status != HTTPStatus.NOT_FOUND)

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        return self._ref(name, self._seen.get(name))

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state; the server sends it only where it is another one."""
        return self._ref(name, known)

    def _ref(self, name: str, seen: base.Ref | None) -> base.Ref | None:
        condition = {} if seen is None else {"If-None-Match": _quote_tag(seen.token)}
        with self._request("GET", _ref_path(name), condition, ok=(200, 304, 404)) as answer:
            if answer.status == HTTPStatus.NOT_FOUND:
                return None
            if answer.status == HTTPStatus.NOT_MODIFIED:
                return seen
            length = _content_length(answer, name)
            if length > base.REF_SIZE_MAX:
                raise exception.InvalidError(f"ref {name} has {length} bytes, too many for a ref")
            content = bytearray(length)
            if _read_body(answer, memoryview(content)) != length:
                raise exception.UnavailableError(f"the answer for ref {name} broke off")
            ref = base.Ref(token=_token(answer, name), content=bytes(content))
        self._remember(name, ref)
        return ref

    def _remember(self, name: str, ref: base.Ref) -> None:
        """Keep a ref, so that the server need not send it again while it does not change."""
        if len(ref.content) > REMEMBERED_BYTES_MAX:
            return
        while len(self._seen) >= REFS_REMEMBERED_MAX:
            # Another thread may empty it at the same time.
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                self._seen.pop(next(iter(self._seen)))
        self._seen[name] = ref

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        path = _ref_path(name)
        base.check_ref_content(name, content)
        condition = (
            {"If-None-Match": "*"} if expected is None else {"If-Match": _quote_tag(expected)}
        )
        method = "DELETE" if content is None else "PUT"
        body = None if content is None else [memoryview(content)]
        with self._request(method, path, condition, body, ok=(200, 201, 204, 404, 412)) as answer:
            if answer.status == HTTPStatus.PRECONDITION_FAILED:
                raise exception.ConflictError(f"ref {name} was changed by someone else")
            return None if content is None else _token(answer, name)

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        yield from self._listing("refs", prefix)

    def close(self) -> None:
        """Close the idle connections."""
        former, self._pool = self._pool, self._new_pool()
        former.close()

    def _listing(self, kind: str, prefix: str) -> Iterator[str]:
        query = urllib.parse.urlencode({"list": kind, "prefix": keys.validate_prefix(prefix)})
        with self._request("GET", f"?{query}") as answer:
            length = _content_length(answer, f"list of {kind}")
            if length > LISTING_BYTES_MAX or _content_type(answer) != "text/plain":
                raise exception.UnsupportedError(
                    "the web server of the origin cannot list",
                    hint="register images and collect garbage on the origin's own directory",
                )
            content = bytearray(length)
            if _read_body(answer, memoryview(content)) != length:
                raise exception.UnavailableError(f"the list of {kind} broke off")
        for line in content.decode("ascii").splitlines():
            yield keys.validate_key(line) if kind == "objects" else keys.validate_ref_name(line)

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Sequence[memoryview] | None = None,
        ok: tuple[int, ...] = (200,),
    ) -> Iterator[BaseHTTPResponse]:
        """Send a request; yield its answer, whose status is one of ``ok``."""
        what = f"{method} {self._path}{path}"
        length = {} if body is None else {"Content-Length": str(sum(map(len, body)))}
        sent = {"User-Agent": SKIP_HEADER, **(headers or {}), **length}
        try:
            answer = self._authorised(method, path, sent, body)
            try:
                if answer.status not in ok:
                    raise _error(answer, what)
                yield answer
                answer.read(_ERROR_TEXT_BYTES_MAX)
            finally:
                # One whose answer was read to its end is in the pool again, and stays open.
                answer.close()
                answer.release_conn()
        except (OSError, HTTPError) as error:
            # A renewed certificate is shown at the next attempt, which is the caller's.
            self._credentials.renew_certificate()
            raise exception.UnavailableError(f"{what} at {self._host}: {_reason(error)}") from error

    def _authorised(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Sequence[memoryview] | None,
    ) -> BaseHTTPResponse:
        """Send a request; send it again where its token was refused and there is a newer one."""
        credentials = self._credentials.headers()
        answer = self._sent(method, path, {**headers, **credentials}, body)
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        try:
            is_renewed = self._credentials.renew_token(credentials)
        except BaseException:
            answer.close()
            raise
        if not is_renewed:
            return answer
        # Not read to its end, which a server that lies never sends.
        answer.close()
        answer.release_conn()
        return self._sent(method, path, {**headers, **self._credentials.headers()}, body)

    def _sent(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Sequence[memoryview] | None,
    ) -> BaseHTTPResponse:
        return self._pool.urlopen(
            method,
            self._path + path,
            body=body,  # type: ignore[arg-type] # it is sent as it is, piece by piece
            headers=headers,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        timeout = urllib3.Timeout(connect=self._timeout, read=self._timeout)
        tls = self._credentials.tls
        if tls is not None:
            return urllib3.HTTPSConnectionPool(
                self._host,
                self._port,
                timeout=timeout,
                maxsize=IDLE_CONNECTIONS_MAX,
                ssl_context=tls,
            )
        return urllib3.HTTPConnectionPool(
            self._host, self._port, timeout=timeout, maxsize=IDLE_CONNECTIONS_MAX
        )


def _reason(error: BaseException) -> str:
    """Return what went wrong, without what urllib3 wraps around it."""
    while True:
        inner = error.__cause__ or next(
            (part for part in error.args if isinstance(part, Exception)), None
        )
        if inner is None:
            return str(error) or type(error).__name__
        error = inner


def _ref_path(name: str) -> str:
    return f"refs/{keys.validate_ref_name(name)}"


def _quote_tag(token: str) -> str:
    return f'"{urllib.parse.quote(token, safe="")}"'


def _token(answer: BaseHTTPResponse, name: str) -> str:
    tag = answer.headers.get("ETag", "").removeprefix("W/").strip('"')
    if not tag:
        raise exception.UnsupportedError(f"the web server of the origin gave ref {name} no ETag")
    return urllib.parse.unquote(tag)


def _content_length(answer: BaseHTTPResponse, what: str) -> int:
    text = answer.headers.get("Content-Length", "")
    if not text.isascii() or not text.isdigit():
        raise exception.UnsupportedError(f"the web server of the origin gave {what} no length")
    return int(text)


def _content_type(answer: BaseHTTPResponse) -> str:
    return answer.headers.get("Content-Type", "text/plain").partition(";")[0].strip().lower()


def _range_length(answer: BaseHTTPResponse, key: str, offset: int, length_max: int) -> int:
    """Return how many bytes of the asked range the answer holds."""
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if answer.status != HTTPStatus.PARTIAL_CONTENT or match is None:
        raise exception.UnsupportedError(
            f"the web server of the origin answered a range of {key} with status {answer.status}",
            hint="use a web server that serves ranges (Accept-Ranges: bytes)",
        )
    first, last = int(match[1]), int(match[2])
    if first != offset or not first <= last < first + length_max:
        raise exception.UnavailableError(f"the web server answered another range of {key}")
    return last - first + 1


def _read_body(answer: BaseHTTPResponse, buffer: memoryview) -> int:
    done = 0
    while done < len(buffer):
        part = answer.read(min(_PART_BYTES, len(buffer) - done))
        if not part:
            break
        buffer[done : done + len(part)] = part
        done += len(part)
    return done


def _error(answer: BaseHTTPResponse, what: str) -> exception.AcstorError:
    """Return the error for a status that the caller does not expect."""
    text = answer.read(_ERROR_TEXT_BYTES_MAX).decode("utf-8", "replace").strip()
    message = f"{what}: {answer.status} {text.splitlines()[0] if text else answer.reason}"
    match answer.status:
        case HTTPStatus.NOT_FOUND:
            return exception.NotFoundError(message)
        case HTTPStatus.BAD_REQUEST | HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return exception.InvalidError(message)
        case HTTPStatus.CONFLICT:
            return exception.ConflictError(message)
        case HTTPStatus.UNAUTHORIZED:
            # Whoever waits for it goes on once the credentials are in order.
            return exception.UnavailableError(
                message,
                hint="the web server of the origin refuses this host: see that [origin] url names "
                "the certificate or the token file that it expects, and that they are current",
            )
        case HTTPStatus.METHOD_NOT_ALLOWED | HTTPStatus.NOT_IMPLEMENTED | HTTPStatus.FORBIDDEN:
            return exception.UnsupportedError(message, hint="this web server only serves reads")
        case HTTPStatus.INSUFFICIENT_STORAGE:
            return exception.ExhaustedError(message)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return exception.OverloadedError(message)
        case _:
            return exception.UnavailableError(message)

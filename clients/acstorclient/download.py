"""Content of versions and of files in them, as it comes."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO

import requests
from openstack import proxy

from acstorclient.archive_end import ArchiveEnd
from acstorclient.exception import ApiError, DownloadFailed

PART_BYTES = 256 << 10
"""Bytes that are held in memory at a time, and lost where a connection breaks among them."""
LOOK_SECONDS = 150.0
"""Longest silence of the API where it looks into a disk first, for which it takes 120 s at most.

Who leaves earlier leaves a process behind, and each repetition another one.
"""
BREAKS_MAX = 5
"""Most breaks of a connection in a row that bring no byte; then it is given up."""

Observer = Callable[[int, int | None], None]
"""Called with the bytes that are there, and all of them where that is known."""

BUSY = frozenset({502, 503, 504})
"""Statuses after which it is tried again: nobody answers, or too many download."""
WAIT_SECONDS_MAX = 60.0
"""Longest wait between two attempts; the first is of a second, each further one twice as long."""
_BREAKS = (
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
)


def write_body(
    response: requests.Response, sink: IO[bytes], look: Callable[[bytes], object] | None = None
) -> int:
    """Write a body that cannot be taken up again, and return its length, bytes.

    :param look: called with each part.
    :raises DownloadFailed: it is shorter than its head says, or its connection breaks.
    """
    written = 0
    try:
        for part in response.iter_content(PART_BYTES):
            sink.write(part)
            written += len(part)
            if look:
                look(part)
    except _BREAKS as error:
        raise DownloadFailed(
            f"{response.url} broke off after {written} bytes: {error}; try again"
        ) from error
    expected = _length(response)
    if expected is not None and written != expected:
        raise DownloadFailed(f"{response.url} ended after {written} of {expected} bytes; try again")
    return written


def write_archive(response: requests.Response, sink: IO[bytes]) -> int:
    """Write a tar archive whose length nobody knew before, and return its length, bytes.

    :raises DownloadFailed: its end does not come, or its connection breaks.
    """
    end = ArchiveEnd()
    try:
        written = write_body(response, sink, end.take)
    except ValueError as error:
        raise DownloadFailed(f"{response.url} is no archive: {error}") from error
    if not end.is_reached:
        raise DownloadFailed(
            f"{response.url} broke off after {written} bytes: the end of the archive is missing; "
            "try again"
        )
    return written


class Download:
    """A body that is taken up again where its connection breaks.

    Source: RFC 9110, ``Range`` and ``If-Range``: the rest comes only while the content is the one
    that was begun.

    :param path: of the API.
    :param wait: how to wait between attempts that bring nothing, seconds.
    """

    def __init__(
        self,
        session: proxy.Proxy,
        path: str,
        query: Mapping[str, str],
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._session = session
        self._wait = wait or time.sleep
        self._path = path
        self._query = dict(query)

    def write_to(self, sink: IO[bytes], observe: Observer | None = None) -> int:
        """Write the body, and return its length, bytes.

        :raises DownloadFailed: it breaks too often, becomes another one, or has another length
            than its head says.
        """
        head = self._session.head(self._path, params=self._query, timeout=LOOK_SECONDS)
        length, etag = _length(head), head.headers.get("ETag", "")
        if length is None or not etag:
            raise DownloadFailed(f"{self._path} says neither length nor digest of its content")
        written, breaks = 0, 0
        while written < length:
            before = written
            error: Exception | None = None
            try:
                for part in self._rest(written, etag):
                    written += len(part)
                    if written > length:
                        raise DownloadFailed(f"{self._path} is longer than its {length} bytes")
                    sink.write(part)
                    if observe:
                        observe(written, length)
            except _BREAKS as broken:
                error = broken
            except ApiError as refused:
                if refused.status_code not in BUSY:
                    raise
                error = refused
            breaks = breaks + 1 if written == before else 0
            if breaks > BREAKS_MAX:
                raise DownloadFailed(
                    f"{self._path} breaks off after {written} of {length} bytes, "
                    f"{breaks} times in a row; try again later"
                ) from error
            if breaks:
                self._wait(min(2.0 ** (breaks - 1), WAIT_SECONDS_MAX))
        return written

    def _rest(self, begin: int, etag: str) -> Iterator[bytes]:
        """Yield the content from a place on.

        :raises DownloadFailed: it is another content by now.
        """
        headers = {"Range": f"bytes={begin}-", "If-Range": etag} if begin else {}
        with self._session.get(
            self._path,
            params=self._query,
            headers=headers,
            stream=True,
            timeout=LOOK_SECONDS,
        ) as response:
            is_same = response.headers.get("ETag", etag) == etag
            if not is_same or (begin and response.status_code != requests.codes.partial):
                raise DownloadFailed(f"{self._path} changes while it is read; begin anew")
            yield from response.iter_content(PART_BYTES)


def _length(response: requests.Response) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() else None

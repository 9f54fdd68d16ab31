"""Parts of bodies: ``Range`` and ``If-Range``, of one range.

Source: RFC 9110, sections 13.1.5 and 14. Differs: of several ranges none is sent.
"""

from collections.abc import Iterable

import falcon

from acstor.api.operations import Answer
from acstor.api.validation import MEDIA_BYTES

UNIT = "bytes"
"""Unit of ranges."""


def range_of(request: falcon.Request, size: int, etag: str) -> tuple[int, int] | None:
    """Return first byte and first one after it; None: all of the body is wanted.

    :raises HTTPError: 400 when the header is malformed, 416 when the body has no such bytes.
    """
    condition = request.get_header("If-Range")
    if request.range_unit != UNIT or condition not in (None, etag):
        return None
    wanted = request.range
    if wanted is None:
        return None
    first, last = wanted
    if first < 0:
        first, last = max(size + first, 0), -1
    end = size if last < 0 else min(last + 1, size)
    if first >= end:
        raise falcon.HTTPRangeNotSatisfiable(size)
    return first, end


def answer(wanted: tuple[int, int] | None, size: int, etag: str, stream: Iterable[bytes]) -> Answer:
    """Return the answer that has the bytes of a range, or all."""
    if wanted is None:
        return Answer(headers=headers(size, etag), stream=stream)
    start, end = wanted
    found = headers(end - start, etag)
    found["Content-Range"] = f"{UNIT} {start}-{end - 1}/{size}"
    return Answer(status=206, headers=found, stream=stream)


def headers(length: int, etag: str) -> dict[str, str]:
    """Return the headers of bytes that a name has."""
    return {
        "Accept-Ranges": UNIT,
        "Cache-Control": "private, no-store",
        "Content-Length": str(length),
        "Content-Type": MEDIA_BYTES,
        "ETag": etag,
    }

"""Messages and limits of the admin protocol: JSON-RPC 2.0, one object per line."""

import enum
import json
from dataclasses import dataclass, field
from typing import Any

from acstor import exception, untrusted_json

PROTOCOL_VERSION = 1
"""Raised when a method or a field changes its meaning; ``status`` tells it."""

REQUEST_BYTES_MAX = 64 << 10
"""Longest request line, with its newline, bytes. Files go by path."""
RESPONSE_BYTES_MAX = 64 << 20
"""Longest response line, with its newline, bytes."""
CONNECTIONS_MAX = 16
"""Connections served at a time."""
REQUEST_DEADLINE = 5.0
"""Seconds from the first byte of a request to its last."""
RESPONSE_DEADLINE = 10.0
"""Seconds that the client may take to read a response."""
IDLE_TIMEOUT = 60.0
"""Seconds after which a silent connection is closed."""
TRACE_ENTRIES_MAX = 200_000
"""Most reads that a trace records: some 30 MB of JSON."""
PIN_TIMEOUT_MAX = 600.0
"""Longest time that one pin request may take, seconds."""
PIN_BYTES_MAX = 1 << 40
"""Most bytes at one end of an image that can be pinned."""

SKETCH_MAX = 256
"""Most digests of a sketch of the chunk store."""
DISTANCE_THRESHOLD_MAX = 255
"""Largest distance that a host can be told to keep from others, hops."""
LINK_RATE_MAX = 1 << 40
"""Highest rate that a link can be told to have free, bytes per second."""
LINK_RATE_VALID_MAX = 3600.0
"""Longest time for which a free rate holds without being told again, seconds."""
PRELOAD_RATE_MAX = 1 << 40
"""Highest limit that a preload may be given, bytes per second."""
BOOT_NUMBER_MAX = (1 << 53) - 1
"""Greatest number of a recorded boot: microseconds since 1970, until the year 2255."""

VOLUME_BYTES_MAX = 1 << 50
"""Largest volume, bytes."""
VOLUME_FREEZE_MAX = 60.0
"""Longest time that the writes of a volume may be held, seconds."""
VOLUME_HOLDER_LENGTH_MAX = 64
"""Longest name of somebody who holds the writes of a volume, characters."""
VOLUME_RATE_MAX = 1 << 40
"""Highest limit that a volume may be given, requests or bytes per second."""
VOLUME_OPEN_TIMEOUT = 120.0
"""Seconds that a client gives ``volume.open``, ``close``, ``push`` and ``fold``: they may read or
write hundreds of MiB of the origin."""


class PreloadWhat(enum.StrEnum):
    """Part of an image that a preload brings."""

    WORKING_SET = "working-set"
    """Chunks that boots of the image have read."""
    FULL = "full"
    """The whole image."""


class PreloadState(enum.StrEnum):
    """State of a preload of the data plane; the page of its state machine is ``preload``."""

    QUEUED = "queued"
    """As many others run as may."""
    RUNNING = "running"
    YIELDING = "yielding"
    """Reads of guests wait: nothing new is fetched."""
    WAITING = "waiting"
    """The origin does not answer; tried again until it does or somebody stops the preload."""
    DONE = "done"
    """All of it is in the chunk store."""
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def has_ended(self) -> bool:
        """True if the preload does nothing any more."""
        return self in {PreloadState.DONE, PreloadState.FAILED, PreloadState.STOPPED}


class VolumeRole(enum.StrEnum):
    """Role of a host for a volume that it opens."""

    OWNER = "owner"
    """It takes the writes; one host at a time."""
    STANDBY = "standby"
    """The destination of a live migration, until the hand-over."""


class LocalVolumeState(enum.StrEnum):
    """State of a volume on this host; the page of its state machine is ``volume``."""

    CLOSED = "closed"
    """Nothing of it is here."""
    OPENING = "opening"
    """Ownership, base and log are being had; clients wait."""
    STANDBY = "standby"
    """Served through the owner, until the hand-over."""
    SERVING = "serving"
    FROZEN = "frozen"
    """Reads are served, writes wait: a consistent snapshot of a group is being taken."""
    FENCED = "fenced"
    """Another host owns it: every request fails with EIO until the volume is closed here."""
    CLOSING = "closing"
    """No client is served; what the origin does not have yet is being pushed."""


class Code(enum.IntEnum):
    """Error codes; those below -32099 are JSON-RPC's own."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    FAILED = -32000
    """The method was refused or failed; ``data.kind`` is the error kind."""
    BUSY = -32001
    """Too many connections."""


_KIND_OF_CODE = {
    Code.PARSE_ERROR: exception.ErrorKind.INVALID,
    Code.INVALID_REQUEST: exception.ErrorKind.INVALID,
    Code.METHOD_NOT_FOUND: exception.ErrorKind.UNSUPPORTED,
    Code.INVALID_PARAMS: exception.ErrorKind.INVALID,
    Code.INTERNAL_ERROR: exception.ErrorKind.INTERNAL,
    Code.BUSY: exception.ErrorKind.OVERLOADED,
}

RequestId = int | str


@dataclass(frozen=True)
class Request:
    """One call."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)
    id: RequestId = 1


class ProtocolError(Exception):
    """A message that is not acceptable; becomes an error response.

    :param code: says what is wrong.
    :param request_id: of the request, where it could be read.
    """

    def __init__(self, code: Code, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.request_id = request_id


def encode_request(request: Request) -> bytes:
    """Return the line for a request.

    :raises ProtocolError: when it is longer than allowed.
    """
    line = _line(
        {
            "jsonrpc": "2.0",
            "id": request.id,
            "method": request.method,
            "params": request.params,
        }
    )
    if len(line) > REQUEST_BYTES_MAX:
        raise ProtocolError(
            Code.INVALID_REQUEST, f"a request has at most {REQUEST_BYTES_MAX} bytes"
        )
    return line


def decode_request(line: bytes) -> Request:
    """Return the request of a line.

    Differs from JSON-RPC 2.0: no batches, no notifications (every request has an id), parameters
    by name only.

    :raises ProtocolError: for anything else.
    """
    if len(line) > REQUEST_BYTES_MAX:
        raise ProtocolError(
            Code.INVALID_REQUEST, f"a request has at most {REQUEST_BYTES_MAX} bytes"
        )
    message = _object(line)
    request_id = message.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, (int, str)):
        raise ProtocolError(Code.INVALID_REQUEST, "id must be a number or a text")
    if message.get("jsonrpc") != "2.0":
        raise ProtocolError(Code.INVALID_REQUEST, 'jsonrpc must be "2.0"', request_id)
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise ProtocolError(Code.INVALID_REQUEST, "method must be a text", request_id)
    if not isinstance(params, dict):
        raise ProtocolError(Code.INVALID_PARAMS, "params must be an object", request_id)
    return Request(method, params, request_id)


def encode_result(request_id: RequestId, result: object) -> bytes:
    """Return the line for a successful call.

    :raises ProtocolError: when it is longer than allowed.
    """
    line = _line({"jsonrpc": "2.0", "id": request_id, "result": result})
    if len(line) > RESPONSE_BYTES_MAX:
        raise ProtocolError(
            Code.INTERNAL_ERROR, f"the result has more than {RESPONSE_BYTES_MAX} bytes", request_id
        )
    return line


def encode_error(
    code: Code,
    message: str,
    request_id: RequestId | None = None,
    kind: exception.ErrorKind | None = None,
) -> bytes:
    """Return the line for a call that failed."""
    kind = kind or _KIND_OF_CODE.get(code, exception.ErrorKind.INTERNAL)
    error = {"code": int(code), "message": message, "data": {"kind": str(kind)}}
    return _line({"jsonrpc": "2.0", "id": request_id, "error": error})


def decode_response(line: bytes, request: Request) -> Any:
    """Return the result that a response line holds.

    :raises AcstorError: of the class of the error's kind, when the call failed.
    :raises ProtocolError: when the line is no response to ``request``.
    """
    message = _object(line)
    error = message.get("error")
    if isinstance(error, dict):
        raise _as_exception(error)
    if message.get("id") != request.id or "result" not in message:
        raise ProtocolError(Code.INVALID_REQUEST, "not a response to this request")
    return message["result"]


def _as_exception(error: dict[str, Any]) -> exception.AcstorError:
    details = error.get("data")
    name = details.get("kind") if isinstance(details, dict) else None
    try:
        kind = exception.ErrorKind(str(name))
    except ValueError:
        kind = exception.ErrorKind.INTERNAL
    return exception.CLASS_OF_KIND[kind](f"the data plane says: {error.get('message')}")


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    try:
        message = untrusted_json.load(line, "the line")
    except ValueError as error:
        raise ProtocolError(Code.PARSE_ERROR, "not a line of JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError(Code.INVALID_REQUEST, "not an object; batches are not supported")
    return message

"""Words and limits of the socket on which ``acstor-mount`` is asked.

One request and one response per connection, each one packet (``SOCK_SEQPACKET``). A request is
``<version> <operation> <mount point>``, a response ``<version> ok`` or ``<version> <kind of error>
<text>``. Nothing of what is done comes from a request: the mount point in it is only compared with
that of the configuration. The page is ``doc/source/reference/protocols/mounting.rst``.
"""

import enum
import os
from dataclasses import dataclass

from acstor import exception

PROTOCOL_VERSION = 1
"""Raised when a word changes its meaning."""
REQUEST_BYTES_MAX = 4096 + 32
"""Longest request, bytes: a path of the kernel's greatest length, and the words before it."""
RESPONSE_BYTES_MAX = 1024
"""Longest response, bytes."""
REQUEST_DEADLINE = 2.0
"""Seconds from the connection to its request, which is sent at once."""
RESPONSE_DEADLINE = 2.0
"""Seconds that a response may wait for room in the socket."""


class Operation(enum.StrEnum):
    """Operations of the mounter, see :class:`acstor.mounting.mounter.Mounter`."""

    MOUNT = "mount"
    SET_READ_AHEAD = "read-ahead"
    UNMOUNT = "unmount"
    DETACH = "detach"


@dataclass(frozen=True)
class OperationTraits:
    """Properties of an operation that both sides rely on."""

    timeout: float
    """Seconds until its response, longer than it takes at the most."""
    returns_descriptor: bool = False


OPERATIONS: dict[Operation, OperationTraits] = {
    # A mount that is found is asked for two seconds whether somebody serves it.
    Operation.MOUNT: OperationTraits(timeout=15.0, returns_descriptor=True),
    Operation.SET_READ_AHEAD: OperationTraits(timeout=3.0),
    # The grace is a quarter of [dataplane] stop_timeout, which is a minute at the most; then an
    # abort, and the end of what the kernel frees, of five seconds each.
    Operation.UNMOUNT: OperationTraits(timeout=30.0),
    Operation.DETACH: OperationTraits(timeout=10.0),
}


class MalformedMessageError(ValueError):
    """A packet is not what the protocol says."""


def encode_request(operation: Operation, mount_point: str) -> bytes:
    """Return the packet of a request."""
    return b"%d %s %s" % (PROTOCOL_VERSION, operation.value.encode(), os.fsencode(mount_point))


def decode_request(packet: bytes) -> tuple[Operation, str]:
    """Return the operation and the mount point of a request.

    :raises MalformedMessageError: when it is none.
    """
    version, _, rest = packet.partition(b" ")
    if version != b"%d" % PROTOCOL_VERSION:
        raise MalformedMessageError(f"another version than {PROTOCOL_VERSION}")
    word, separator, path = rest.partition(b" ")
    try:
        operation = Operation(word.decode("ascii"))
    except ValueError as error:
        raise MalformedMessageError("no such operation") from error
    if not separator or not path.startswith(b"/") or b"\0" in path:
        raise MalformedMessageError("no absolute mount point")
    return operation, os.fsdecode(path)


def encode_response(error: exception.AcstorError | None) -> bytes:
    """Return the packet that says that a request was carried out, or why not."""
    if error is None:
        return b"%d ok" % PROTOCOL_VERSION
    text = f"{PROTOCOL_VERSION} {error.kind} {error.message}"
    return text.encode(errors="replace")[:RESPONSE_BYTES_MAX]


def decode_response(packet: bytes) -> exception.AcstorError | None:
    """Return the error of a response; None: it was carried out.

    :raises MalformedMessageError: when it is no response.
    """
    version, _, rest = packet.decode(errors="replace").partition(" ")
    if version != str(PROTOCOL_VERSION):
        raise MalformedMessageError(f"another version than {PROTOCOL_VERSION}")
    word, _, text = rest.partition(" ")
    if word == "ok" and not text:
        return None
    try:
        kind = exception.ErrorKind(word)
    except ValueError as error:
        raise MalformedMessageError("no known kind of error") from error
    return exception.CLASS_OF_KIND[kind](
        f"acstor-mount: {text}", hint="see the log of acstor-mount"
    )

"""Words and limits of the supervision protocol.

Source: sd_notify(3), sd_listen_fds(3) and sd_pid_notify_with_fds(3) of systemd 252.
"""

from collections.abc import Mapping

FIRST_PASSED_FD = 3
"""Descriptors are passed from this number on."""
MESSAGE_BYTES_MAX = 4096
"""Longest datagram, bytes (systemd's own limit)."""
DESCRIPTORS_PER_MESSAGE_MAX = 16
"""Most descriptors of one datagram."""
NAME_LENGTH_MAX = 255
"""Longest FDNAME, characters (as in systemd)."""
EXIT_STOPPED = 100
"""Exit status of a process that was asked to stop for good: its supervisor starts no other
(``RestartPreventExitStatus=`` of the unit)."""
DEFAULT_NAME = "stored"
"""FDNAME of a descriptor that came without one (as in systemd)."""


class MalformedMessageError(ValueError):
    """A datagram is not lines of ``NAME=value``."""


def is_valid_name(name: str) -> bool:
    """Return whether ``name`` may name a descriptor: printable ASCII without a colon."""
    return 0 < len(name) <= NAME_LENGTH_MAX and all(" " <= c <= "~" and c != ":" for c in name)


def encode_message(assignments: Mapping[str, str]) -> bytes:
    """Return the datagram for some assignments.

    :raises ValueError: when it would be longer than ``MESSAGE_BYTES_MAX``.
    """
    message = "\n".join(f"{name}={value}" for name, value in assignments.items()).encode()
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a notification has at most {MESSAGE_BYTES_MAX} bytes")
    return message


def decode_message(message: bytes) -> dict[str, str]:
    """Return the assignments of a datagram; of a repeated name the last.

    :raises MalformedMessageError: for anything else than lines of ``NAME=value``.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise MalformedMessageError(f"longer than {MESSAGE_BYTES_MAX} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessageError("not UTF-8") from error
    assignments = {}
    for line in text.split("\n"):
        if not line:
            continue
        name, separator, value = line.partition("=")
        if not separator or not name:
            raise MalformedMessageError(f"no assignment: {line!r}")
        assignments[name] = value
    return assignments

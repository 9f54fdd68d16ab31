"""Desired state of a host: the refs ``hosts/<name>`` in the origin.

They live there because everybody reaches the origin, and because it must outlive the agent
that is to fulfil it. A host without a ref is wanted to serve.
"""

import json
import logging
from dataclasses import dataclass

from acstor import exception, untrusted_json
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore

LOG = logging.getLogger(__name__)

HOST_PREFIX = "hosts/"
DESIRED_STATE_VERSION = 1


@dataclass(frozen=True)
class DesiredState:
    """State of one host that the operator wants."""

    is_drained: bool = False

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        return (
            json.dumps({"version": DESIRED_STATE_VERSION, "drain": self.is_drained}).encode()
            + b"\n"
        )

    @classmethod
    def parse(cls, content: bytes, host: str) -> "DesiredState":
        """Read a ref's content.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields = untrusted_json.load(content, "a desired state")
            version, is_drained = fields["version"], fields["drain"]
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(
                f"the desired state of host {host} is malformed",
                hint=f"write it anew: acstor host undrain {host}",
            ) from error
        if version != DESIRED_STATE_VERSION:
            raise exception.UnsupportedError(
                f"the desired state of host {host} has version {version!r:.20}"
            )
        if not isinstance(is_drained, bool):
            raise exception.CorruptError(f"the desired state of host {host} is malformed")
        return cls(is_drained)


def read_desired_state(refs: RefStore, host: str) -> DesiredState:
    """Return what is wanted of a host.

    :raises CorruptError: and the like when the ref is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(HOST_PREFIX + host)
    return DesiredState() if ref is None else DesiredState.parse(ref.content, host)


def is_drained(refs: RefStore, host: str) -> bool:
    """Return whether a host is to own nothing; False where its desired state is not readable.

    :raises UnavailableError: when the origin cannot be reached.
    """
    try:
        return read_desired_state(refs, host).is_drained
    except (exception.CorruptError, exception.UnsupportedError) as error:
        LOG.warning("%s; the host counts as one that is to serve", error)
        return False


def write_desired_state(refs: RefStore, host: str, desired: DesiredState) -> None:
    """Change what is wanted of a host; the last of several writers wins.

    :raises ConflictError: when others write all the time.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref_replacement.replace(refs, HOST_PREFIX + host, desired.encode())


def forget_desired_state(refs: RefStore, host: str) -> bool:
    """Forget what is wanted of a host; errors as in :func:`write_desired_state`.

    :returns: whether there was anything.
    """
    return ref_replacement.replace(refs, HOST_PREFIX + host, None)

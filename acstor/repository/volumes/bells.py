"""Bells: how a host learns at once that the record of one of its volumes is worth a look.

Whoever serves volumes looks at the record of each now and then: another host may own it by now, or
wait for it in a live migration. A guest must not wait for that look; so who waits rings the owner's
bell, a ref that only tells *that* something is up, and a host with any number of volumes looks at
one ref often, and at its records seldom.

A bell is a hint: one that is lost, or rung for nothing, changes no more than when somebody looks.
Layout: ``doc/source/reference/formats/volume-bell.rst``.
"""

import hashlib
import json
import secrets

from acstor.origin import ref_replacement
from acstor.origin.base import Origin

BELL_VERSION = 1
BELL_PREFIX = "volume-bells/"


def bell_ref(host: str) -> str:
    """Return the name of a host's bell; hosts' names are any text."""
    return BELL_PREFIX + hashlib.sha256(host.encode()).hexdigest()[:32]


def encode(host: str, nonce: str) -> bytes:
    """Return the content of a bell.

    :param nonce: 32 hexadecimal digits, different each time.
    """
    fields = {"version": BELL_VERSION, "host": host, "nonce": nonce}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def ring(origin: Origin, host: str) -> None:
    """Have a host look at the records of its volumes.

    :raises UnavailableError: when the origin cannot be reached.
    :raises ConflictError: when others ring all the time: it hears them.
    """
    ref_replacement.replace(origin, bell_ref(host), encode(host, secrets.token_hex(16)))


def heard(origin: Origin, host: str) -> str | None:
    """Return what changes whenever a host's bell is rung; None: it never was.

    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = origin.get_ref(bell_ref(host))
    return None if ref is None else ref.token

"""Doorbells: the signal to a host that the record of one of its volumes has changed.

Whoever serves volumes reads the record of each now and then: another host may own it by now, or
wait for it in a live migration. A guest must not wait for that; so the requester rings the owner's
doorbell, a ref that only tells *that* something is up, and a host with any number of volumes reads
one ref often, and its records seldom.

A doorbell is a hint: one that is lost, or rung for nothing, changes only when somebody looks.
Layout: ``doc/source/reference/formats/volume-doorbell.rst``.
"""

import hashlib
import json
import secrets

from acstor.origin import ref_replacement
from acstor.origin.base import RefStore

DOORBELL_VERSION = 1
DOORBELL_PREFIX = "volume-bells/"


def doorbell_ref(host: str) -> str:
    """Return the name of a host's doorbell; hosts' names are any text."""
    return DOORBELL_PREFIX + hashlib.sha256(host.encode()).hexdigest()[:32]


def encode(host: str, nonce: str) -> bytes:
    """Return the content of a doorbell.

    :param nonce: 32 hexadecimal digits, different each time.
    """
    fields = {"version": DOORBELL_VERSION, "host": host, "nonce": nonce}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def ring(refs: RefStore, host: str) -> None:
    """Have a host look at the records of its volumes.

    :raises UnavailableError: when the origin cannot be reached.
    :raises ConflictError: when others ring all the time: it hears them.
    """
    ref_replacement.replace(refs, doorbell_ref(host), encode(host, secrets.token_hex(16)))


def heard(refs: RefStore, host: str) -> str | None:
    """Return what changes whenever a host's doorbell is rung; None: it never was.

    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(doorbell_ref(host))
    return None if ref is None else ref.token

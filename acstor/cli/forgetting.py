"""Preconditions of forgetting a host: nothing that is deleted then may be needed there any more."""

import enum
import ipaddress
import socket
import time

from acstor import exception
from acstor.cli.usage_view import named
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.images.usage import Usage, read_usage

ANSWER_TIMEOUT = 2.0
"""Seconds for a data plane to accept a connection, where one runs."""
REFUSALS = 3
REFUSAL_PAUSE = 1.0
"""Seconds between two of :data:`REFUSALS`, the refused connections after which a data plane counts
as stopped: one that is replaced, or started again after it died, accepts connections again within a
second."""


class Presence(enum.Enum):
    """Sign of life of a data plane: the result of a connection to its address."""

    RUNNING = "running"
    """Somebody accepts connections there."""
    STOPPED = "stopped"
    """The host's kernel says that nobody does."""
    UNKNOWN = "unknown"
    """Nobody answers: the host is off, or cannot be reached from here while its guests run."""


def check_forgettable(
    refs: RefStore, host: str, ring_address: str | None, *, is_here: bool
) -> None:
    """Refuse to forget a host while its record keeps what nobody else does, or may.

    :param is_here: whether it is the host that this runs on.
    :param ring_address: of its data plane, ``ip:port``, where the ring has the host. Hosts that are
        drained or silent have left it; those say it in their record.
    :raises ConflictError: naming what it uses and when it spoke last.
    :raises CorruptError: and the like when its record is not readable.
    """
    usage = read_usage(refs, host)
    recorded = usage.peer_address if usage else ""
    found = {address: presence(address) for address in (ring_address, recorded) if address}
    running = [address for address, seen in found.items() if seen is Presence.RUNNING]
    if running:
        raise exception.ConflictError(
            f"the data plane of host {host} still answers at {running[0]}",
            hint="guests may be running there: stop it, or start acstor-agent again; "
            "with --force it is forgotten all the same",
        )
    if usage is not None:
        _check_unused(refs, host, usage)
        is_stopped = bool(found) and all(
            _is_stopped(address, seen, is_here=is_here) for address, seen in found.items()
        )
        if not is_stopped:
            _check_nothing_attached(host, usage, found)


def presence(address: str) -> Presence:
    """Return whether anybody accepts connections at ``ip:port``."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_TIMEOUT):
            return Presence.RUNNING
    except ConnectionRefusedError:
        return Presence.STOPPED
    except (OSError, ValueError, OverflowError):
        return Presence.UNKNOWN


def _is_stopped(address: str, seen: Presence, *, is_here: bool) -> bool:
    """Return whether the host itself says so, and goes on saying it."""
    if seen is not Presence.STOPPED or (not is_here and _is_of_any_machine(address)):
        return False
    for _ in range(REFUSALS - 1):
        time.sleep(REFUSAL_PAUSE)
        if presence(address) is not Presence.STOPPED:
            return False
    return True


def _is_of_any_machine(address: str) -> bool:
    """Return whether whoever asks there asks itself: names often resolve to 127.0.1.1 at home."""
    try:
        found = ipaddress.ip_address(address.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return True
    return found.is_loopback or found.is_unspecified


def _check_unused(refs: RefStore, host: str, usage: Usage) -> None:
    registered = {
        name.removeprefix(layout.IMAGE_PREFIX) for name in refs.list_refs(layout.IMAGE_PREFIX)
    }
    orphans = sorted(set(usage.manifests.values()) - registered)
    used = sorted(usage.images) + sorted(f"base file {base}" for base in usage.bases)
    if not used and not orphans:
        return
    parts = []
    if used:
        parts.append(f"uses {named(used)}")
    if orphans:
        parts.append(f"keeps what is left of {named(orphans)}, registered no more")
    raise exception.ConflictError(
        f"host {host} {' and '.join(parts)}{_spoke(usage)}",
        hint="evacuate or delete its instances; with --force it is forgotten all the same: what "
        "only it needs is then deleted, and its instances are lost",
    )


def _check_nothing_attached(host: str, usage: Usage, asked: dict[str, Presence]) -> None:
    """Refuse while images are attached, or may be, and nobody knows whether guests read them."""
    if usage.manifests:
        attached = f"{named(sorted(set(usage.manifests.values())))} attached"
    elif usage.names_manifests:
        return
    else:
        attached = "an agent that does not say which images are attached"
    where = " or ".join(f"nobody answers at {address}" for address in asked)
    raise exception.ConflictError(
        f"host {host} has {attached}, and whether its data plane still runs cannot be told: "
        f"{where or 'its address is not known'}{_spoke(usage)}",
        hint="make sure that the host is off, or run 'acstor host stop-dataplane' there; with "
        "--force it is forgotten all the same: guests that still run there get I/O errors once one "
        "of these images is withdrawn",
    )


def _spoke(usage: Usage) -> str:
    return f"; it spoke last at {usage.time}" if usage.time else ""

"""Live state of the cluster: one document for all who draw it.

It is made of what hosts have told and of the members, and asks no host. Its cursor is a digest of
it: the same in each process of the API, so that a viewer may ask any of them; who has the newest
one is answered 304 and nothing else. However many look, a process makes it once in a while.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.api import times
from acstor.api.cluster.deployment import Deployment
from acstor.api.cluster.host_watch import HeardState
from acstor.cluster.member import Member
from acstor.telemetry import host_state_details

CURSOR_LENGTH = 32
"""Characters of a cursor."""


def state_of(member: Member | None) -> str:
    """Return the state of a host: ``gone`` sends no heartbeats, its data plane may still serve."""
    if member is None:
        return "gone"
    return "draining" if member.is_draining else "serving"


class LiveState:
    """Live state as viewers are shown it; from any thread.

    :param deployment: says for how long others are shown what one viewer was.
    :param clock: monotonic seconds.
    """

    def __init__(self, deployment: Deployment, clock: Callable[[], float] = time.monotonic) -> None:
        self._deployment = deployment
        self._clock = clock
        self._lock = threading.Lock()  # of what follows; viewers that come meanwhile wait for it
        self._made: dict[str, Any] | exception.AcstorError | None = None
        self._made_at = 0.0

    def document(self) -> dict[str, Any]:
        """Return the document, with its cursor; who is shown it must not change it.

        :raises UnavailableError: when members or ring cannot be had, to all for as long.
        """
        with self._lock:
            is_old = self._clock() - self._made_at >= self._deployment.max_age
            if self._made is None or is_old:
                try:
                    self._made = document(self._deployment)
                except exception.AcstorError as error:
                    self._made = error
                self._made_at = self._clock()
            found = self._made
        if isinstance(found, exception.AcstorError):
            raise found
        return found


def document(deployment: Deployment) -> dict[str, Any]:
    """Return the live state, with its cursor."""
    members, heard, ring = deployment.members(), deployment.states(), deployment.ring()
    shares = {} if ring is None else ring.shares
    names = sorted({*members, *shares})
    content: dict[str, Any] = {
        "ring_generation": None if ring is None else ring.generation,
        "hosts": [
            _host(name, members.get(name), heard.get(name), shares.get(name, 0.0)) for name in names
        ],
    }
    text = json.dumps(content, sort_keys=True).encode()
    return {"cursor": hashlib.sha256(text).hexdigest()[:CURSOR_LENGTH], **content}


def _host(
    name: str, member: Member | None, heard: HeardState | None, share: float
) -> dict[str, Any]:
    """Return a host. Rates are bytes per second; None: it has told nothing of that lately."""
    told = None if heard is None else heard.state
    return {
        "name": name,
        "state": state_of(member),
        "is_up": None if told is None else told.is_up,
        "topology": "" if member is None else member.topology,
        "capacity_bytes": None if member is None else member.capacity_bytes,
        "ring_share": round(share, 6),
        "extra_in_bytes_per_second": told and _whole(told.extra_in),
        "extra_out_bytes_per_second": told and _whole(told.extra_out),
        "moved_in_bytes_per_second": told and _whole(told.moved_in),
        "moved_out_bytes_per_second": told and _whole(told.moved_out),
        "link_bytes_per_second": told and _whole(told.link_bytes_per_s),
        "load": None if told is None else told.load,
        "disk": None if told is None else host_state_details.disk_to_message(told.disk),
        "peers": {} if told is None else host_state_details.peers_to_message(told.peers),
        "images_covered": {} if told is None else dict(sorted(told.coverage.items())),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def host_fields(
    name: str, member: Member | None, heard: HeardState | None, *, is_drain_wanted: bool
) -> dict[str, Any]:
    """Return a host as lists of hosts show it."""
    return {
        "name": name,
        "state": state_of(member),
        "draining": is_drain_wanted,
        "store": None if member is None else {"capacity_bytes": member.capacity_bytes},
        "topology": "" if member is None else member.topology,
        "release": None if member is None else member.release,
        "seen_at": None if heard is None else times.text(heard.heard_at),
    }

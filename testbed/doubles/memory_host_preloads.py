"""Hosts that preload, in memory: the agent's end of preloads as flows see it.

A preload brings a half of what it began with each time that it is asked about.
"""

import dataclasses
from collections.abc import Iterable

from acstor import exception
from acstor.preload.many_hosts import HostPreload
from acstor.preload.request import PreloadRequest
from acstor.preload.states import ACTIVE, AdmittedPreloadState
from acstor.versions.services.preloads import Told

TOTAL_BYTES = 1000


class MemoryHostPreloads:
    """Preloads of every host.

    :ivar alive: hosts that are members.
    :ivar silent: hosts that do not answer.
    :ivar refusing: errors of hosts that do not begin.
    :ivar stuck: hosts that fetch nothing.
    :ivar held: preloads by host and id, ended ones included.
    """

    def __init__(self, alive: Iterable[str] = ("h1", "h2")) -> None:
        self.alive = list(alive)
        self.silent: set[str] = set()
        self.refusing: dict[str, exception.AcstorError] = {}
        self.stuck: set[str] = set()
        self.held: dict[tuple[str, str], HostPreload] = {}
        self.begun: list[tuple[str, PreloadRequest]] = []

    @property
    def active(self) -> set[str]:
        """Hosts that fetch."""
        return {host for (host, _), one in self.held.items() if one.state in ACTIVE}

    def hosts(self) -> list[str]:
        """Return the hosts that are alive."""
        return list(self.alive)

    def start(
        self, hosts: Iterable[str], request: PreloadRequest, preload_id: str
    ) -> dict[str, Told]:
        """Begin a preload, once."""
        return {host: self._start(host, request, preload_id) for host in hosts}

    def _start(self, host: str, request: PreloadRequest, preload_id: str) -> Told:
        if host in self.silent:
            return _silence(host)
        if host in self.refusing:
            return self.refusing[host]
        if (host, preload_id) not in self.held:
            self.begun.append((host, request))
            self.held[host, preload_id] = _preload(host, request, preload_id)
        return self.held[host, preload_id]

    def status(self, hosts: Iterable[str], image: str, preload_id: str) -> dict[str, Told]:
        """Return how far it is, and have it go on."""
        found: dict[str, Told] = {}
        for host in hosts:
            known = self.held.get((host, preload_id))
            found[host] = _silence(host) if host in self.silent else known
            if host not in self.silent and known is not None and host not in self.stuck:
                self.held[host, preload_id] = _after(known)
        return found

    def stop(
        self, hosts: Iterable[str], image: str, preload_id: str
    ) -> dict[str, exception.AcstorError | None]:
        """Stop it."""
        found: dict[str, exception.AcstorError | None] = {}
        for host in hosts:
            found[host] = _silence(host) if host in self.silent else None
            known = self.held.get((host, preload_id))
            if host not in self.silent and known is not None and known.state in ACTIVE:
                self.end(host, preload_id, AdmittedPreloadState.STOPPED)
        return found

    def end(
        self, host: str, preload_id: str, state: AdmittedPreloadState, error: str | None = None
    ) -> None:
        """Have a preload end."""
        known = self.held[host, preload_id]
        self.held[host, preload_id] = dataclasses.replace(known, state=state, error=error)


def _silence(host: str) -> exception.AcstorError:
    return exception.DeadlineError(f"host {host} did not answer")


def _preload(host: str, request: PreloadRequest, preload_id: str) -> HostPreload:
    return HostPreload(
        host=host, id=preload_id, image=request.image, what=str(request.what), pin=request.pin,
        state=AdmittedPreloadState.RUNNING, is_late=False, total_bytes=TOTAL_BYTES,
        remaining_bytes=TOTAL_BYTES, rate_bytes_per_s=request.rate_bytes_per_s or 1,
        recent_bytes_per_s=0, eta_s=None, deadline_s=None, age_s=0.0, error=None,
    )  # fmt: skip


def _after(known: HostPreload) -> HostPreload:
    if known.state not in ACTIVE:
        return known
    remaining = max(0, known.remaining_bytes - TOTAL_BYTES // 2)
    state = known.state if remaining else AdmittedPreloadState.DONE
    return dataclasses.replace(known, remaining_bytes=remaining, state=state)

"""Preloads on hosts, as their agents answer over the message bus (version 1.1).

All hosts are asked at the same time, and each answers for itself. Every call may be repeated: a
preload has an id, and beginning or stopping it twice is doing it once.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from acstor import exception
from acstor.cluster.member import Member
from acstor.control.protocol import PreloadWhat
from acstor.preload import many_hosts
from acstor.preload.many_hosts import Agents, HostPreload
from acstor.preload.request import PreloadRequest
from acstor.rpc.agent_client import Answer

Told = HostPreload | exception.AcstorError | None
"""Answer of one host: the preload, the error, or that it knows of no such preload."""


class HostPreloads(Protocol):
    """Preloads on hosts."""

    def hosts(self) -> list[str]:
        """Return the hosts that are alive and not drained.

        :raises UnavailableError: when that cannot be read.
        """

    def start(
        self, hosts: Iterable[str], request: PreloadRequest, preload_id: str
    ) -> Mapping[str, Told]:
        """Begin a preload on hosts, or find that it was begun.

        A host that knows of no boots of the image gets the whole image.
        """

    def status(self, hosts: Iterable[str], image: str, preload_id: str) -> Mapping[str, Told]:
        """Return how far it is on hosts."""

    def stop(
        self, hosts: Iterable[str], image: str, preload_id: str
    ) -> Mapping[str, exception.AcstorError | None]:
        """Stop it on hosts; None: nothing is fetched for it there any more."""


class RpcPreloads:
    """Preloads over the message bus; see :class:`HostPreloads`.

    :param members: returns the hosts that are alive, by name.
    """

    def __init__(self, agents: Agents, members: Callable[[], Mapping[str, Member]]) -> None:
        """Keep how to call."""
        self._agents = agents
        self._members = members

    def hosts(self) -> list[str]:
        """Return the hosts to preload to; see :meth:`HostPreloads.hosts`."""
        members = self._members()
        return sorted(name for name, member in members.items() if not member.is_draining)

    def start(
        self, hosts: Iterable[str], request: PreloadRequest, preload_id: str
    ) -> Mapping[str, Told]:
        """Begin a preload; see :meth:`HostPreloads.start`."""
        found = self._start(hosts, request, preload_id)
        unknown = [host for host, one in found.items() if isinstance(one, exception.NotFoundError)]
        if unknown and request.what is PreloadWhat.WORKING_SET:
            whole = dataclasses.replace(request, what=PreloadWhat.FULL)
            found.update(self._start(unknown, whole, preload_id))
        return found

    def _start(
        self, hosts: Iterable[str], request: PreloadRequest, preload_id: str
    ) -> dict[str, Told]:
        arguments = {**request.to_arguments(), "id": preload_id}
        answers = self._call(hosts, "preload_start", arguments)
        return {host: _told(answer, preload_id) for host, answer in answers.items()}

    def status(self, hosts: Iterable[str], image: str, preload_id: str) -> Mapping[str, Told]:
        """Return how far it is; see :meth:`HostPreloads.status`."""
        answers = self._call(hosts, "preload_status", {"image": image})
        return {host: _told(answer, preload_id) for host, answer in answers.items()}

    def stop(
        self, hosts: Iterable[str], image: str, preload_id: str
    ) -> Mapping[str, exception.AcstorError | None]:
        """Stop it; see :meth:`HostPreloads.stop`."""
        answers = self._call(hosts, "preload_stop", {"image": image, "id": preload_id})
        return {
            host: None if isinstance(answer.error, exception.NotFoundError) else answer.error
            for host, answer in answers.items()
        }

    def _call(
        self, hosts: Iterable[str], method: str, arguments: Mapping[str, object]
    ) -> dict[str, Answer]:
        names = list(hosts)
        return self._agents.call_all(names, method, dict.fromkeys(names, arguments))


def _told(answer: Answer, preload_id: str) -> Told:
    """Return what a host tells of one preload."""
    if answer.error is not None:
        return answer.error
    try:
        found = many_hosts.told(answer.host, answer.result)
    except exception.InternalError as error:
        return error
    return next((one for one in found if one.id == preload_id), None)

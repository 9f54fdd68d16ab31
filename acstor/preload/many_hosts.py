"""Preload on many hosts: all admit it or none begins; then the progress of each."""

import concurrent.futures
import dataclasses
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.cluster.member import Member
from acstor.preload import admission
from acstor.preload.admission import Estimate, Reason, Verdict
from acstor.preload.request import PreloadRequest, is_number, is_whole
from acstor.preload.states import AdmittedPreloadState
from acstor.rpc.agent_client import HOSTS_AT_A_TIME_MAX, Answer

_STATE_LENGTH_MAX = 32
SILENCE_MAX = 60.0
"""Seconds without an answer after which a host counts as lost."""
_REASONS: dict[type[exception.AcstorError], Reason] = {
    exception.NotFoundError: Reason.UNKNOWN,
    exception.UnavailableError: Reason.SILENT,
    exception.DeadlineError: Reason.SILENT,
}


class Agents(Protocol):
    """Calls to the agents of other hosts; see :class:`acstor.rpc.agent_client.AgentClient`."""

    def call(self, host: str, method: str, **arguments: object) -> Any: ...  # noqa: D102
    def call_all(  # noqa: D102
        self, hosts: Iterable[str], method: str, arguments: Mapping[str, Mapping[str, object]]
    ) -> dict[str, Answer]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class HostPreload:
    """Progress of a preload on one host, as it was last reported."""

    host: str
    id: str
    image: str
    what: str
    pin: bool
    state: AdmittedPreloadState
    is_late: bool
    total_bytes: int
    remaining_bytes: int
    rate_bytes_per_s: int
    """At most."""
    recent_bytes_per_s: int
    eta_s: float | None
    deadline_s: float | None
    age_s: float
    error: str | None
    local_file: str | None = None
    """State of the image's local file there; None: there is none, or the host is of a release that
    knows of none."""
    is_lost: bool = False
    """True if the host has not answered for long."""

    @property
    def share(self) -> float:
        """Share of the requested bytes that are there, 0 to 1."""
        if not self.total_bytes:
            return (
                1.0
                if self.state in {AdmittedPreloadState.DONE, AdmittedPreloadState.MISSED}
                else 0.0
            )
        return (self.total_bytes - self.remaining_bytes) / self.total_bytes

    @property
    def is_settled(self) -> bool:
        """True if waiting any longer changes nothing about whether the preload was kept."""
        return self.state.has_ended or self.is_late or self.is_lost

    @classmethod
    def from_answer(cls, host: str, answer: object) -> "HostPreload":
        """Return what a host tells of one preload.

        :raises InternalError: when it tells nonsense.
        """
        problem = exception.InternalError(f"host {host} tells nonsense of its preloads")
        if not isinstance(answer, Mapping):
            raise problem
        values: dict[str, Any] = {"host": host}
        for name, is_fine in _CHECKS.items():
            values[name] = answer.get(name)
            if not is_fine(values[name]):
                raise problem
        try:
            values["state"] = AdmittedPreloadState(values["state"])
        except ValueError as error:
            raise problem from error
        local_file = answer.get("local_file")
        if _is_text(local_file) and len(str(local_file)) <= _STATE_LENGTH_MAX:
            values["local_file"] = local_file
        return cls(**values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_size(value: object) -> bool:
    return is_whole(value) and 0 <= int(str(value)) < 1 << 62


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _or_none(is_fine: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_fine(value)


_CHECKS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("id", "image", "what", "state"), _is_text),
    **dict.fromkeys(("pin", "is_late"), _is_flag),
    **dict.fromkeys(
        ("total_bytes", "remaining_bytes", "rate_bytes_per_s", "recent_bytes_per_s"), _is_size
    ),
    **dict.fromkeys(("eta_s", "deadline_s"), _or_none(is_number)),
    "age_s": is_number,
    "error": _or_none(_is_text),
}


def ask(
    agents: Agents, request: PreloadRequest, hosts: Iterable[str], members: Mapping[str, Member]
) -> list[Verdict]:
    """Ask hosts whether they can admit a preload; nothing begins.

    :param members: the hosts that are alive.
    """
    names = list(hosts)
    verdicts: dict[str, Verdict] = {}
    for host in names:
        member = members.get(host)
        if member is None:
            verdicts[host] = _refused(host, Reason.SILENT, "it is no member: no agent runs there")
        elif member.is_draining:
            verdicts[host] = _refused(host, Reason.DRAINING, "it is drained")
    arguments = {"image": request.image, "what": str(request.what)}
    asked = [host for host in names if host not in verdicts]
    answers = agents.call_all(asked, "preload_estimate", dict.fromkeys(asked, arguments))
    for host, answer in answers.items():
        try:
            if answer.error is not None:
                raise answer.error
            verdicts[host] = admission.judge(request, Estimate.from_answer(host, answer.result))
        except exception.AcstorError as error:
            reason = _REASONS.get(type(error), Reason.FAILED)
            verdicts[host] = _refused(host, reason, error.message)
    return [verdicts[host] for host in names]


def begin(agents: Agents, request: PreloadRequest, hosts: Iterable[str]) -> dict[str, HostPreload]:
    """Have all hosts admit a preload and begin.

    :raises AcstorError: when one of them does not; the others have been stopped again then.
    """
    names = list(hosts)
    admission_id = str(uuid.uuid4())
    arguments = {**request.to_arguments(), "id": admission_id}
    answers = agents.call_all(names, "preload_start", dict.fromkeys(names, arguments))
    failed = [answer for answer in answers.values() if answer.error is not None]
    if failed:
        # Also those that did not answer: they may have begun all the same.
        undo = {"image": request.image, "id": admission_id}
        agents.call_all(names, "preload_stop", dict.fromkeys(names, undo))
        first = failed[0].error
        assert first is not None
        raise type(first)(
            f"{len(failed)} of {len(names)} hosts did not begin, the others were stopped again: "
            f"{first.message}",
            hint=first.hint,
        )
    return {host: HostPreload.from_answer(host, answer.result) for host, answer in answers.items()}


class Progress:
    """Asks hosts again and again how far they are; none holds up the others.

    :param begun: what :func:`begin` returned, or the hosts told before.
    """

    def __init__(
        self,
        agents: Agents,
        begun: Mapping[str, HostPreload],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._hosts = dict(begun)
        self._clock = clock
        self._heard_at = dict.fromkeys(self._hosts, clock())
        self._asked: dict[str, concurrent.futures.Future[HostPreload | None]] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max(1, min(len(self._hosts), HOSTS_AT_A_TIME_MAX))
        )

    @property
    def hosts(self) -> list[HostPreload]:
        """Progress on each host, as far as it is known."""
        return list(self._hosts.values())

    @property
    def is_settled(self) -> bool:
        """True if waiting any longer changes nothing."""
        return all(each.is_settled for each in self._hosts.values())

    def poll(self) -> None:
        """Take what has been answered, ask again; waits for nobody."""
        for host, known in list(self._hosts.items()):
            if known.is_settled:
                continue
            asked = self._asked.get(host)
            if asked is not None and asked.done():
                del self._asked[host]
                self._take(host, known, asked)
            if host not in self._asked and not self._hosts[host].is_settled:
                self._asked[host] = self._pool.submit(self._ask, known)

    def close(self) -> None:
        """Ask nobody any more; does not wait for answers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(
        self,
        host: str,
        known: HostPreload,
        asked: "concurrent.futures.Future[HostPreload | None]",
    ) -> None:
        now = self._clock()
        try:
            found = asked.result()
        except exception.AcstorError as error:
            is_lost = now - self._heard_at[host] > SILENCE_MAX
            self._hosts[host] = dataclasses.replace(
                known, is_lost=is_lost, recent_bytes_per_s=0, eta_s=None, error=error.message
            )
            return
        self._heard_at[host] = now
        self._hosts[host] = found or dataclasses.replace(
            known, state=AdmittedPreloadState.STOPPED, error="the host does not know of it any more"
        )

    def _ask(self, known: HostPreload) -> HostPreload | None:
        answer = self._agents.call(known.host, "preload_status", image=known.image)
        for each in answer if isinstance(answer, list) else [answer]:
            found = HostPreload.from_answer(known.host, each)
            if found.id == known.id:
                return found
        return None


def told(host: str, answer: object) -> list[HostPreload]:
    """Return the preloads that a host tells.

    :raises InternalError: when it tells nonsense.
    """
    entries = answer if isinstance(answer, list) else [answer]
    return [HostPreload.from_answer(host, entry) for entry in entries]


def _refused(host: str, reason: Reason, text: str) -> Verdict:
    return Verdict(host, reason=reason, text=text)

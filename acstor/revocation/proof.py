"""Proof that hosts have no chunk of a revoked image: each is asked, page by page, and asked again.

It is the word of each host's agent and data plane, given over signed messages. A host that cannot
be asked is named; whoever repeats the proof asks every host anew.
"""

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from acstor import exception
from acstor.backoff import BackOff
from acstor.repository.images import image_registry
from acstor.repository.images.revocation import HostProof, Revocation
from acstor.repository.progress import Progress
from acstor.revocation.answers import PageAnswer, ProofState
from acstor.rpc.agent_client import HOSTS_AT_A_TIME_MAX

DROP, CHECK = "revocation_drop", "revocation_check"
RETRY = BackOff(first=1.0, longest=10.0)
"""Delays before a host is asked again that still holds chunks, or has the image attached."""
NOTE_MAX = 200
"""Characters of a note."""


class Agents(Protocol):
    """Calls of agents, as :class:`acstor.rpc.agent_client.AgentClient` has them."""

    def call(self, host: str, method: str, **arguments: object) -> object: ...  # noqa: D102


@dataclasses.dataclass(slots=True)
class _Counts:
    """Sums of one host over all pages and rounds."""

    held: int = 0
    dropped: int = 0
    left: int = 0
    attached: bool = False


class Proof:
    """Asks hosts at the same time, none of which holds up the others.

    :param found: with its pages.
    :param timeout: seconds for which a host is asked again that is not rid of the chunks.
    :param progress: told of each page of each host, twice.
    :param wait: waits for seconds; returns whether to stop.
    :param clock: monotonic seconds.
    :param wall_clock: seconds since the epoch, for people.
    """

    def __init__(
        self,
        agents: Agents,
        found: Revocation,
        *,
        timeout: float,
        progress: Progress | None = None,
        wait: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._agents = agents
        self._found = found
        self._timeout = timeout
        self._progress = progress or Progress()
        self._is_over = threading.Event()
        self._wait = wait or self._is_over.wait
        self._clock = clock
        self._wall_clock = wall_clock

    def run(self, hosts: Collection[str]) -> dict[str, HostProof]:
        """Ask all hosts; return what each has proven, in their order."""
        names = list(hosts)
        if not names:
            return {}
        self._progress.begin("asking hosts", 2 * len(names) * max(1, len(self._found.page_sizes)))
        with concurrent.futures.ThreadPoolExecutor(min(len(names), HOSTS_AT_A_TIME_MAX)) as pool:
            try:
                return dict(zip(names, pool.map(self._prove, names), strict=True))
            finally:
                self._is_over.set()  # an interrupted command waits for no host

    def _prove(self, host: str) -> HostProof:
        counts = _Counts()
        until = self._clock() + self._timeout
        attempt = 0
        while True:
            proof = self._round(host, counts, is_first=attempt == 0)
            attempt += 1
            delay = RETRY.seconds(attempt)
            is_worth_it = ProofState(proof.state) in {ProofState.HELD, ProofState.ATTACHED}
            if not is_worth_it or self._clock() + delay >= until or self._wait(delay):
                return proof

    def _round(self, host: str, counts: _Counts, *, is_first: bool) -> HostProof:
        """Have a host discard every page, then ask about each once more."""
        try:
            dropped = self._ask_all(host, DROP, is_told=is_first)
            if is_first:
                counts.held = sum(answer.held for answer in dropped)
            counts.dropped += sum(answer.held - answer.left for answer in dropped)
            checked = self._ask_all(host, CHECK, is_told=is_first)
        except exception.UnavailableError as error:
            return self._proof(counts, ProofState.UNREACHABLE, exception.one_line(error))
        except exception.AcstorError as error:
            return self._proof(counts, ProofState.FAILED, exception.one_line(error))
        counts.left = sum(answer.left for answer in checked)
        counts.attached = any(answer.attached for answer in checked)
        if counts.attached:
            return self._proof(counts, ProofState.ATTACHED, "instances there need the image")
        if counts.left:
            return self._proof(counts, ProofState.HELD, "chunks are read, or were brought back")
        return self._proof(counts, ProofState.ABSENT)

    def _ask_all(self, host: str, method: str, *, is_told: bool) -> list[PageAnswer]:
        # Without a page of its own the image may still be attached.
        pages: list[int | None] = [*range(len(self._found.page_sizes))] or [None]
        return [self._ask(host, method, page, is_told=is_told) for page in pages]

    def _ask(self, host: str, method: str, page: int | None, *, is_told: bool) -> PageAnswer:
        answer = self._agents.call(host, method, image=self._found.image, page=page)
        asked = 0 if page is None else self._found.page_sizes[page]
        found = PageAnswer.from_answer(host, answer, asked)
        if is_told:
            self._progress.advance(1)
        return found

    def _proof(self, counts: _Counts, state: ProofState, note: str = "") -> HostProof:
        now = image_registry.format_time(self._wall_clock())
        return HostProof(str(state), counts.held, counts.dropped, counts.left, now, note[:NOTE_MAX])


def merged(known: Mapping[str, HostProof], fresh: Mapping[str, HostProof]) -> dict[str, HostProof]:
    """Return what is known of hosts after they were asked again.

    What a host held when it was asked first, and what it has discarded in all, stays.
    """
    found = dict(known)
    for host, proof in fresh.items():
        former = known.get(host)
        if former is not None:
            was_asked = former.held or former.dropped
            proof = dataclasses.replace(
                proof,
                held=former.held if was_asked else proof.held,
                dropped=former.dropped + proof.dropped,
            )
        found[host] = proof
    return found


def excluded(clock: Callable[[], float] = time.time) -> HostProof:
    """Return what is noted of a host that the operator leaves out."""
    now = image_registry.format_time(clock())
    return HostProof(str(ProofState.EXCLUDED), time=now, note="the operator says that it is gone")

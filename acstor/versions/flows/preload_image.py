"""Bringing an image to hosts before anybody boots it.

Each host fetches by itself, and goes on with that whatever becomes of the worker; here it is begun,
followed and ended. The preload has the task's id on every host, so that each call may be repeated.
A host that refuses, fails or stays silent is named in the result, and holds up no other: the task
fails where no host gets the image. What is undone: the preload is stopped everywhere. Chunks that
have come stay while there is room.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from acstor import exception
from acstor.control.protocol import PreloadWhat
from acstor.preload.many_hosts import HostPreload
from acstor.preload.request import PreloadRequest
from acstor.preload.states import AdmittedPreloadState
from acstor.versions.database.tasks import Progress
from acstor.versions.flows.patience import POLL_SECONDS, SILENCE_SECONDS, patiently
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Work
from acstor.versions.services.preloads import Told

START_SECONDS = 60.0
"""Seconds for which a host that does not answer, or has too much to do, is asked to begin."""
STALL_SECONDS = 3600.0
"""Seconds without one more byte on any host after which the rest is given up."""
UNDO_SECONDS = 60.0
"""Seconds for which a host that does not answer is asked to stop."""
NAMED_MAX = 100
"""Most hosts that a result names with the reason; the others are counted."""
REASON_LENGTH_MAX = 200
"""Longest reason of one host, characters."""
WHOLE = frozenset({AdmittedPreloadState.DONE, AdmittedPreloadState.MISSED})
"""States in which a host has all of it."""


class Locate(Step):
    """Find the hosts."""

    step = "locate"

    def act(self, work: Work) -> dict[str, Any]:
        """Return their names; those of all are the ones that are alive at this moment."""
        named = work.parameters["hosts"]
        if isinstance(named, list):
            return {"hosts": sorted({str(one) for one in named})}
        found = patiently(work, work.services.preloads.hosts)
        if not found:
            raise exception.UnavailableError(
                "no host is alive that is not drained", hint="start acstor-agent on the hosts"
            )
        return {"hosts": found}


class Start(Step):
    """Have the hosts begin."""

    step = "start"
    share = 0.02

    def act(self, work: Work) -> dict[str, Any]:
        """Return those that have begun, and why the others have not.

        :raises AcstorError: the first host's, when none has.
        """
        hosts: list[str] = work.result_of(Locate.step)["hosts"]
        pending, begun = hosts, set[str]()
        failed: dict[str, exception.AcstorError] = {}
        end = work.clock() + START_SECONDS
        while True:
            work.fence()
            answers = work.services.preloads.start(pending, request_of(work), work.task.id)
            for host in pending:
                error = _error_of(answers.get(host))
                if error is None:
                    begun.add(host)
                    failed.pop(host, None)
                else:
                    failed[host] = error
            pending = [host for host, error in failed.items() if error.is_transient]
            if not pending or work.clock() >= end:
                break
            work.wait(POLL_SECONDS)
        if not begun:
            raise _of_none(len(hosts), failed)
        return {"begun": sorted(begun), "failed": _reasons(failed)}

    def undo(self, work: Work) -> None:
        """Stop it on every host, those that did not answer not left out."""
        located = work.result_of(Locate.step)
        if located is not None:
            _stop(work, located["hosts"], UNDO_SECONDS)


class Follow(Step):
    """Wait until the hosts have it."""

    step = "follow"
    share = 0.05

    def act(self, work: Work) -> dict[str, Any]:
        """Return the hosts that have all of it, and why the others have not.

        :raises AcstorError: when none has.
        """
        begun: list[str] = work.result_of(Start.step)["begun"]
        watch = _Watch(begun, work.clock())
        image = image_of(work)
        while True:
            asked = watch.open_hosts
            answers = work.services.preloads.status(asked, image, work.task.id)
            for host in asked:
                watch.take(host, answers.get(host), work.clock())
            watch.give_up_stalled(work.clock())
            work.report(watch.progress())
            if not watch.open_hosts:
                break
            work.wait(POLL_SECONDS)
        if not watch.whole:
            raise _of_none(len(begun), watch.failed)
        return {
            "whole": sorted(watch.whole),
            "failed": _reasons(watch.failed),
            "bytes": watch.done_bytes,
        }


class Finish(Step):
    """End it on hosts that have not got it."""

    step = "finish"
    share = 0.98

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        followed = work.result_of(Follow.step)
        _stop(work, followed["failed"], 0.0)
        failed = {**work.result_of(Start.step)["failed"], **followed["failed"]}
        return {
            "preload_id": work.task.id,
            "hosts_whole": len(followed["whole"]),
            "hosts_failed": len(failed),
            "failed": dict(sorted(failed.items())[:NAMED_MAX]),
            "bytes": followed["bytes"],
        }


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Locate(), Start(), Follow(), Finish()]


def image_of(work: Work) -> str:
    """Return the id of the image."""
    return str(work.parameters["image"])


def request_of(work: Work) -> PreloadRequest:
    """Return the request that each host gets: what boots of the image read.

    :raises InvalidError: when the task makes no sense.
    """
    rate = work.parameters.get("rate_mib")
    return PreloadRequest.from_arguments(
        {
            "image": image_of(work),
            "what": PreloadWhat.WORKING_SET,
            "rate_bytes_per_s": None if rate is None else int(rate) << 20,
        }
    )


@dataclasses.dataclass(slots=True)
class _Watch:
    """Progress on each host, as it was last told.

    :param open_hosts: of which more is to be heard.
    :param now: monotonic seconds.
    """

    open_hosts: list[str]
    now: dataclasses.InitVar[float]
    whole: set[str] = dataclasses.field(default_factory=set)
    failed: dict[str, exception.AcstorError] = dataclasses.field(default_factory=dict)
    known: dict[str, HostPreload] = dataclasses.field(default_factory=dict)
    heard_at: dict[str, float] = dataclasses.field(default_factory=dict)
    moved_at: float = 0.0
    """Moment at which anything was more than before."""

    def __post_init__(self, now: float) -> None:
        """Count silence from now on."""
        self.heard_at = dict.fromkeys(self.open_hosts, now)
        self.moved_at = now

    @property
    def done_bytes(self) -> int:
        """Bytes that are there, of all hosts."""
        return sum(one.total_bytes - one.remaining_bytes for one in self.known.values())

    @property
    def total_bytes(self) -> int:
        """Bytes that shall be there, of all hosts that have told."""
        return sum(one.total_bytes for one in self.known.values())

    def progress(self) -> Progress:
        """Return the progress of the task: bytes summed over the hosts."""
        total, done = self.total_bytes, self.done_bytes
        part = done / total if total else 0.0
        share = Follow.share + (Finish.share - Follow.share) * min(1.0, max(0.0, part))
        return Progress(share=share, bytes_done=max(0, done), bytes_total=total or None)

    def take(self, host: str, told: Told, now: float) -> None:
        """Take the answer of a host."""
        if isinstance(told, exception.AcstorError):
            if not told.is_transient or now - self.heard_at[host] > SILENCE_SECONDS:
                self._end(host, told)
            return
        self.heard_at[host] = now
        if told is None:
            gone = exception.NotFoundError("the host does not know of the preload any more")
            self._end(host, gone)
            return
        former = self.known.get(host)
        self.known[host] = told
        if former is None or former.remaining_bytes != told.remaining_bytes:
            self.moved_at = now
        if told.state in WHOLE:
            self.whole.add(host)
            self._end(host, None)
        elif told.state.has_ended:
            reason = told.error or f"the preload is {told.state.value} there"
            self._end(host, exception.UnavailableError(reason))

    def give_up_stalled(self, now: float) -> None:
        """Give up what has not moved for long: a host may wait for its origin without end."""
        if now - self.moved_at <= STALL_SECONDS:
            return
        for host in list(self.open_hosts):
            known = self.known.get(host)
            reason = None if known is None else known.error
            text = f"nothing has come for {STALL_SECONDS:g} s"
            self._end(host, exception.DeadlineError(f"{text}: {reason}" if reason else text))

    def _end(self, host: str, error: exception.AcstorError | None) -> None:
        self.open_hosts = [one for one in self.open_hosts if one != host]
        if error is not None:
            self.failed[host] = error


def _stop(work: Work, hosts: Iterable[str], seconds: float) -> None:
    """Stop the preload on hosts; what cannot be stopped is noted, and ends by itself.

    :param seconds: for which a silent host is asked again.
    """
    pending = list(hosts)
    left: dict[str, exception.AcstorError] = {}
    end = work.clock() + seconds
    while pending:
        work.fence()
        answers = work.services.preloads.stop(pending, image_of(work), work.task.id)
        for host in pending:
            error = answers.get(host)
            if error is None:
                left.pop(host, None)
            else:
                left[host] = error
        pending = [host for host, error in left.items() if error.is_transient]
        if not pending or work.clock() >= end:
            break
        work.wait(POLL_SECONDS)
    for host, error in left.items():
        work.note(f"host {host} may go on with a preload: {exception.one_line(error)}")


def _error_of(told: Told) -> exception.AcstorError | None:
    """Return the reason for which a host has not begun; None: it has."""
    if isinstance(told, exception.AcstorError):
        return told
    return exception.InternalError("the host tells of another preload") if told is None else None


def _of_none(count: int, failed: Mapping[str, exception.AcstorError]) -> exception.AcstorError:
    """Return the error of a preload that no host has: the first host's."""
    host, first = min(failed.items())
    return type(first)(
        f"none of {count} hosts has it: host {host}: {first.message}", hint=first.hint
    )


def _reasons(failed: Mapping[str, exception.AcstorError]) -> dict[str, str]:
    """Return the reasons in words, by host."""
    return {
        host: exception.one_line(error)[:REASON_LENGTH_MAX]
        for host, error in sorted(failed.items())
    }

"""One member of an origin as its users see it: each call has a deadline, whatever the store does.

Calls run in threads of the member's own, so that one that hangs in the kernel takes none of the
other members' time. A caller whose time is over goes on; the thread does not, and what it reads or
writes must be memory that nobody else uses.
"""

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from acstor import exception
from acstor.origin import base
from acstor.origin.replicated.breaker import BreakerState, CircuitBreaker

THREADS = 4
"""Calls of a member that are under way at once: as many as a data plane has for its origin."""
TRIED_KEY = "format"
"""Object that a member whose breaker is open is asked for, as a trial; it need not be there."""
LISTING_SECONDS = 600.0
"""Longest time of a listing: a member has millions of objects, which no other call walks."""
PUT_BYTES_PER_SECOND = 4 << 20
"""Rate of the slowest member: its deadline grows by what is stored at this rate."""
QUEUE_MAX = 64
"""Calls of a member that wait for a thread; more are refused."""
ESTIMATE_WEIGHT = 0.125
"""Weight of a new sample in the estimate, as in RFC 6298 for round-trip times."""
ESTIMATE_HALF_LIFE_SECONDS = 10.0
"""Time in which an estimate without new samples halves: a slow member is tried again."""

Answer = TypeVar("Answer")


class _Job(Generic[Answer]):
    """One call, and who waits for it."""

    def __init__(
        self,
        action: Callable[[base.Origin], Answer],
        ended: Callable[[BaseException | None], object] = lambda error: None,
    ) -> None:
        self._action = action
        self._ended = ended
        self._lock = threading.Lock()
        self._is_abandoned = False
        self.done = threading.Event()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def run(self, origin: base.Origin) -> None:
        """Make the call, unless its caller has gone on by now."""
        with self._lock:
            if self._is_abandoned:
                return
        try:
            self.answer = self._action(origin)
        except BaseException as error:
            self.error = error
        self.done.set()
        self._ended(self.error)

    def abandon(self) -> None:
        """Have it not begin any more; one that has begun goes on."""
        with self._lock:
            self._is_abandoned = True


@dataclasses.dataclass(frozen=True, slots=True)
class MemberReading:
    """A member's state for operators."""

    name: str
    state: BreakerState
    estimate_seconds: float
    failures: int
    """Calls that failed, since the process began."""


class Member:
    """An origin with a queue, a deadline, a circuit breaker and an estimate of its own.

    :param name: of the member.
    :param origin: the store; it is closed with the member.
    :param seconds_max: longest time of a call, waiting for a thread included.
    :param listing_seconds: longest time of a call that walks all that the store has.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        origin: base.Origin,
        seconds_max: float,
        *,
        listing_seconds: float = LISTING_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.origin = origin
        self.seconds_max = seconds_max
        self.listing_seconds = listing_seconds
        self.breaker = CircuitBreaker(clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: queue.Queue[_Job[Any] | None] = queue.Queue(QUEUE_MAX)
        self._threads = 0
        self._outstanding = 0
        self._estimate = 0.0
        self._sampled_at = clock()
        self._failures = 0

    @property
    def estimate_seconds(self) -> float:
        """Seconds that a call is expected to take; 0 before the first."""
        with self._lock:
            age = max(0.0, self._clock() - self._sampled_at)
            return float(self._estimate * 0.5 ** (age / ESTIMATE_HALF_LIFE_SECONDS))

    @property
    def reading(self) -> MemberReading:
        """The member's state."""
        return MemberReading(self.name, self.breaker.state, self.estimate_seconds, self._failures)

    def call(
        self, action: Callable[[base.Origin], Answer], *, seconds_max: float | None = None
    ) -> Answer:
        """Return what ``action`` returns for the member's store.

        :param seconds_max: for this call; None: the member's.
        :raises UnavailableError: also while the breaker keeps from asking.
        :raises DeadlineError: when the time was over; the call may still have its effect.
        :raises OverloadedError: when too many calls wait already.
        """
        seconds = self.seconds_max if seconds_max is None else seconds_max
        if not self.breaker.admit(seconds):
            raise exception.UnavailableError(
                f"member {self.name} failed several times in a row and is left alone for "
                f"{self.breaker.retry_seconds:.1f} s",
                hint="check the member's store; it is tried again by itself",
            )
        begun = self._clock()
        try:
            answer = self._run(action, seconds)
        except exception.AcstorError as error:
            self._note(begun, is_failure=error.is_transient)
            raise
        except BaseException:
            self._note(begun, is_failure=True)
            raise
        self._note(begun, is_failure=False)
        return answer

    def put(self, key: str, content: base.Buffer) -> bool:
        """Store an object; the deadline grows by its size.

        :returns: whether this call stored it; errors as of :meth:`call`.
        """
        return self.call(
            lambda origin: origin.put_if_absent(key, [content]),
            seconds_max=self.seconds_max + len(content) / PUT_BYTES_PER_SECOND,
        )

    def walk(self, action: Callable[[base.Origin], Answer]) -> Answer:
        """Make a call that walks all that the store has; errors as of :meth:`call`."""
        return self.call(action, seconds_max=self.listing_seconds)

    def list(self, prefix: str) -> frozenset[str]:
        """Return the keys in a folder; errors as of :meth:`call`."""
        return self.walk(lambda origin: frozenset(origin.list(prefix)))

    def try_again(self) -> None:
        """Begin a trial where one is due, and wait for nothing.

        So that no caller waits for a member that hangs, as long as another one has what it wants.
        """
        breaker = self.breaker
        if breaker.state is BreakerState.CLOSED or breaker.retry_seconds > 0:
            return
        if not breaker.admit(self.seconds_max):
            return
        begun = self._clock()

        def ended(error: BaseException | None) -> None:
            is_answer = error is None or (
                isinstance(error, exception.AcstorError) and not error.is_transient
            )
            self._note(begun, is_failure=not is_answer)

        if not self._submit(_Job(lambda origin: origin.exists(TRIED_KEY), ended)):
            self._note(begun, is_failure=True)

    def run_aside(self, action: Callable[[], object]) -> None:
        """Have a thread do something with the store, and wait for nothing, nor for its success.

        Not while the breaker is open.
        """
        if self.breaker.state is BreakerState.CLOSED:
            self._submit(_Job(lambda origin: action()))

    def close(self) -> None:
        """Let the threads end, and close the store; a thread that hangs is left to itself."""
        with self._lock:
            threads, self._threads = self._threads, 0
        with contextlib.suppress(queue.Full):
            for _ in range(threads):
                self._jobs.put_nowait(None)
        self.origin.close()

    def _run(self, action: Callable[[base.Origin], Answer], seconds: float) -> Answer:
        job = _Job(action)
        if not self._submit(job):
            raise exception.OverloadedError(f"{QUEUE_MAX} calls wait for member {self.name}")
        if not job.done.wait(seconds):
            job.abandon()
            raise exception.DeadlineError(f"member {self.name} did not answer within {seconds:g} s")
        if job.error is not None:
            raise job.error
        return job.answer  # type: ignore[return-value]

    def _submit(self, job: _Job[Any]) -> bool:
        """Have a thread make a call, another one if all have something to do.

        :returns: False where too many calls wait.
        """
        with self._lock:
            try:
                self._jobs.put_nowait(job)
            except queue.Full:
                return False
            self._outstanding += 1
            is_short = self._threads < min(THREADS, self._outstanding)
            self._threads += is_short
        if is_short:
            threading.Thread(target=self._work, name=f"member-{self.name}", daemon=True).start()
        return True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job.run(self.origin)
            with self._lock:
                self._outstanding -= 1

    def _note(self, begun: float, *, is_failure: bool) -> None:
        """Note how a call ended; a failure's time counts too: it is what the next one may take."""
        now = self._clock()
        (self.breaker.failed if is_failure else self.breaker.succeeded)()
        with self._lock:
            age = max(0.0, now - self._sampled_at)
            decayed = self._estimate * 0.5 ** (age / ESTIMATE_HALF_LIFE_SECONDS)
            self._estimate = decayed + ESTIMATE_WEIGHT * (now - begun - decayed)
            self._sampled_at = now
            self._failures += is_failure

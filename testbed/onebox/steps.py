"""Steps with an order among some of them, done at the same time where it allows that."""

import concurrent.futures
import dataclasses
import graphlib
import time
from collections.abc import Callable, Sequence

WORKERS = 16

#: Told the name of a step that is done and how long it took, in seconds.
Report = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class Step:
    """Something to be done once, after some others."""

    name: str
    action: Callable[[], object]
    after: tuple[str, ...] = ()


def run(steps: Sequence[Step], report: Report, cancel: Callable[[], None]) -> None:
    """Do all steps, each as soon as those before it are done.

    The first error ends it: nothing more is begun, and what is being done is waited for.

    :param cancel: called then, so that what waits does not wait for long.
    """
    by_name = {step.name: step for step in steps}
    order = graphlib.TopologicalSorter({step.name: step.after for step in steps})
    order.prepare()
    failure: BaseException | None = None
    running: dict[concurrent.futures.Future[float], str] = {}
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        try:
            while order.is_active() and failure is None:
                for name in order.get_ready():
                    running[pool.submit(_timed, by_name[name].action)] = name
                done, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    name = running.pop(future)
                    failure = failure or future.exception()
                    if future.exception() is None:
                        report(name, future.result())
                        order.done(name)
        except BaseException:  # ^C: as an error of a step
            cancel()
            raise
        if failure is not None:
            cancel()
    if failure is not None:
        raise failure


def _timed(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started

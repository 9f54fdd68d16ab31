"""Work on many things in a few threads, without a list of all that is to come."""

import concurrent.futures
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def run_parallel(work: Callable[[Item], object], items: Iterable[Item], workers: int) -> None:
    """Call ``work`` with each item; the first error ends it.

    What is under way then is finished, so that nothing is left behind in between.

    :raises BaseException: the first error of ``work``, or an interruption of this thread.
    """
    following = iter(items)
    lock = threading.Lock()
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            with lock:
                try:
                    item = next(following)
                except StopIteration:
                    return
            try:
                work(item)
            except BaseException:
                is_over.set()
                raise

    with concurrent.futures.ThreadPoolExecutor(workers, "acstor-copy") as pool:
        jobs = [pool.submit(run) for _ in range(workers)]
        try:
            for job in concurrent.futures.as_completed(jobs):
                job.result()
        finally:
            is_over.set()

"""Calls that are left behind where they do not end in time."""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def within(timeout: float, action: Callable[[], Result]) -> Result:
    """Return what ``action`` returns, if it does so in time.

    For what no timeout reaches: oslo.messaging's RabbitMQ driver connects for ever in places, and a
    file system on a network may hang. Such an action is left behind on a thread that the end of the
    process does not wait for.

    :param timeout: seconds.
    :raises TimeoutError: when it has not returned; it may still go on.
    """
    outcome: concurrent.futures.Future[Result] = concurrent.futures.Future()

    def run() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="abandoned-call", daemon=True).start()
    return outcome.result(timeout)

"""Log lines of the runtime on their way into Python's logging."""

import logging
from collections.abc import Callable

LINES_PER_DRAIN_MAX = 500
"""Lines written per look, so that a flood cannot keep the interpreter's lock from the origin."""

_LEVELS = {
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


def drain(take_log_lines: Callable[[int], list[str]], lines_max: int = LINES_PER_DRAIN_MAX) -> int:
    """Write the lines that wait; return how many.

    :param take_log_lines: of the runtime.
    """
    lines = take_log_lines(lines_max)
    for line in lines:
        level, _, rest = line.partition(" ")
        target, _, message = rest.partition(" ")
        logging.getLogger(target or "acstor").log(
            _LEVELS.get(level, logging.INFO), "%s", message or line
        )
    return len(lines)

"""Results of a check: the three codes of oslo.upgradecheck, by name."""

from collections.abc import Callable

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code, Result

from acstor import exception

Check = Callable[[cfg.ConfigOpts], Result]


def success(details: str) -> Result:
    """Say that all is well; ``details`` is what was seen."""
    return Result(Code.SUCCESS, details)


def warning(details: str) -> Result:
    """Say that somebody should look, though it works; ``details`` is at what, and what to do."""
    return Result(Code.WARNING, details)


def failure(details: str) -> Result:
    """Say that it will not work; ``details`` is why, and what to do."""
    return Result(Code.FAILURE, details)


def failure_of(error: exception.AcstorError) -> Result:
    """Say that it will not work because of an error, which knows what to do."""
    return failure(f"{error}; {error.hint}")

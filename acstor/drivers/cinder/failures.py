"""Error messages for Cinder: one line with the failure, its object, and the remedy."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from cinder import exception as cinder_exception

from acstor import exception
from acstor.exception import ErrorKind

Method = TypeVar("Method", bound=Callable[..., Any])

_FAULT_OF_CALLER = frozenset({ErrorKind.INVALID, ErrorKind.UNSUPPORTED, ErrorKind.INTERNAL})
"""Kinds for which the back-end is well: repeating the same call cannot help."""


def as_cinder_error(error: exception.AcstorError, what: str) -> Exception:
    """Return the exception with which Cinder's manager gets to know of an error.

    :param what: was being done, such as ``taking snapshot <id>``.
    """
    text = f"{what}: {error.message}; {error.hint}"
    if error.kind in _FAULT_OF_CALLER:
        return cast(Exception, cinder_exception.VolumeDriverException(message=text))
    return cast(Exception, cinder_exception.VolumeBackendAPIException(data=text))


@contextlib.contextmanager
def map_errors(what: str) -> Iterator[None]:
    """Raise errors of ACStor as errors of Cinder.

    :raises VolumeBackendAPIException: when the origin, an agent or a volume's state is in the way.
    :raises VolumeDriverException: when what is asked for is wrong or not supported.
    """
    try:
        yield
    except exception.AcstorError as error:
        raise as_cinder_error(error, what) from error


def reported(what: str) -> Callable[[Method], Method]:
    """Have a method of the driver raise errors of Cinder.

    :param what: is being done; ``{name.attribute}`` stands for the method's parameters.
    """

    def decorate(method: Method) -> Method:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            try:
                return method(*arguments, **named)
            except exception.AcstorError as error:
                bound = signature.bind(*arguments, **named)
                raise as_cinder_error(error, what.format(**bound.arguments)) from error

        return cast(Method, wrapper)

    return decorate

"""Opening an origin by its URL: the scheme names the driver."""

import urllib.parse
from collections.abc import Callable
from typing import Any

import stevedore.driver
import stevedore.exception

from acstor import exception
from acstor.origin import base, retrying

Around = Callable[[base.Origin], base.Origin]
"""Puts something between the driver and the repeating of its calls."""

DRIVER_NAMESPACE = "acstor.origin"
"""Entry point namespace; each entry is an Origin class with a ``from_url`` class method."""


def open_origin(
    url: str, deadline_seconds: float, around: Around = lambda origin: origin
) -> base.Origin:
    """Return the origin at ``url``, with transient errors retried until the deadline.

    :param url: for example ``posix:///srv/acstor``.
    :param deadline_seconds: per call, see :class:`acstor.origin.retrying.RetryingOrigin`.
    :param around: what each attempt goes through.
    :raises InvalidError: when the URL is malformed or the driver refuses it.
    :raises UnsupportedError: when no driver has that scheme.
    """
    return retrying.RetryingOrigin(around(open_driver(url)), deadline_seconds)


def open_driver(url: str) -> base.Origin:
    """Return the origin at ``url``, whose calls are not repeated.

    :raises InvalidError: when the URL is malformed or the driver refuses it.
    :raises UnsupportedError: when no driver has that scheme.
    """
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise exception.InvalidError(f"origin URL {url!r} is malformed: {error}") from error
    if not parts.scheme:
        raise exception.InvalidError(
            f"origin URL {url!r} has no scheme", hint="write, for example, posix:///srv/acstor"
        )
    try:
        driver: Any = stevedore.driver.DriverManager(DRIVER_NAMESPACE, parts.scheme).driver
    except stevedore.exception.NoMatches as error:
        raise exception.UnsupportedError(
            f"there is no origin driver for {parts.scheme}:",
            hint="use posix:///path, or install the package that provides the driver",
        ) from error
    origin: base.Origin = driver.from_url(parts)
    return origin

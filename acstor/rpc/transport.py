"""Opening the message transport of ``[DEFAULT] transport_url``, for agents and commands.

Not for code that runs inside a process of Nova or Cinder: there the global configuration is
theirs, and ``oslo_messaging.get_rpc_transport(<their conf>, url=...)`` is what to call.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from oslo_config import cfg

from acstor import abandoned_call, exception
from acstor.conf import loading

CLEANUP_TIMEOUT = 3.0
"""Seconds that closing a transport may take."""
_PROJECT = "acstor"
_lock = threading.Lock()  # of the global configuration


def is_configured(conf: cfg.ConfigOpts) -> bool:
    """Return whether the operator names a message transport."""
    return loading.is_written(conf, "DEFAULT", "transport_url")


def require(conf: cfg.ConfigOpts) -> None:
    """Refuse to go on without a message transport.

    :raises ConfigurationError: when the operator names none.
    """
    if not is_configured(conf):
        raise exception.ConfigurationError(
            "no message transport is configured",
            hint="set [DEFAULT] transport_url (such as rabbit://user:password@broker:5672/) to the "
            "same broker in acstor.conf of this host and of the compute hosts",
        )


def open_transport(conf: cfg.ConfigOpts) -> Any:
    """Return an RPC transport; nothing is connected before it is used.

    The caller ends it with ``cleanup()``.

    :param conf: of one of ACStor's own programs.
    :raises ConfigurationError: when no transport is named, or one that cannot be had.
    :raises InternalError: in a process whose global configuration belongs to another project.
    """
    require(conf)
    import oslo_messaging  # heavy, and not needed where there is no broker

    return _opened(conf, oslo_messaging.get_rpc_transport)


def open_notification_transport(conf: cfg.ConfigOpts) -> Any:
    """Return a transport to hear notifications through; errors as in :func:`open_transport`.

    It is that of ``[oslo_messaging_notifications] transport_url`` where there is one.
    """
    import oslo_messaging

    return _opened(conf, oslo_messaging.get_notification_transport)


def _opened(conf: cfg.ConfigOpts, open_it: Callable[[cfg.ConfigOpts], Any]) -> Any:
    from oslo_messaging.transport import DriverLoadFailure, InvalidTransportURL

    try:
        return open_it(_global_configuration(conf))
    except (DriverLoadFailure, InvalidTransportURL, ValueError) as error:
        # Neither may be shown: their texts hold the URL, and that holds a password.
        raise exception.ConfigurationError(
            f"[DEFAULT] transport_url is not usable ({type(error).__name__})",
            hint="write it as rabbit://user:password@host:port/virtual-host",
        ) from None


@contextlib.contextmanager
def opened(conf: cfg.ConfigOpts) -> Iterator[Any]:
    """Open a transport for a while; errors as in :func:`open_transport`."""
    transport = open_transport(conf)
    try:
        yield transport
    finally:
        with contextlib.suppress(Exception):  # drivers raise what their client libraries raise
            abandoned_call.within(CLEANUP_TIMEOUT, transport.cleanup)


def _global_configuration(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Return the global configuration, reading the same files as ``conf``.

    oslo.messaging registers some of its options (metrics, tracing) with the global configuration
    only and looks for them in the transport's, so that one must be the transport's.
    """
    files = list(conf.config_file or [])
    with _lock:
        owner = getattr(cfg.CONF, "project", None)
        if owner not in {None, _PROJECT}:
            raise exception.InternalError(
                f"the configuration of this process is that of {owner}, not of ACStor"
            )
        read = getattr(cfg.CONF, "config_file", None)  # None: it has read nothing, or was reset
        if owner is None or read is None or list(read) != files:
            cfg.CONF([], project=_PROJECT, default_config_files=files, default_config_dirs=[])
    return cfg.CONF

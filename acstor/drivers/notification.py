"""The notification driver ``acstor``: how the services come to load ACStor's drivers.

It sends nothing. oslo.messaging makes the drivers that ``[oslo_messaging_notifications] driver``
names when a service starts, before it uses any volume, and that is all that is wanted: stock
services have no other place where an operator can have something loaded into them.

``doc/source/contributor/nova-volumes.rst`` says why this way was taken.
"""

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from oslo_messaging.notify import notifier

from acstor import exception

LOG = logging.getLogger(__name__)

BRICK = "acstor.drivers.brick.registration"
NOVA = "acstor.drivers.nova.volumes.registration"
REGISTRATIONS: dict[str, tuple[str, ...]] = {
    "nova.cmd.compute": (NOVA, BRICK),
    "cinder.cmd.volume": (BRICK,),
    "cinder.cmd.backup": (BRICK,),
}
"""Modules to register, by the module that is a service's main program; each only after the one
before. A Nova that is refused has no connector either, so Cinder attaches nothing on its host."""
_LIBVIRT_DRIVER = "libvirt."


class AcstorDriver(notifier.Driver):  # type: ignore[misc] # oslo.messaging has no types
    """Registers ACStor's drivers in the service that makes it; again does nothing.

    It never fails: a service that cannot have volumes of ACStor does everything else.
    """

    def __init__(self, conf: Any, topics: Any, transport: Any) -> None:
        super().__init__(conf, topics, transport)
        self._problem: str | None = None
        try:
            register(conf)
        except Exception as error:
            hint = getattr(error, "hint", "see the traceback in the log")
            self._problem = f"volumes of ACStor cannot be used by this service: {error}; {hint}"
            is_expected = isinstance(error, exception.AcstorError)
            LOG.warning("%s", self._problem, exc_info=not is_expected)

    def notify(self, ctxt: Any, message: Any, priority: Any, retry: Any) -> None:
        """Send nothing; say once more what went wrong.

        nova-compute makes its notifiers before it has set up its log.
        """
        problem, self._problem = self._problem, None
        if problem is not None:
            LOG.error("%s", problem)


def register(conf: Any, modules: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Register what belongs into this process; return which registrations were called.

    :param conf: of the service.
    :param modules: loaded modules by name; ``sys.modules`` unless given.
    """
    called = []
    for name in _wanted(conf, sys.modules if modules is None else modules):
        run: Callable[[], None] = importlib.import_module(name).register
        run()
        called.append(name)
    return tuple(called)


def _wanted(conf: Any, modules: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the registrations for the service whose main program is loaded."""
    main = getattr(modules.get("__main__"), "__spec__", None)
    started_by_name = getattr(main, "name", None)  # python -m nova.cmd.compute
    for program, registrations in REGISTRATIONS.items():
        if program in modules or program == started_by_name:
            if NOVA in registrations and not _is_libvirt(conf):
                return ()
            return registrations
    return ()


def _is_libvirt(conf: Any) -> bool:
    """Return whether nova-compute drives libvirt; Ironic and others have no such volumes."""
    return str(getattr(conf, "compute_driver", None) or "").startswith(_LIBVIRT_DRIVER)

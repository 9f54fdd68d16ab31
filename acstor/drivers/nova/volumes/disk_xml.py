"""Nova's disk configuration learns ``<host transport='unix'>``.

Nova (32 to 34) reads the name of every ``<host>`` of a network disk and writes it back. A unix
socket has no name, so Nova can neither write such a disk nor write one that it has read, and a
detach writes what it has read: ``LibvirtConfigGuestDisk.format_dom`` fails with a TypeError.

The two methods are wrapped, the class stays the same object: Nova's own code names it in ``super``
calls and ``isinstance``. Disks without a unix host go through the wrap unchanged.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from acstor import exception

SOCKET = "source_socket"
"""Attribute of a disk's configuration: path of the unix socket; absent for other disks."""
RECONNECT_DELAY = "source_reconnect_delay"
"""Attribute: seconds for which QEMU waits for the server to come back; None: not at all."""
_MARK = "_acstor_wraps"
_HINT = "use a release of Nova that this release of ACStor was tested with"


def install() -> None:
    """Wrap the methods of Nova's class; again does nothing.

    :raises UnsupportedError: when the class is not as expected; nothing was changed then.
    """
    from nova.virt.libvirt import config

    found = getattr(config, "LibvirtConfigGuestDisk", None)
    if not inspect.isclass(found):
        raise exception.UnsupportedError(
            "nova.virt.libvirt.config has no class LibvirtConfigGuestDisk", hint=_HINT
        )
    wraps = (("parse_dom", ("self", "xmldoc"), _parsing), ("format_dom", ("self",), _formatting))
    for name, parameters, _ in wraps:
        _check(found, name, parameters)
    for name, _, wrap in wraps:
        method = found.__dict__[name]
        if not hasattr(method, _MARK):
            setattr(found, name, wrap(method))


def _check(owner: type, name: str, parameters: tuple[str, ...]) -> None:
    method = owner.__dict__.get(name)
    if method is None:
        raise exception.UnsupportedError(f"{owner.__name__} defines no {name}", hint=_HINT)
    found = tuple(inspect.signature(method).parameters)
    if found != parameters:
        raise exception.UnsupportedError(
            f"{owner.__name__}.{name} takes {', '.join(found)} instead of {', '.join(parameters)}",
            hint=_HINT,
        )


def _parsing(parse_dom: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(parse_dom)
    def parse(self: Any, xmldoc: Any) -> None:
        parse_dom(self, xmldoc)
        host = xmldoc.find("source/host[@transport='unix']")
        if host is None or self.source_type != "network":
            return
        setattr(self, SOCKET, host.get("socket"))
        delay = xmldoc.find("source/reconnect")
        value = None if delay is None else delay.get("delay")
        setattr(self, RECONNECT_DELAY, None if value is None else int(value))
        # Nova has taken the host without a name for one with the name None.
        named = [
            (name, port)
            for name, port in zip(self.source_hosts, self.source_ports, strict=True)
            if name is not None
        ]
        self.source_hosts = [name for name, _ in named]
        self.source_ports = [port for _, port in named]

    setattr(parse, _MARK, True)
    return parse


def _formatting(format_dom: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(format_dom)
    def format_disk(self: Any) -> Any:
        disk = format_dom(self)
        socket = getattr(self, SOCKET, None)
        source = disk.find("source")
        if socket is None or source is None or self.source_type != "network":
            return disk
        # A Nova that has learnt unix sockets may have written either already.
        host = source.find("host[@transport='unix']")
        if host is None:
            host = disk.makeelement("host", {"transport": "unix", "socket": socket})
            source.insert(0, host)
        delay = getattr(self, RECONNECT_DELAY, None)
        if delay is not None and source.find("reconnect") is None:
            host.addnext(disk.makeelement("reconnect", {"delay": str(delay)}))
        return disk

    setattr(format_disk, _MARK, True)
    return format_disk

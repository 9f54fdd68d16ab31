"""The methods of the control socket: what Nova and Cinder need of the data plane, no more."""

from collections.abc import Mapping

from acstor.control import protocol
from acstor.control.server import Method
from acstor.dataplane import parameters

SHARED = ("volume.open", "volume.close", "volume.status")
"""Methods of the admin socket that the control socket has too."""


def control_methods(methods: Mapping[str, Method], host: str) -> dict[str, Method]:
    """Return the methods of the control socket.

    :param methods: of the admin socket.
    :param host: name of this host in ACStor.
    """

    def show_host() -> dict[str, object]:
        return {"host": host, "protocol_version": protocol.PROTOCOL_VERSION}

    return {
        **{name: methods[name] for name in SHARED},
        "volume.host": parameters.checked("volume.host", (), show_host),
    }

"""The volume socket of a host: the real server and protocol, with volumes that only are names."""

from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.control.server import AdminServer


class MemoryVolumeSocket:
    """Serves ``volume.open``, ``close``, ``status`` and ``host``; the test looks and changes.

    :param path: of the socket.
    :param host: name of the host.
    """

    def __init__(self, path: str, host: str = "h1") -> None:
        self.path = path
        self.host = host
        self.sizes: dict[str, int] = {}
        """Bytes of each volume that exists."""
        self.open: dict[str, str] = {}
        """Role of each volume that is open."""
        self.clients: dict[str, int] = {}
        """NBD connections of each volume."""
        self.sockets: dict[str, str] = {}
        """NBD socket of each volume whose socket is of a server."""
        self.elsewhere: set[str] = set()
        """Volumes that another host owns."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._server = AdminServer(
            path,
            {
                "volume.open": self._open,
                "volume.close": self._close,
                "volume.status": self._status,
                "volume.host": self._host,
            },
        )

    def start(self) -> None:
        """Answer from now on."""
        self._server.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.stop()

    def _open(self, params: Mapping[str, Any]) -> object:
        volume = self._known("volume.open", params)
        if volume in self.elsewhere:
            raise exception.ConflictError(f"volume {volume} is owned by h2")
        self.open.setdefault(volume, params["role"])
        return {
            "socket": self.sockets.get(volume, f"/run/acstor/nbd/{volume}.sock"),
            "export": volume,
            "size_bytes": self.sizes[volume],
            "epoch": 1,
            "role": self.open[volume],
        }

    def _close(self, params: Mapping[str, Any]) -> object:
        self.calls.append(("volume.close", dict(params)))
        volume = params["volume"]
        if self.clients.get(volume) and not params["force"]:
            raise exception.InvalidError(f"volume {volume} is in use")
        self.open.pop(volume, None)
        return None

    def _status(self, params: Mapping[str, Any]) -> object:
        volume = self._known("volume.status", params)
        if volume not in self.open:
            raise exception.NotFoundError(f"volume {volume} is not open")
        return {"size_bytes": self.sizes[volume], "clients": self.clients.get(volume, 0)}

    def _host(self, params: Mapping[str, Any]) -> object:
        self.calls.append(("volume.host", dict(params)))
        return {"host": self.host, "protocol_version": 1}

    def _known(self, method: str, params: Mapping[str, Any]) -> str:
        self.calls.append((method, dict(params)))
        volume = str(params["volume"])
        if volume not in self.sizes:
            raise exception.NotFoundError(f"there is no volume {volume}")
        return volume

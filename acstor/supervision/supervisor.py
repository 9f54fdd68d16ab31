"""The supervised side: tells the supervisor, and takes back the descriptors that it kept."""

import os
import socket
import threading
from collections.abc import Mapping, MutableMapping

from acstor.supervision import protocol

_SEND_TIMEOUT = 1.0
"""Seconds for one datagram: a stuck supervisor must not stop the process that it watches."""


class Supervisor:
    """The way to ``$NOTIFY_SOCKET``; where there is none, every call does nothing.

    Thread-safe. Sends never raise: a supervisor that is gone must not take the process with
    it. :meth:`refresh` notices a new supervisor behind the same address and gives it everything.

    :param address: path of the socket, ``@name`` for an abstract one; ``None``: unsupervised.
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._stored: dict[str, int] = {}
        self._must_store_again = False
        self._socket: socket.socket | None = None
        self._lock = threading.RLock()  # of all of the above

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Supervisor":
        """Return the supervisor that the environment names."""
        address = environment.get("NOTIFY_SOCKET", "")
        return cls(address if address[:1] in {"/", "@"} else None)

    @property
    def is_configured(self) -> bool:
        """True if the process was started by a supervisor."""
        return self._address is not None

    def is_alive(self) -> bool:
        """Return whether somebody listens at the supervisor's address at this moment."""
        return self._send({"STATUS": "checking the supervisor"}, [])

    def holds_descriptors(self) -> bool:
        """Return whether the supervisor is alive and has been given descriptors to keep."""
        return bool(self._stored) and self.is_alive()

    def notify(self, **assignments: str) -> bool:
        """Send assignments such as ``READY="1"``; return whether they were delivered."""
        return self._send(assignments, [])

    def store(self, name: str, descriptor: int) -> bool:
        """Ask the supervisor to keep a duplicate of ``descriptor`` under ``name``.

        ``FDPOLL=0``: it must be kept even when it polls as in error.

        :raises ValueError: for a name that the protocol cannot carry.
        """
        if not protocol.is_valid_name(name):
            raise ValueError(f"no descriptor name: {name!r}")
        with self._lock:
            self._stored[name] = descriptor
            return self._send_descriptor(name, descriptor)

    def adopt(self, name: str, descriptor: int) -> None:
        """Note that the supervisor keeps ``descriptor`` already: it passed it itself."""
        with self._lock:
            self._stored[name] = descriptor

    def remove(self, name: str) -> bool:
        """Ask the supervisor to close all descriptors that it keeps under ``name``."""
        with self._lock:
            self._stored.pop(name, None)
            return self._send({"FDSTOREREMOVE": "1", "FDNAME": name}, [])

    def refresh(self, **assignments: str) -> bool:
        """Send assignments; where the supervisor is a new one, give it the descriptors too."""
        with self._lock:
            delivered = self._send(assignments, [])
            if delivered and self._must_store_again:
                self._must_store_again = False
                for name, descriptor in self._stored.items():
                    delivered = self._send_descriptor(name, descriptor) and delivered
        return delivered

    def _send_descriptor(self, name: str, descriptor: int) -> bool:
        return self._send({"FDSTORE": "1", "FDNAME": name, "FDPOLL": "0"}, [descriptor])

    def _send(self, assignments: Mapping[str, str], descriptors: list[int]) -> bool:
        if self._address is None:
            return False
        message = protocol.encode_message(assignments)
        with self._lock:
            for _ in range(2):  # the second with a new socket, for a supervisor that was replaced
                try:
                    socket.send_fds(self._connect(self._address), [message], descriptors)
                except OSError:
                    self._disconnect()
                else:
                    return True
        return False

    def _connect(self, address: str) -> socket.socket:
        if self._socket is None:
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            sender.settimeout(_SEND_TIMEOUT)
            try:
                sender.connect("\0" + address[1:] if address.startswith("@") else address)
            except OSError:
                sender.close()
                raise
            self._socket = sender
        return self._socket

    def _disconnect(self) -> None:
        self._must_store_again = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def watchdog_interval(environment: Mapping[str, str]) -> float | None:
    """Return the seconds within which ``WATCHDOG=1`` is expected, or None for no watchdog."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() and int(text) > 0 else None


def take_descriptors(environment: MutableMapping[str, str]) -> dict[str, int]:
    """Return the descriptors that the supervisor passed, by name, and forget the variables.

    All are made close-on-exec. Of several under one name one is returned and the others are
    closed: :class:`Supervisor` never stores a second one without removing the first.
    """
    pid = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "0")
    names = environment.pop("LISTEN_FDNAMES", "")
    if pid != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return {}
    listed = names.split(":") if names else []
    taken: dict[str, int] = {}
    for position in range(int(count)):
        descriptor = protocol.FIRST_PASSED_FD + position
        name = listed[position] if position < len(listed) else "unknown"
        try:
            os.set_inheritable(descriptor, False)
        except OSError:
            break  # fewer than announced
        if name in taken:
            os.close(taken[name])
        taken[name] = descriptor
    return taken

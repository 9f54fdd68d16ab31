"""A supervisor that keeps descriptors, without a process."""

import os
import pathlib
import socket


class Keeper:
    """The supervisor's end: keeps what it is sent."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.kept: dict[str, int] = {}

    def take(self) -> dict[str, int]:
        while True:
            try:
                message, passed, _, _ = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return self.kept
            said = dict(line.split("=", 1) for line in message.decode().splitlines())
            if "FDSTOREREMOVE" in said and said["FDNAME"] in self.kept:
                os.close(self.kept.pop(said["FDNAME"]))
            for descriptor in passed:
                self.kept[said["FDNAME"]] = descriptor

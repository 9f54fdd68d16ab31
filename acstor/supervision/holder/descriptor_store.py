"""Descriptors that outlive the process that opened them."""

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass

DESCRIPTORS_MAX = 512
"""Most descriptors that are kept: the mount, the peer socket, and a socket per open volume."""


@dataclass(frozen=True)
class StoredDescriptor:
    """One kept descriptor."""

    name: str
    descriptor: int
    is_polled: bool
    """Dropped once it polls as hung up or in error (``FDPOLL=0`` was not given)."""


class DescriptorStore:
    """Named descriptors, owned by the store; rules as in systemd's ``FDSTORE=1``.

    A name may be stored several times; a descriptor of the same open file and name once.
    """

    def __init__(self, descriptors_max: int = DESCRIPTORS_MAX) -> None:
        self._descriptors_max = descriptors_max
        self._stored: list[StoredDescriptor] = []

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[StoredDescriptor]:
        return iter(tuple(self._stored))

    def add(self, name: str, descriptor: int, *, is_polled: bool) -> bool:
        """Take ownership of ``descriptor``; return whether it is kept (else it is closed)."""
        if len(self._stored) >= self._descriptors_max or self._is_known(name, descriptor):
            os.close(descriptor)
            return False
        self._stored.append(StoredDescriptor(name, descriptor, is_polled))
        return True

    def remove(self, name: str) -> int:
        """Close all descriptors under ``name``; return how many there were."""
        leaving = [stored for stored in self._stored if stored.name == name]
        self._drop(leaving)
        return len(leaving)

    def drop_dead(self) -> int:
        """Close the polled descriptors that are hung up or in error; return how many."""
        poller = select.poll()
        for stored in self._stored:
            if stored.is_polled:
                poller.register(stored.descriptor, 0)
        dead = {descriptor for descriptor, _ in poller.poll(0)}
        leaving = [stored for stored in self._stored if stored.descriptor in dead]
        self._drop(leaving)
        return len(leaving)

    def close(self) -> None:
        """Close everything."""
        self._drop(list(self._stored))

    def _is_known(self, name: str, descriptor: int) -> bool:
        # Every descriptor of /dev/fuse has the same inode, so equal inodes prove nothing there;
        # only sockets and pipes, whose inode is their own, are recognised as stored already.
        arriving = os.fstat(descriptor)
        if os.major(arriving.st_rdev) or os.minor(arriving.st_rdev):
            return False
        return any(
            stored.name == name and os.path.samestat(os.fstat(stored.descriptor), arriving)
            for stored in self._stored
        )

    def _drop(self, leaving: list[StoredDescriptor]) -> None:
        for stored in leaving:
            self._stored.remove(stored)
            os.close(stored.descriptor)

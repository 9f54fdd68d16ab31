"""Interface of an approach, as the demo calls it."""

import abc
import dataclasses
from typing import ClassVar

from testbed.guest.build import GuestImage
from testbed.guest.machine import BackingDisk
from testbed.network import Namespace
from testbed.testbed import Testbed


@dataclasses.dataclass(frozen=True)
class TierBytes:
    """Bytes that one host's guests got, by where they came from; None: not counted."""

    local: int | None = None  #: a disk or the memory of the same host
    peer: int | None = None  #: another host
    origin: int | None = None  #: the origin, over its link

    def __add__(self, other: "TierBytes") -> "TierBytes":
        def add(one: int | None, two: int | None) -> int | None:
            return None if one is None and two is None else (one or 0) + (two or 0)

        return TierBytes(
            add(self.local, other.local),
            add(self.peer, other.peer),
            add(self.origin, other.origin),
        )


class Approach(abc.ABC):
    """One way to give every host the image; started cold, used once, stopped."""

    name: ClassVar[str]
    title: ClassVar[str]
    explanation: ClassVar[str]

    def __init__(self, testbed: Testbed, image: GuestImage) -> None:
        self.testbed = testbed
        self.image = image
        #: Bytes of chunks that left the origin, as the data planes count them; None: not counted.
        self.origin_chunk_bytes: int | None = None
        #: Bytes of the distinct chunks that were asked of the data planes; None: not counted.
        self.union_bytes: int | None = None

    @abc.abstractmethod
    def start(self) -> None:
        """Start all servers with empty caches; return when guests can be started.

        :raises NotReadyError: when one does not become ready.
        """

    @abc.abstractmethod
    def disk(self, host: Namespace) -> BackingDisk:
        """Return the disk that a guest on a host puts its overlay on."""

    def measure(self) -> None:  # noqa: B027 - most approaches are measured by their links
        """Note counters that end with the servers; called when the guests are stopped."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop all servers; also after a start that failed half-way."""

    @abc.abstractmethod
    def tiers(self) -> dict[str, TierBytes]:
        """Return what the guests of each host got so far; complete after :meth:`stop`."""

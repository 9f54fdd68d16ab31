"""The seam that an agent's reconcilers are plugged into.

A reconcile pass finds out once how things stand (:class:`HostSnapshot`) and shows that to every
reconciler in turn. A reconciler acts on the difference between what is and what should be, quickly:
what takes longer than a pass may take runs on a thread of the reconciler's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from acstor.agent.reconcilers.usage_publication import LocalUse
from acstor.cluster.membership import View
from acstor.control.client import AdminClient
from acstor.origin.base import Origin, RefStore


@dataclass(frozen=True)
class HostSnapshot:
    """State of a host at one pass."""

    host: str
    data_plane: AdminClient
    """Of this host; its calls raise :class:`~acstor.exception.UnavailableError` when it is away."""
    status: Mapping[str, Any] | None
    """Status that the data plane tells of itself; None: it does not answer."""
    origin: Origin | None
    """None: it cannot be reached, or the pass stopped before it came to the images."""
    generation: int | None
    """Of the ring that the data plane uses."""
    is_draining: bool
    view: View
    """The members."""
    registered: frozenset[str] | None = None
    """Ids of the images registered in the origin; None: not known at this pass."""
    offered: Mapping[str, str] = field(default_factory=dict)
    """By image id the manifest that the data plane has attached and lists."""
    pinned: frozenset[str] = frozenset()
    """Ids of the images whose head and tail are pinned in the data-plane process of ``status``."""
    round: int = 0
    """The newest withdrawal round, read before anything else of this pass; 0: none is known."""
    epoch: str = ""
    """That ``round`` is of."""
    closed: frozenset[str] = frozenset()
    """Ids of the registered images of which no new use may become possible."""
    kept: frozenset[str] = frozenset()
    """Ids of the images that are attached although they are not registered, because a reconciler
    needs them (:class:`ImageUser`); or although their records are not believed any more."""
    unverified: frozenset[str] = frozenset()
    """Ids of the images whose records are not believed: no new use of them may become possible."""
    whole: frozenset[str] = frozenset()
    """Ids of the images of which this host is to keep every chunk (``acstor_pin=true``)."""
    whole_pinned: frozenset[str] = frozenset()
    """Those of ``whole`` of which the data-plane process of ``status`` has pinned every chunk."""


class Reconciler(Protocol):
    """Keeps one thing on a host as it should be."""

    @property
    def name(self) -> str:
        """Name under which its problems are listed."""

    def start(self) -> None:
        """Start what runs beside the passes."""

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Act on one pass.

        :returns: problems, by what they are about; empty when all is well.
        :raises AcstorError: when it cannot be done at all; it is listed under :attr:`name`.
        :raises OSError: likewise.
        """

    def stop(self, timeout: float) -> None:
        """Stop what runs beside the passes, within ``timeout`` seconds."""


@runtime_checkable
class ImageUser(Protocol):
    """A reconciler that needs images to stay attached, registered or not."""

    def images_needed(self) -> frozenset[str] | None:
        """Return the ids of the images that must not be detached.

        None: not known yet, so none may be.
        """

    def local_use(self) -> LocalUse | None:
        """Return what instances on this host's disk need; None: not known yet."""


@runtime_checkable
class Precondition(Protocol):
    """A reconciler with work that comes before anything else of a pass that needs the origin.

    This host is a member, and its data plane is given a ring and images, only after the first try.
    """

    def prepare(self, refs: RefStore, status: Mapping[str, Any]) -> None:
        """Do it, in a few seconds.

        :param status: of the data plane.
        :raises UnavailableError: when the origin or the data plane cannot be reached.
        """

"""The simulator's core, compiled (``crates/simcore``; the module is ``crates/simext``).

Times are seconds, amounts bytes, rates bytes per second. Hosts are numbered from 0; the origin is
the number after the last host. ``bytes`` are arrays of doubles, for :func:`numpy.frombuffer`.
"""

from collections.abc import Mapping, Sequence
from typing import final

from sim.programs import Programs
from sim.traffic import ExtraFlows

__all__ = ["Simulation", "Tree"]

@final
class Tree:
    """The links of a tree of switches."""

    def __new__(
        cls,
        fanout: Sequence[int],
        rates: Sequence[float],
        origin_rate: float,
        root_rate: float | None = None,
        storage_rate: float | None = None,
        processor_rate: float | None = None,
    ) -> Tree:
        """Make a tree, given from the root down.

        :param rates: of the links below the root first, each way.
        :param root_rate: what the root forwards; None: no bound.
        :param storage_rate: of each host's link to a network of the origin's own; None: the origin
            is at the root.
        :param processor_rate: of the chunks that each host's processors send and receive together;
            None: no bound.
        :raises ValueError: on another number of levels than 1 to 4, or of rates than of levels.
        """

    @property
    def capacity(self) -> list[float]:
        """Return the rate of each link."""

    def path(self, source: int, target: int) -> list[int]:
        """Return the links from one host to another, in order."""

@final
class Simulation:
    """A data centre under way."""

    def __new__(
        cls,
        rules: Mapping[str, float],
        tree: Tree,
        extra: ExtraFlows,
        inelastic: Sequence[int],
        left_share: float | None,
        programs: Programs,
        capacity_chunks: int,
        samples_max: int,
        seed: int,
    ) -> Simulation:
        """Make a data centre in which nothing has happened.

        :param rules: fields of :class:`sim.rules.Rules`.
        :param inelastic: flows of the extra traffic that go past the sharing of links.
        :param left_share: part of a link that these leave to all others at least; None: as
            measured, by the number of chunks that move over it and by its direction.
        :param capacity_chunks: of each host's store; 0: no bound.
        :param samples_max: how often all hosts' traffic is noted at most.
        :raises KeyError: when a rule is missing.
        :raises ValueError: when a program's profile is none.
        """

    @property
    def now(self) -> float:
        """Return the time up to which the run has come."""

    @property
    def unfinished(self) -> int:
        """Return how many machines still run their programs."""

    def advance(self, until: float) -> None:
        """Run until a time."""

    def place_machines(
        self, hosts: Sequence[int], programs: Sequence[int], starts: Sequence[float]
    ) -> None:
        """Place machines: the host of each, its program, when it starts."""

    def install_ring(self, encoded: bytes, threshold: int | None, names: Sequence[str]) -> int:
        """Make a ring with a threshold known, and return the number by which hosts can use it.

        :param encoded: the ring's file.
        :param names: of the hosts in the ring.
        :raises ValueError: when it is no ring, or has a host that is none of these.
        """

    def use_ring(self, slot: int) -> None:
        """Let all hosts use a ring at once."""

    def follow_ring(self, slot: int, hosts: Sequence[int], times: Sequence[float]) -> None:
        """Let hosts use a ring, each from its time on."""

    def line(self, host: int, content: int) -> list[int]:
        """Return whom a host asks for a content, as the ring in use says; four hosts at most."""

    def recover(self, host: int, contents: Sequence[int]) -> None:
        """Put contents into a host's store, as if they had been there when it started."""

    def held(self) -> list[int]:
        """Return how many chunks each host has in its store."""

    def set_extra(self, factor: float) -> None:
        """Let the extra traffic want so many times what it wanted at first."""

    def leave(self, host: int) -> None:
        """Take a host away; its extra traffic ends with the next :meth:`set_extra`."""

    def start_samples(self) -> None:
        """Queue the first sample of all hosts' traffic."""

    def start_reports(self, phases: Sequence[float]) -> None:
        """Queue the first report of each host."""

    def start_walks(self, starts: Sequence[float]) -> None:
        """Queue the first walk of each host's store, where stores have bounds."""

    def is_alive(self) -> list[bool]:
        """Return which hosts have not left."""

    def counters(self) -> dict[str, bytes]:
        """Return what hosts have carried.

        Keys: ``extra_in``, ``extra_out``, ``moved_in``, ``moved_out``.
        """

    def reports(self) -> tuple[bytes, bytes]:
        """Return when each host reported last (negative: never), and four rates of each.

        These are extra traffic received and sent, chunks received and sent.
        """

    def samples(self) -> tuple[bytes, bytes]:
        """Return when all hosts' traffic was noted, and by sample what each had carried."""

    def machines(self) -> dict[str, bytes]:
        """Return by machine what has become of it; 1 and 0 for yes and no.

        Keys: ``is_ended``, ``is_broken``, ``started``, ``ended`` (not a number where it has not),
        ``waited``, ``served``.
        """

    def tiers(self) -> list[bytes]:
        """Return by host what came from its own store, peers, owners before, the origin."""

    def regrets(self) -> bytes:
        """Return what sources that were chosen would take beside the best ones; see ``oracle``."""

    def totals(self) -> dict[str, float]:
        """Return the sums over the run."""

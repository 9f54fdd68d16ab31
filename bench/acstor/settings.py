"""Settings of a storm of the evaluation, and the scale between the paper's links and ours.

The paper's hosts have links of 1 Gbit/s; those of the testbed are slower by :attr:`scale`, so that
the network and not this machine's processors is the limit. Everything that is a rate or a time is
scaled alike: extra traffic is given as on 1 Gbit/s and divided, deadlines of the read path are
multiplied. The trace is cut to its first reads, which makes up for the slower links, so seconds
are about those of the whole trace on 1 Gbit/s.
"""

import dataclasses
import pathlib

from sim import programs
from sim.mixes import MIXES
from testbed import processes
from testbed.approaches.names import APPROACHES
from testbed.exception import TestbedError
from testbed.host_processes import Configuration
from testbed.rates import LinkRate
from testbed.run_directory import DEFAULT_ROOT

PAPER_RATE = 1e9
"""Bits per second of the paper's links."""
MEGABYTE = 1e6
BOOT = "boot"
RATE = LinkRate(40_000_000)
ROOT = pathlib.Path(__file__).resolve().parents[2]
"""Directory from which programs of this package are started."""
TRACE = ROOT / "bench" / "traces" / "debian-12-boot.jsonl"
FIRST_READ = programs.FIRST_READ
"""Reads before this one are the firmware's, with ten seconds of thought after them."""
_DEADLINES = {"peer_deadline": 2.0, "origin_deadline": 10.0, "read_deadline": 30.0}
_HEDGE_MIN = 0.02
_SLOW_FETCH = 0.005


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """One storm, but for the approach.

    :raises TestbedError: when a value is out of its range.
    """

    hosts: int = 32
    guests_per_host: int = 5
    images: int = 5
    rate: LinkRate = RATE
    reads: int = 80
    """Reads of the trace that are replayed, from :data:`FIRST_READ` on."""
    workload: str = BOOT
    """Work of the guests: :data:`BOOT`, or a mix of :data:`sim.mixes.MIXES`."""
    loops: int = 40
    """Loops of a mix that each guest does."""
    mix_mib: int = 8
    """Of each image, the part that a mix's files are in, MiB."""
    think_scale: float = 1.0
    stagger: float = 1.0
    """Seconds within which all guests start."""
    mean: float = 70.0
    """Mean extra traffic of a host, sent and received, MB/s on links of 1 Gbit/s."""
    cv: float = 0.0
    busy_hosts: int = 0
    """Hosts that alone have extra traffic, the first ones; 0: ``mean`` and ``cv`` say who has."""
    busy_share: float = 0.9
    """Of a busy host's link, each direction."""
    seed: int = 1
    udp_share: float = 1.0
    congestion_control: str = "cubic"
    """TCP's, on all hosts and the origin; cubic is what Linux has unless it is told otherwise."""
    flows_per_host: int = 5
    interval: float = 4.0
    """Seconds between two states of a host, two looks of an agent and two collections."""
    span: int = 1
    """Chunks in a row that have one owner. With the default of 16 the reads that are replayed would
    be some dozens of pieces, and any placement of them uneven; single chunks are about as many
    pieces as the whole trace has with 16."""
    is_warm: bool = False
    """True if all guests have booted once before the extra traffic begins."""
    warm_up: float = 20.0
    """Seconds of extra traffic before the guests start, in which ACStor may notice it."""
    deadline: float = 300.0
    """Seconds after which a guest that is not done counts as one that did not boot."""
    weights: str = "headroom"
    weight_lambda: float = 1.67
    is_content_generated: bool = False
    """True if disks hold random bytes in place of the recorded guest's."""
    keep: bool = False
    root: pathlib.Path = DEFAULT_ROOT

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("hosts", 2, 256),
            ("guests_per_host", 1, 16),
            ("images", 1, 64),
            ("reads", 1, 100_000),
            ("loops", 1, 10_000),
            ("mix_mib", 2, 1024),
            ("think_scale", 0.0, 100.0),
            ("stagger", 0.0, 600.0),
            ("mean", 0.0, 250.0),
            ("cv", 0.0, 10.0),
            ("busy_hosts", 0, self.hosts - 1),
            ("busy_share", 0.0, 1.0),
            ("udp_share", 0.0, 1.0),
            ("flows_per_host", 1, 32),
            ("interval", 0.5, 60.0),
            ("span", 1, 4096),
            ("warm_up", 0.0, 600.0),
            ("deadline", 1.0, 3600.0),
            ("weight_lambda", 0.01, 1000.0),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise TestbedError(
                    f"{name} = {value}", hint=f"choose {name} from {lowest:g} to {highest:g}"
                )
        if self.workload != BOOT and self.workload not in MIXES:
            raise TestbedError(
                f"workload {self.workload!r} is not known",
                hint=f"choose from {', '.join((BOOT, *MIXES))}",
            )

    @property
    def scale(self) -> float:
        """By how many times the links are slower than the paper's."""
        return PAPER_RATE / int(self.rate)

    @property
    def mean_bytes_per_s(self) -> float:
        """Mean extra traffic of a host on this testbed's links, bytes per second."""
        return self.mean * MEGABYTE / self.scale

    def read_path(self) -> dict[str, str]:
        """Return the options of ``[readpath]`` that hold times, scaled."""
        options = {
            name: str(min(600.0, seconds * self.scale)) for name, seconds in _DEADLINES.items()
        }
        return options | {
            "hedge_min": str(min(60.0, _HEDGE_MIN * self.scale)),
            "slow_fetch": str(min(1.0, _SLOW_FETCH * self.scale)),
        }

    def host_options(self) -> Configuration:
        """Return what hosts of the evaluation are configured with beside the testbed's usual."""
        return {
            "readpath": {**self.read_path(), "placement_span_chunks": str(self.span)},
            "store": {"capacity": "64MiB"},
            # What is pinned before a boot is not read in it: the paper's hosts start cold.
            "agent": {
                "interval": str(self.interval),
                "state_interval": str(self.interval),
                "pin_head": "0",
                "pin_tail": "0",
                "link_speed": str(max(1, round(int(self.rate) / 1e6))),
            },
        }


def checked_approaches(names: str) -> tuple[str, ...]:
    """Return the approaches that a comma-separated list names.

    :raises TestbedError: when one is not known.
    """
    chosen = tuple(name for name in names.split(",") if name)
    for name in chosen:
        if name not in APPROACHES:
            raise TestbedError(
                f"approach {name!r} is not known", hint=f"choose from {', '.join(APPROACHES)}"
            )
    return chosen


def require_tools(approaches: tuple[str, ...]) -> None:
    """Refuse to start without the programs that the approaches need.

    :raises ToolMissingError: when one is not installed.
    """
    if {"non-cache", "local-cache"} & set(approaches):
        for program in ("qemu-nbd", "nbdkit", "nbdfuse"):
            processes.require(program)

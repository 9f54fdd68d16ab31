"""Processor time of this machine: tells a limit of the network from one of the processors."""

import dataclasses
import pathlib

_STAT = pathlib.Path("/proc/stat")


@dataclasses.dataclass(frozen=True)
class ProcessorTime:
    """Ticks of all processors since the machine was started."""

    idle: int  #: waiting for a disk included
    total: int

    @classmethod
    def now(cls, stat: pathlib.Path = _STAT) -> "ProcessorTime":
        """Read the kernel's counters."""
        # user nice system idle iowait irq softirq steal; guests are in the first two already.
        fields = [int(value) for value in stat.read_text().splitlines()[0].split()[1:9]]
        return cls(fields[3] + fields[4], sum(fields))

    def idle_share_since(self, before: "ProcessorTime") -> float:
        """Return the part of the time since ``before`` in which processors had nothing to do."""
        return (self.idle - before.idle) / max(1, self.total - before.total)

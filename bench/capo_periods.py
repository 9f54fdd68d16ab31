"""Figures that Capo publishes of its trace of desktops, each with its place, and nothing else.

Source: Shamma et al., "Capo: Recapitulating Storage for Virtual Desktops", FAST 2011.
"""

import dataclasses

from acstor.repository.volumes.durability import DurabilityClass

WRITE_BACK_PERIOD_S = 600.0
"""Period of write-back and of differential durability, seconds (section 5.4.1)."""
DESKTOPS_TRACED = 55
"""Section 3.2; "% of VMs" of Table 1 is of these."""
REQUESTS_WRITTEN = 0.65
BYTES_WRITTEN = 0.35
"""Share of the whole week's bytes that were written (section 3.3, Figure 4);
:data:`REQUESTS_WRITTEN` is that of the requests."""

REWRITTEN = ((10.0, 0.08), (600.0, 0.25), (86400.0, 0.525))
"""Seconds for which writes are held back, and the share of the bytes that then are overwritten and
need not be sent (section 3.3, Figure 5: 8 %; 20 to 30 %; 50 to 55 %; the middles are taken)."""


@dataclasses.dataclass(frozen=True)
class Share:
    """Requests that reach the origin, as a share of those without any cache."""

    peak: float
    total: float


@dataclasses.dataclass(frozen=True)
class Period:
    """One of the six slices (Figure 2, Table 1) and what its replay came to (Table 3)."""

    number: int
    title: str
    minutes: int
    writes: float  #: share of the requests (Table 1)
    written: float  #: share of the bytes (Table 1)
    active: float  #: share of the desktops that contribute 5 % or more (Table 1)
    own_reads: float  #: share of reads of what the same desktop had before (Table 1)
    shared_reads: float  #: of what any desktop had before (Table 1)
    peak: int  #: requests in the busiest second, without cache (Table 3)
    total: int  #: requests, without cache (Table 3)
    peak_through: int  #: requests in the busiest second with write-through (Table 3)

    @property
    def seconds(self) -> int:
        return self.minutes * 60


PERIODS = (
    Period(1, "Mon 8:30", 15, 0.50, 0.22, 0.26, 0.81, 0.91, 2307, 262590, 893),
    Period(2, "Fri 8:30", 30, 0.52, 0.22, 0.29, 0.88, 0.97, 2516, 561894, 937),
    Period(3, "Tue 9:15", 15, 0.64, 0.43, 0.29, 0.78, 0.99, 1302, 143468, 876),
    Period(4, "Mon 14:00", 30, 0.62, 0.41, 0.07, 0.59, 0.99, 1887, 450914, 910),
    Period(5, "Tue 14:40", 20, 0.69, 0.52, 0.26, 0.77, 0.97, 1214, 159736, 890),
    Period(6, "Wed 16:00", 15, 0.60, 0.37, 0.26, 0.99, 0.995, 2185, 72082, 1155),
)

CLASS_SHARES = {
    DurabilityClass.WRITE_THROUGH: 0.535,
    DurabilityClass.WRITE_BACK: 0.325,
    DurabilityClass.NONE: 0.14,
}
"""Shares of the writes by the policies of Table 2: the mean of Figure 10's three workloads, as far
as section 5.1 says them in words (the figure's values are not printed). Web: "just over 20 %"
removed or delayed; e-mail: "very few" removed and "over half" delayed; application: "less than 36
%" written through. Taken as 78/11/11, 47/51/2 and 35.5/35.5/29 %. Section 4.3.3: the page file
alone is nearly a tenth of the bytes, which the last class holds."""

REPLAYED = {
    "write-through": {
        1: (893, 155757), 2: (937, 319936), 3: (876, 126049),
        4: (910, 334089), 5: (890, 141656), 6: (1155, 66668),
    },
    "write-back": {
        1: (670, 67798), 2: (671, 113184), 3: (595, 43455),
        4: (595, 131064), 5: (704, 45868), 6: (910, 29086),
    },
    "differential": {
        1: (712, 91877), 2: (903, 161737), 3: (802, 84044),
        4: (849, 271529), 5: (841, 75500), 6: (1368, 42895),
    },
}  # fmt: skip
"""Table 3: peak and total requests at the filer, by policy and period."""

PUBLISHED = {
    "write-through": Share(0.525, 0.76),
    "write-back": Share(0.381, 0.286),
    "differential": Share(0.501, 0.476),
}
"""Last row of Table 3: means over the six periods."""


def replayed(policy: str, period: Period) -> Share:
    """Return what Capo's replay of a period came to, as a share of no cache (Table 3)."""
    peak, total = REPLAYED[policy][period.number]
    return Share(peak / period.peak, total / period.total)

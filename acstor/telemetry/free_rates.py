"""Free rates of a host's links: what the interfaces have left over for the data plane."""

from dataclasses import dataclass

from acstor.telemetry.traffic import ExtraTraffic

FULL_SHARE = 0.9
"""Share of a link that extra traffic may take before the link counts as full: what is left then is
the headroom of the extra traffic's own bursts. Convention: rule 5 of the read path's steering."""


@dataclass(frozen=True)
class FreeRates:
    """Rates that the links have free, bytes per second; None: not known."""

    inwards: int | None = None
    outwards: int | None = None


def of(traffic: ExtraTraffic) -> FreeRates:
    """Return what is free of the links beside the extra traffic; 0 where they are full.

    The data plane's own traffic is not counted as used: it knows that itself, and would else be
    told that the link is full because it fills it.
    """
    link = traffic.link_bytes_per_s
    return FreeRates(_free(link, traffic.extra_in), _free(link, traffic.extra_out))


def _free(link: float | None, extra: float | None) -> int | None:
    if link is None or extra is None:
        return None
    return 0 if extra >= FULL_SHARE * link else int(link - extra)

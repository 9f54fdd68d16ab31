"""The result of record of Capo's table: shares, and requests over time (as Capo's Figure 14)."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench import capo_periods
from bench.capo_periods import PERIODS, PUBLISHED
from bench.capo_shares import NO_CACHE, POLICIES, Outcomes, mean_share, share_of
from testbed.results.record import Curve, Curves, Panel, Record, Table
from testbed.results.tables import rounded

BIN_S = 10
"""Seconds of which curves have the mean."""


def of_outcomes(outcomes: Outcomes, conditions: Mapping[str, Any], source: str) -> Record:
    """Return the record of one run."""
    return Record(
        title="Capo's table: requests at the origin by durability",
        source=source,
        tables={"shares": _shares(outcomes), "periods": _periods(outcomes)},
        conditions=conditions,
        plot=_curves(outcomes),
    )


def _policies(outcomes: Outcomes) -> list[str]:
    return [name for name in POLICIES if name in PUBLISHED and name in outcomes]


def _shares(outcomes: Outcomes) -> Table:
    columns = ["policy", "peak_requests", "peak_requests_capo", "total_requests",
               "total_requests_capo", "peak_operations", "total_operations"]  # fmt: skip
    headings = ["Policy, % of no cache", "Peak, requests", "(Capo)", "Total, requests", "(Capo)",
                "Peak, operations", "Total, operations"]  # fmt: skip
    rows = []
    for policy in _policies(outcomes):
        ours, capo = mean_share(outcomes, policy), PUBLISHED[policy]
        operations = mean_share(outcomes, policy, is_operations=True)
        shares = (ours.peak, capo.peak, ours.total, capo.total, operations.peak, operations.total)
        rows.append([policy, *(_percent(share) for share in shares)])
    return Table(columns, rows, headings)


def _periods(outcomes: Outcomes) -> Table:
    columns = ["period", "begin", "policy", "peak", "total", "peak_capo", "total_capo",
               "peak_operations", "total_operations", "write_ms"]  # fmt: skip
    headings = ["Period", "begins", "policy", "peak, %", "total, %", "Capo's peak", "Capo's total",
                "peak of operations", "total of operations", "a write, ms"]  # fmt: skip
    rows = []
    for period in PERIODS:
        for policy in _policies(outcomes):
            if period.number in outcomes[policy]:
                found, base = outcomes[policy][period.number], outcomes[NO_CACHE][period.number]
                ours, capo = share_of(found, base), capo_periods.replayed(policy, period)
                operations = share_of(found, base, is_operations=True)
                shares = (ours.peak, ours.total, capo.peak, capo.total)
                cells = [_percent(share) for share in (*shares, operations.peak, operations.total)]
                write_ms = rounded(found.write_ms)
                rows.append([period.number, period.title, policy, *cells, write_ms])
    return Table(columns, rows, headings)


def _percent(share: float) -> Any:
    return rounded(round(100 * share, 1))


def _curves(outcomes: Outcomes) -> Curves:
    """Return a panel for the requests of each period, and one for its operations."""
    panels = []
    for period in PERIODS:
        if period.number not in outcomes[NO_CACHE]:
            continue
        for unit in ("requests", "operations"):
            lines = {
                policy: Curve(_means(getattr(outcomes[policy][period.number], unit)))
                for policy in POLICIES
                if policy in outcomes
            }
            panels.append(Panel(f"{period.title}: {unit}/s", lines))
    x_label = f"min; means of {BIN_S} s"
    return Curves(x_label, "", panels, x_step=round(BIN_S / 60, 6), columns=2, is_y_shared=False)


def _means(counts: Sequence[float]) -> list[Any]:
    starts = range(0, len(counts), BIN_S)
    return [rounded(round(sum(counts[at : at + BIN_S]) / BIN_S, 2)) for at in starts]

"""Shares of the requests that volumes make without any cache."""

import statistics
from collections.abc import Mapping

from bench.capo_periods import Share
from bench.capo_replay import Outcome

NO_CACHE = "no cache"
POLICIES = (NO_CACHE, "write-through", "write-back", "differential")
"""Policies in the order in which pages and drawings have them."""
Outcomes = Mapping[str, Mapping[int, Outcome]]
"""Outcomes by policy and number of the period."""


def share_of(outcome: Outcome, base: Outcome, *, is_operations: bool = False) -> Share:
    counts = outcome.operations if is_operations else outcome.requests
    return Share(max(counts) / base.peak, sum(counts) / base.total)


def mean_share(outcomes: Outcomes, policy: str, *, is_operations: bool = False) -> Share:
    """Mean over the periods, as in the last row of Capo's Table 3."""
    shares = [
        share_of(outcome, outcomes[NO_CACHE][number], is_operations=is_operations)
        for number, outcome in outcomes[policy].items()
    ]
    return Share(
        statistics.mean(share.peak for share in shares),
        statistics.mean(share.total for share in shares),
    )


def looks_share(outcomes: Outcomes, policy: str) -> float:
    """Mean over the periods of the looks, as a share of the requests without cache."""
    by_period = outcomes[policy].items()
    return statistics.mean(
        one.looks / outcomes[NO_CACHE][number].total for number, one in by_period
    )

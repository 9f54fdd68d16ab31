"""Holt's linear trend, damped: double exponential smoothing.

Source: C. C. Holt, Forecasting seasonals and trends by exponentially weighted moving averages
(1957); damping by E. S. Gardner and E. McKenzie (1985). The ACStor paper names prediction of
traffic as future work (section 6).

Level and trend are smoothed by :data:`LEVEL_WEIGHT` and :data:`TREND_WEIGHT`; the trend counts
less with each step ahead. Not for traffic that comes in bursts shorter than a few collections: it
then forecasts that a burst that is over goes on.
"""

from acstor.policy.forecasts.base import Series
from acstor.policy.settings import PolicySettings

LEVEL_WEIGHT = 0.6
TREND_WEIGHT = 0.3
DAMPING = 0.8


class Holt:
    """Remembers level and trend of a series."""

    def __init__(self, settings: PolicySettings) -> None:
        self._steps = sum(DAMPING**step for step in range(1, settings.horizon + 1))

    def advance(self, series: Series | None, value: float) -> Series:
        """Return level and trend after one more value."""
        if series is None:
            return (value, 0.0)
        level, trend = series
        expected = level + DAMPING * trend
        new_level = LEVEL_WEIGHT * value + (1 - LEVEL_WEIGHT) * expected
        new_trend = TREND_WEIGHT * (new_level - level) + (1 - TREND_WEIGHT) * DAMPING * trend
        return (new_level, new_trend)

    def ahead(self, series: Series) -> float:
        """Return the level that the damped trend leads to, not below 0."""
        level, trend = series
        return max(0.0, level + self._steps * trend)

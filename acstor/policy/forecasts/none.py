"""No forecast: what was measured last goes on."""

from acstor.policy.forecasts.base import Series
from acstor.policy.settings import PolicySettings


class NoForecast:
    """The last value."""

    def __init__(self, settings: PolicySettings) -> None:
        del settings

    def advance(self, series: Series | None, value: float) -> Series:
        """Return the value."""
        del series
        return (value,)

    def ahead(self, series: Series) -> float:
        """Return the last value."""
        return series[0]

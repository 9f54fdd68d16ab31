"""Interface of a forecast."""

from typing import Protocol

from acstor.policy.settings import PolicySettings

Series = tuple[float, ...]
"""Memory of a forecast for one series of rates; plain numbers, kept in decision logs."""


class Forecast(Protocol):
    """Says how a rate goes on; made with the settings, keeps nothing itself."""

    def __init__(self, settings: PolicySettings) -> None: ...

    def advance(self, series: Series | None, value: float) -> Series:
        """Return what is remembered after one more value, one per collection."""

    def ahead(self, series: Series) -> float:
        """Return the rate that is expected ``horizon`` collections from the last value."""

"""Free rates of links."""

import pytest

from acstor.telemetry import free_rates
from acstor.telemetry.free_rates import FreeRates
from acstor.telemetry.traffic import ExtraTraffic


@pytest.mark.parametrize(
    ("extra_in", "extra_out", "link", "expected"),
    [
        (0.0, 25e6, 125e6, FreeRates(125_000_000, 100_000_000)),
        (112.5e6, 112.4e6, 125e6, FreeRates(0, 12_600_000)),
        (300e6, 0.0, 125e6, FreeRates(0, 125_000_000)),
        (None, 0.0, 125e6, FreeRates(None, 125_000_000)),
        (0.0, 0.0, None, FreeRates()),
        (None, None, 125e6, FreeRates()),
    ],
)
def test_free_is_what_extra_traffic_leaves_over(
    extra_in: float | None, extra_out: float | None, link: float | None, expected: FreeRates
) -> None:
    assert free_rates.of(ExtraTraffic(extra_in, extra_out, link)) == expected


def test_own_traffic_takes_nothing_of_what_is_free() -> None:
    traffic = ExtraTraffic(0.0, 0.0, 125e6, moved_in=120e6, moved_out=120e6)
    assert free_rates.of(traffic) == FreeRates(125_000_000, 125_000_000)

"""Rates of links."""

import pytest

from testbed.rates import LinkRate


@pytest.mark.parametrize(
    ("text", "bits", "shown"),
    [
        ("200mbit", 200_000_000, "200mbit"),
        ("1gbit", 10**9, "1gbit"),
        ("1.5Gbit", 1_500_000_000, "1.5gbit"),
        ("500 kbit", 500_000, "500kbit"),
        ("100000bit", 100_000, "100kbit"),
    ],
)
def test_parse_and_show(text: str, bits: int, shown: str) -> None:
    rate = LinkRate.parse(text)
    assert rate == bits
    assert rate.bytes_per_s == bits // 8
    assert str(rate) == shown
    assert LinkRate.parse(str(rate)) == rate


@pytest.mark.parametrize("text", ["", "200", "mbit", "-1mbit", "1tbit", "10mbyte", "1 2mbit"])
def test_malformed_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no rate"):
        LinkRate.parse(text)


@pytest.mark.parametrize("text", ["99kbit", "41gbit"])
def test_rate_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        LinkRate.parse(text)

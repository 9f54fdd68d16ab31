"""Rates of links, written as tc(8) writes them: ``200mbit``, ``1gbit``."""

import re
from typing import Self

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(bit|kbit|mbit|gbit)", re.IGNORECASE)

#: Slowest and fastest link that the shaper keeps to within some per cent on a small machine.
RATE_MIN_BITS_PER_S = 10**5
RATE_MAX_BITS_PER_S = 40 * 10**9


class LinkRate(int):
    """Bits per second of one direction of a link."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rate that a text such as ``200mbit`` names.

        :raises ValueError: when the text is no rate, or out of range.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no rate; write for instance 200mbit or 1gbit")
        rate = cls(float(match[1]) * _UNITS[match[2].lower()])
        if not RATE_MIN_BITS_PER_S <= rate <= RATE_MAX_BITS_PER_S:
            raise ValueError(f"{text!r} is out of range: 100kbit to 40gbit")
        return rate

    @property
    def bytes_per_s(self) -> int:
        """Return the rate in bytes per second."""
        return int(self) // 8

    def __str__(self) -> str:
        for unit in ("gbit", "mbit", "kbit"):
            if self >= _UNITS[unit]:
                return f"{int(self) / _UNITS[unit]:g}{unit}"
        return f"{int(self)}bit"

"""Types of option values that oslo.config does not have."""

import re
from collections.abc import Sequence
from typing import Any

from oslo_config import types

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

_UNITS = {
    "": 1, "B": 1,
    "K": KIB, "KIB": KIB, "KB": 1000,
    "M": MIB, "MIB": MIB, "MB": 1000**2,
    "G": GIB, "GIB": GIB, "GB": 1000**3,
    "T": TIB, "TIB": TIB, "TB": 1000**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_NAMED = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def format_size(size_bytes: int) -> str:
    """Return a size in the largest binary unit that divides it, e.g. ``64 MiB``."""
    for unit, name in _NAMED:
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


class ByteSize(types.ConfigType):
    """A size in bytes, written with or without a unit: ``1073741824``, ``1G``, ``1GiB``, ``1 GB``.

    K, M, G and T alone and with ``iB`` are powers of 1024; ``KB``, ``MB``, ``GB``, ``TB`` are
    powers of 1000.

    :param min: smallest value, bytes.
    :param max: largest value, bytes.
    """

    def __init__(self, min: int = 0, max: int = 1 << 62) -> None:  # noqa: A002
        super().__init__(type_name="size in bytes")
        self.min = min
        self.max = max

    def __call__(self, value: Any) -> int:
        """Return the size in bytes.

        :raises ValueError: for no size or one out of range.
        """
        if isinstance(value, int):
            size_bytes = value
        else:
            match = _SIZE.fullmatch(str(value))
            if match is None or match[2].upper() not in _UNITS:
                raise ValueError("is not a size such as 20GiB")
            number, unit = match[1], _UNITS[match[2].upper()]
            size_bytes = int(float(number) * unit) if "." in number else int(number) * unit
        if not self.min <= size_bytes <= self.max:
            raise ValueError(f"is not {self.describe()}")
        return size_bytes

    def describe(self) -> str:
        """Return the range in words."""
        return f"from {format_size(self.min)} to {format_size(self.max)}"

    def __repr__(self) -> str:
        return f"ByteSize(min={self.min}, max={self.max})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteSize) and (self.min, self.max) == (other.min, other.max)

    def __hash__(self) -> int:
        return hash((self.min, self.max))

    def _formatter(self, value: Any) -> str:
        return str(value)


class PowerOfTwo(types.Integer):
    """An integer that is a power of two."""

    def __call__(self, value: Any) -> int:
        """Return the number.

        :raises ValueError: for no number, one out of range, or no power of two.
        """
        number = super().__call__(value)
        if number is None or int(number) & (int(number) - 1):
            raise ValueError("is not a power of two")
        return int(number)


class Choices(types.List):
    """One or more of some words, separated by commas.

    :param choices: the words.
    """

    def __init__(self, choices: Sequence[str]) -> None:
        super().__init__(types.String(choices=list(choices)), type_name="list of words")
        self.words = tuple(choices)

    def __call__(self, value: Any) -> list[str]:
        """Return the words.

        :raises ValueError: for none, or another one.
        """
        words: list[str] = super().__call__(value)
        if not words:
            raise ValueError(f"is not {self.describe()}")
        return words

    def describe(self) -> str:
        """Return the words that are allowed."""
        return f"one or more of {', '.join(self.words)}"

"""Sizes as arguments of commands, such as 20GiB."""

import argparse

from acstor.conf.types import MIB, ByteSize


def size(text: str) -> int:
    """Return the bytes of a size of a mebibyte at least.

    :raises ArgumentTypeError: when it is none.
    """
    try:
        return ByteSize(MIB)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error

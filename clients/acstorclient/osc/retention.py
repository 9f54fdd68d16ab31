"""Retention in restic's words, as arguments and as lines."""

import argparse
import re
from typing import Any

COUNTERS = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
"""Counters of a policy; -1: all."""
SPANS = ("within", *(f"within_{name}" for name in COUNTERS[1:]))
"""Spans of a policy, ``2y5m7d3h``."""
COUNT_MAX = 1_000_000
"""Largest counter that is no mistyped number."""

_SPAN = re.compile(r"(?=\d)(\d+y)?(\d+m)?(\d+d)?(\d+h)?\Z")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """Add ``--keep-last`` and the others, as ``restic forget`` has them."""
    group = parser.add_argument_group("retention, as 'restic forget' has it")
    for name in COUNTERS:
        group.add_argument(
            f"--keep-{name}",
            metavar="<n>",
            type=count,
            help=f"Keep the last <n> {'' if name == 'last' else name + ' '}versions; -1: all",
        )
    for name in SPANS:
        kept = name.removeprefix("within").removeprefix("_")
        group.add_argument(
            f"--keep-{name.replace('_', '-')}",
            metavar="<span>",
            type=span,
            help=f"Keep {kept or 'all'} versions less than <span> older than the newest: 2y5m7d",
        )


def keep_of(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the policy of those arguments; empty where none is given."""
    given = {name: getattr(parsed_args, f"keep_{name}") for name in (*COUNTERS, *SPANS)}
    return {name: value for name, value in given.items() if value is not None}


def count(text: str) -> int:
    """Read a counter."""
    if not re.fullmatch(r"-1|\d{1,7}", text) or int(text) > COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not from -1 to {COUNT_MAX}")
    return int(text)


def span(text: str) -> str:
    """Read a span."""
    if not _SPAN.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no span such as 2y5m7d3h")
    return text

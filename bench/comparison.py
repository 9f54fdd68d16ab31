"""Measuring ACStor beside its peers: runs in turns, medians, spread, ratios, a table and JSON."""

import argparse
import dataclasses
import json
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence

from testbed.measurement import machine

RUNS_DEFAULT = 5


@dataclasses.dataclass(frozen=True)
class Series:
    """One figure, measured several times."""

    name: str
    unit: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self) -> str:
        """The median, with the lowest and the highest value."""
        low, high = min(self.values), max(self.values)
        return f"{number(self.median)} {self.unit} ({number(low)}..{number(high)})"


@dataclasses.dataclass(frozen=True)
class Row:
    """A figure of ours, that of the peer in the same runs, and what was aimed at."""

    what: str
    ours: Series
    peer: Series | None = None
    target: str = ""
    is_met: Callable[[float], bool] | None = None  #: of the ratio, or of our median without peer

    @property
    def ratio(self) -> float | None:
        """Median of the ratios of the runs: a slow moment of the machine slows both."""
        if self.peer is None:
            return None
        pairs = zip(self.ours.values, self.peer.values, strict=True)
        return statistics.median(one / other for one, other in pairs)

    @property
    def verdict(self) -> str:
        if self.is_met is None:
            return ""
        value = self.ours.median if self.ratio is None else self.ratio
        return "met" if self.is_met(value) else "missed"


def number(value: float) -> str:
    """Three or four digits, no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def at_least(bound: float) -> Callable[[float], bool]:
    return lambda value: value >= bound


def at_most(bound: float) -> Callable[[float], bool]:
    return lambda value: value <= bound


def interleave(cases: Mapping[str, Callable[[], float]], runs: int) -> dict[str, list[float]]:
    """Run all cases in turns, so that the machine's moods fall on all of them."""
    values: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            values[name].append(case())
    return values


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS_DEFAULT, help="(default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    return parser


def report(title: str, rows: Sequence[Row], json_path: pathlib.Path | None) -> None:
    """Print the table and write the JSON."""
    cells = [("", "ACStor", "peer", "ratio", "target", "")]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        peer = "" if row.peer is None else f"{row.peer.name}: {row.peer.text()}"
        cells.append((row.what, row.ours.text(), peer, ratio, row.target, row.verdict))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(title, rows), indent=1) + "\n")


def as_json(title: str, rows: Sequence[Row]) -> dict[str, object]:
    return {
        "title": title,
        "machine": machine(),
        "rows": [
            {
                "what": row.what,
                "ours": dataclasses.asdict(row.ours),
                "peer": None if row.peer is None else dataclasses.asdict(row.peer),
                "median": row.ours.median,
                "ratio": row.ratio,
                "target": row.target,
                "verdict": row.verdict,
            }
            for row in rows
        ],
    }

"""Results as tables for people, on a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from sim import sweep
from testbed.results.tables import Rows, number

_TEXTS = ("variant", "scenario", "title")


def of_medians(results: Sequence[dict[str, Any]], metrics: Sequence[str]) -> Rows:
    """Return a table, header first: medians over the seeds, the spread of the first metric."""
    medians = sweep.medians(results, metrics)
    axes = list(medians[0]["axes"]) if medians else []
    rows = [[*axes, "variant", *metrics, "lowest", "highest"]]
    for row in medians:
        first = metrics[0]
        rows.append(
            [number(row["axes"][name]) for name in axes]
            + [row["variant"]]
            + [number(row[metric]) for metric in metrics]
            + [number(row[f"{first}_low"]), number(row[f"{first}_high"])]
        )
    return rows


def of_ratios(results: Sequence[dict[str, Any]], metric: str, base: str) -> Rows:
    """Return a table, header first: how many times the base's metric is a variant's."""
    found = sweep.ratios(results, metric, base)
    axes = list(found[0]["axes"]) if found else []
    figures = ("ratio", "low", "high", *ceiling_columns(found))
    names = [f"{base} / variant", "lowest", "highest", *ceiling_columns(found)]
    rows = [[*axes, "variant", *names, "runs"]]
    for row in found:
        rows.append(
            [number(row["axes"][name]) for name in axes]
            + [row["variant"], *(number(row[name]) for name in figures), str(row["runs"])]
        )
    return rows


def ceiling_columns(found: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the columns of ratios that say what think time allows, where it is known."""
    is_known = any(row["ceiling"] is not None for row in found)
    return ("ceiling", "share") if is_known else ()


def show(title: str, rows: Rows, console: Console) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in _TEXTS else "right", overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)

"""Tables for people: figures with three or four digits, reStructuredText."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from testbed.results.record import Table

Rows = list[list[str]]


def number(value: Any) -> str:
    """Return three or four digits, or nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):d}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def rounded(value: Any) -> Any:
    """Return a figure with the digits that :func:`number` shows; other values as they are."""
    if value is None or isinstance(value, str | bool | int):
        return value
    text = number(value)
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)


def cell_text(cell: Any) -> str:
    """Return how a page shows a cell of a record: with the digits that the record has.

    Several figures are separated by commas; of a spread it is the median (lowest-highest).
    """
    if cell is None:
        return ""
    if isinstance(cell, Mapping):
        return f"{cell['median']} ({cell['low']}-{cell['high']})"
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        return ", ".join(str(one) for one in cell)
    return str(cell)


def rst_of(table: Table) -> str:
    """Return a table of a record in reStructuredText."""
    rows = [list(table.headings or table.columns)]
    rows += [[cell_text(cell) for cell in row] for row in table.rows]
    return as_rst(rows)


def as_rst(rows: Rows) -> str:
    """Return a table of reStructuredText."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "  ".join("=" * max(1, width) for width in widths)
    lines = [rule]
    for index, row in enumerate(rows):
        # An empty first cell would continue the row above.
        cells = [cell or "\\" if column == 0 else cell for column, cell in enumerate(row)]
        lines.append("  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip())
        if index == 0:
            lines.append(rule)
    return "\n".join([*lines, rule, ""])

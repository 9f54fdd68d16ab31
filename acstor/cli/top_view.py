"""The picture that ``acstor top`` draws."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from acstor.cli.samples import LOCAL_TIERS, Rates

_BAR_CELLS = 20
_COLOURS = {"local": "green", "peer": "yellow", "origin": "red"}


def tier_shares(rates: Rates) -> dict[str, float]:
    """Return the shares of chunks that were here, at a peer, in the origin; they add up to 1."""
    tiers = rates.tiers
    return {
        "local": sum(tiers.get(tier, 0.0) for tier in LOCAL_TIERS),
        "peer": tiers.get("peer", 0.0) + tiers.get("previous_owner", 0.0),
        "origin": tiers.get("origin", 0.0),
    }


def draw(hosts: Sequence[Rates], interval: float) -> RenderableType:
    """Return the table of all hosts with a line of sums below."""
    table = Table(box=None, header_style="bold", expand=True)
    for column in ("Host", "Reads/s", "MB/s", "Local Peer Origin", "Origin MB/s", "Peers in MB/s"):
        table.add_column(
            column, justify="left" if column in {"Host", "Local Peer Origin"} else "right"
        )
    for column in ("Peers out MB/s", "Wait p50", "Wait p99", "Store", "Errors/s"):
        table.add_column(column, justify="right")
    for host in hosts:
        _add_row(table, host)
    sums = Text.assemble(
        ("Sum ", "bold"),
        f"{sum(host.reads for host in hosts):,.0f} reads/s, "
        f"{_mb(sum(host.read_bytes for host in hosts))} MB/s, of which "
        f"{_mb(sum(host.origin_bytes for host in hosts))} MB/s left the origin. "
        f"Every {interval:g} s; ^C ends.",
    )
    return Group(table, Text(), sums)


def _add_row(table: Table, rates: Rates) -> None:
    if rates.problem is not None:
        table.add_row(rates.host, Text(rates.problem, style="red"))
        return
    errors = Text(f"{rates.read_errors:.1f}", style="red" if rates.read_errors > 0 else "")
    table.add_row(
        rates.host,
        f"{rates.reads:,.0f}",
        _mb(rates.read_bytes),
        _bar(rates),
        _mb(rates.origin_bytes),
        _mb(rates.peer_bytes),
        _mb(rates.serve_bytes),
        _ms(rates.wait_p50),
        _ms(rates.wait_p99),
        _percent(rates.store_used_bytes, rates.store_capacity_bytes),
        errors,
    )


def _bar(rates: Rates) -> Text:
    shares = tier_shares(rates)
    bar = Text()
    used = 0
    for tier, share in shares.items():
        # At least one cell for what is there at all: the origin's share is often a thin one.
        cells = max(round(share * _BAR_CELLS), 1 if share > 0 else 0)
        cells = min(cells, _BAR_CELLS - used)
        bar.append("█" * cells, style=_COLOURS[tier])
        used += cells
    bar.append("·" * (_BAR_CELLS - used), style="dim")
    numbers = " ".join(f"{100 * share:.0f}" for share in shares.values())
    return bar.append(f" {numbers} %")


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"

"""Display of the demo as it runs and at its end: tables on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.boot_storm import Storm
from testbed.guest.machine import GuestState
from testbed.measurement import ApproachResult, DemoResult

_STYLES = {
    GuestState.REQUESTED: "dim",
    GuestState.BOOTING: "yellow",
    GuestState.LOGIN: "green",
    GuestState.CHECKED: "bold green",
    GuestState.FAILED: "bold red",
}
_SERIAL_COLUMNS = 60
_COLUMNS_WITHOUT_TERMINAL = 120
_CAPTION = (
    "local: also what was prefetched before it was read; link: all bytes over the origin's link; "
    "chunks: those of chunks, as the data planes count; union: distinct chunks that guests read"
)


def megabytes(count: int | None) -> str:
    """Return a number of bytes in MB (10^6), a dash where it was not counted."""
    return "-" if count is None else f"{count / 1e6:,.1f}"


def seconds(value: float | None) -> str:
    """Return seconds with one digit, a dash where there are none."""
    return "-" if value is None else f"{value:.1f}"


def console() -> Console:
    """Return where to show it; without a terminal the tables get the width that they need."""
    on_terminal = Console()
    return on_terminal if on_terminal.is_terminal else Console(width=_COLUMNS_WITHOUT_TERMINAL)


class LiveView:
    """Shows one approach after the other."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._shown: dict[str, GuestState] = {}

    @contextlib.contextmanager
    def approach(self, title: str, explanation: str) -> Iterator[None]:
        """Show an approach from its start to its end."""
        self.console.print(Text.assemble(("\n" + title, "bold"), f"  {explanation}"))
        self._shown.clear()
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, refresh_per_second=4, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def step(self, text: str) -> None:
        """Say what is being done."""
        self.console.print(Text(text, style="dim"))

    def watch(self, storm: Storm) -> None:
        """Show where the guests are."""
        if self._live is not None:
            self._live.update(Group(_guests_table(storm), _links_line(storm)))
            return
        for guest in storm.guests:
            if self._shown.get(guest.request.name) != guest.state:
                self._shown[guest.request.name] = guest.state
                since = storm.samples[-1].time_s if storm.samples else 0.0
                self.console.print(f"  {since:6.1f} s  {guest.request.name:8} {guest.state}")

    def approach_over(self, result: ApproachResult) -> None:
        """Show what one approach measured."""
        times = " ".join(seconds(guest.boot_time_s) for guest in result.guests)
        self.console.print(
            f"  boot times {times} s; left the origin: {megabytes(result.origin_sent)} MB"
        )
        for guest in result.guests:
            if guest.failure:
                self.console.print(Text(f"  {guest.guest}: {guest.failure}", style="red"))
        if result.failure:
            self.console.print(Text(f"  {result.failure}", style="red"))

    def summary(self, result: DemoResult) -> None:
        """Show the tables at the end."""
        for table in (_boot_table(result), _tiers_table(result), _links_table(result)):
            self.console.print()
            self.console.print(table)


def _guests_table(storm: Storm) -> Table:
    table = Table("guest", "state", "seconds", "serial line", box=None, padding=(0, 2))
    for guest in storm.guests:
        table.add_row(
            guest.request.name,
            Text(guest.state.value, style=_STYLES[guest.state]),
            f"{guest.age_s:.1f}",
            Text(guest.serial_tail(1)[-_SERIAL_COLUMNS:], style="dim"),
        )
    return table


def _links_line(storm: Storm) -> Text:
    sample = storm.samples[-1] if storm.samples else None
    if sample is None:
        return Text("")
    return Text(
        f"from the origin {megabytes(sample.origin_sent)} MB, "
        f"between hosts {megabytes(sample.peers_sent)} MB"
    )


def _boot_table(result: DemoResult) -> Table:
    table = Table(title="Boot time, request to login prompt (s)")
    table.add_column("approach")
    names = [guest.guest for guest in result.approaches[0].guests] if result.approaches else []
    for name in names if len(names) <= 8 else []:
        table.add_column(name, justify="right")
    for name in ("median", "last", "booted"):
        table.add_column(name, justify="right")
    for approach in result.approaches:
        times = approach.boot_times_s
        single = [seconds(guest.boot_time_s) for guest in approach.guests]
        table.add_row(
            approach.title,
            *(single if len(names) <= 8 else []),
            seconds(approach.boot_time_median_s),
            seconds(max(times, default=None)),
            f"{len(times)}/{len(approach.guests)}",
        )
    return table


def _tiers_table(result: DemoResult) -> Table:
    table = Table(title="MB that the guests got, by tier; MB out of the origin", caption=_CAPTION)
    table.add_column("approach")
    for name in ("local", "peer", "origin", "link", "chunks", "union", "out/union"):
        table.add_column(name, justify="right")
    for approach in result.approaches:
        total = approach.tier_total
        ratio = approach.origin_ratio
        table.add_row(
            approach.title,
            megabytes(total.local),
            megabytes(total.peer),
            megabytes(total.origin),
            megabytes(approach.origin_sent),
            megabytes(approach.origin_chunk_bytes),
            megabytes(approach.union_bytes),
            "-" if ratio is None else f"{ratio:.3f}",
        )
    return table


def _links_table(result: DemoResult) -> Table:
    table = Table(title="Bytes over each link, sent / received (MB)")
    table.add_column("approach")
    names = [name for approach in result.approaches[:1] for name in approach.links]
    names = names if len(names) <= 9 else ["origin"]
    for name in names:
        table.add_column(name, justify="right")
    for approach in result.approaches:
        cells = []
        for name in names:
            link = approach.links.get(name)
            cells.append(
                "-" if link is None else f"{megabytes(link.sent)} / {megabytes(link.received)}"
            )
        table.add_row(approach.title, *cells)
    return table

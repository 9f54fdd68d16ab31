"""Display of the storm as it runs and at its end: a line per host."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench.acstor.result import StormResult
from bench.acstor.settings import EvaluationSettings
from bench.acstor.storm import Progress
from testbed.live_view import megabytes, seconds

if TYPE_CHECKING:
    from bench.quickstart.many_hosts import StormReport

BAR_COLUMNS = 30


class StormView:
    """Shows one approach's storm after the other."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._settings = EvaluationSettings()
        self._told = 0

    def step(self, text: str) -> None:
        """Say what is being done."""
        self.console.print(Text(text, style="dim"))

    @contextlib.contextmanager
    def storm(self, title: str, settings: EvaluationSettings) -> Iterator[None]:
        """Show a storm from its start to its end."""
        self.console.print(Text("\n" + title, style="bold"))
        self._settings = settings
        self._told = 0
        if not self.console.is_terminal:
            yield
            return
        starting = Text("starting hosts with empty caches, then the other traffic", style="dim")
        with Live(starting, console=self.console, refresh_per_second=4, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def watch(self, progress: Progress) -> None:
        """Show where the hosts are."""
        if self._live is not None:
            self._live.update(Group(_hosts(progress, self._settings), _moved(progress)))
            return
        for guest in progress.done[self._told :]:
            self.console.print(f"  {guest.host:4} {seconds(guest.boot_time_s):>6} s")
        self._told = len(progress.done)

    def storm_over(self, result: StormResult | None, failure: str | None) -> None:
        """Show what one approach measured, or why it did not."""
        if result is None:
            self.console.print(Text(f"  {failure}", style="red"))
            return
        times = result.booted_s
        first, last = seconds(min(times, default=None)), seconds(max(times, default=None))
        median = seconds(result.booted_median_s)
        self.console.print(
            f"  booted {len(times)} of {len(result.guests)}: median {median} s, "
            f"first {first} s, last {last} s; left the origin: {megabytes(result.origin_sent)} MB"
        )

    def summary(self, report: "StormReport") -> None:
        """Show the table at the end."""
        self.console.print()
        self.console.print(table_of(report))


def table_of(report: "StormReport") -> Table:
    """Return a table with a line per host, and what all of them took."""
    settings, storms, names = report.settings, report.storms, list(report.storms)
    table = Table(
        title=f"{settings.hosts} hosts boot at once, links of {settings.rate}: seconds",
        caption=f"busy: other traffic takes {settings.busy_share:.0%} of its link, both ways",
    )
    table.add_column("host")
    for name in names:
        table.add_column(name, justify="right")
    for host in report.hosts():
        cells = [seconds(host.boot_s[name]) for name in names]
        table.add_row(f"{host.name} (busy)" if host.is_busy else host.name, *cells)
    table.add_section()
    table.add_row("median", *(seconds(storms[name].booted_median_s) for name in names))
    table.add_row("last", *(seconds(max(storms[name].booted_s, default=None)) for name in names))
    table.add_row("MB out of the origin", *(megabytes(storms[name].origin_sent) for name in names))
    return table


def _hosts(progress: Progress, settings: EvaluationSettings) -> Table:
    """Return the hosts' states, with a bar of what each has received and its seconds."""
    done = {guest.host: guest for guest in progress.done}
    received = {name: link.received for name, link in progress.links.items() if name != "origin"}
    most = max(received.values(), default=0)
    table = Table("host", "seconds", "received (MB)", "", box=None, padding=(0, 2))
    for number, (name, count) in enumerate(received.items()):
        guest = done.get(name)
        state = Text(f"{progress.elapsed_s:.1f}", style="yellow")
        if guest is not None:
            is_up = guest.boot_time_s is not None
            state = Text(seconds(guest.boot_time_s), style="green" if is_up else "bold red")
        label = f"{name} (busy)" if number < settings.busy_hosts else name
        bar = "█" * round(BAR_COLUMNS * count / most) if most else ""
        table.add_row(label, state, megabytes(count), Text(bar, style="dim"))
    return table


def _moved(progress: Progress) -> Text:
    origin = progress.links["origin"]
    return Text(
        f"{len(progress.done)} of {progress.guests} booted, "
        f"from the origin {megabytes(origin.sent)} MB"
    )

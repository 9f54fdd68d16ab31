"""Progress display of 'acstor image preload': a live table, or lines."""

import time
from collections.abc import Sequence
from typing import TextIO

from acstor.cli.columns import Size
from acstor.preload.many_hosts import HostPreload
from acstor.preload.states import AdmittedPreloadState

LINE_SECONDS = 10.0
"""Time between two lines of a host whose state does not change, where there is no terminal."""
_BAR_CELLS = 20


def note(host: HostPreload) -> str:
    """Return in words what is remarkable about a host."""
    if host.is_lost:
        return f"lost: {host.error}"
    if host.state is AdmittedPreloadState.MISSED:
        return "the deadline was over"
    if host.is_late:
        return f"the deadline is over; {host.error}" if host.error else "the deadline is over"
    if host.error is None and host.local_file is not None:
        return f"local file: {host.local_file}"
    return host.error or ""


def speed(bytes_per_s: int) -> str:
    """Return a rate for people."""
    return f"{Size(bytes_per_s).human_readable()}/s"


def duration(seconds: float | None) -> str:
    """Return a time for people; empty where it is not known."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def line(host: HostPreload) -> str:
    """Return one host as a line of text."""
    done = host.total_bytes - host.remaining_bytes
    parts = [
        f"{host.host}: {host.state} {100 * host.share:.0f} %",
        f"{Size(done).human_readable()} of {Size(host.total_bytes).human_readable()}",
    ]
    if host.recent_bytes_per_s:
        parts.append(speed(host.recent_bytes_per_s))
    if host.eta_s is not None:
        parts.append(f"{duration(host.eta_s)} to go")
    if text := note(host):
        parts.append(text)
    return ", ".join(parts)


class Lines:
    """Writes a line per host when its state changes, else now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> "Lines":
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def show(self, hosts: Sequence[HostPreload]) -> None:
        """Write what has changed."""
        now = time.monotonic()
        for host in hosts:
            state = f"{host.state} {note(host)}"
            shown, at = self._shown.get(host.host, ("", 0.0))
            is_due = not host.is_settled and now - at >= LINE_SECONDS
            if shown != state or is_due:
                self._stream.write(line(host) + "\n")
                self._shown[host.host] = (state, now)
        self._stream.flush()


class Table:
    """A table on a terminal that is drawn again and again."""

    def __init__(self, stream: TextIO) -> None:
        # Not needed by any other command.
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=stream), auto_refresh=False)

    def __enter__(self) -> "Table":
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the last picture there."""
        self._live.stop()

    def show(self, hosts: Sequence[HostPreload]) -> None:
        """Draw the table."""
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, header_style="bold")
        for column in ("Host", "State", "", "Done", "Rate", "Limit", "To go", "Note"):
            table.add_column(column, justify="left" if column in _LEFT else "right")
        for host in hosts:
            filled = int(host.share * _BAR_CELLS)
            bar = "█" * filled + "·" * (_BAR_CELLS - filled)
            bad = host.is_settled and host.state is not AdmittedPreloadState.DONE
            table.add_row(
                host.host,
                Text(str(host.state), style="red" if bad else ""),
                f"{bar} {100 * host.share:3.0f} %",
                f"{Size(host.total_bytes - host.remaining_bytes).human_readable()} of "
                f"{Size(host.total_bytes).human_readable()}",
                speed(host.recent_bytes_per_s),
                speed(host.rate_bytes_per_s),
                duration(host.eta_s),
                Text(note(host), style="red" if bad else ""),
            )
        self._live.update(table, refresh=True)


_LEFT = {"Host", "State", "", "Note"}


def for_stream(stream: TextIO) -> Lines | Table:
    """Return the view that suits a stream."""
    return Table(stream) if stream.isatty() else Lines(stream)

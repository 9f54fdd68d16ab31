"""``acstor top``: what all hosts do at this moment."""

import argparse
import sys
import time
from typing import Any

from cliff import lister
from oslo_config import cfg

from acstor import exception
from acstor.cli import deployment, metrics_tls, samples
from acstor.cli.samples import Rates, Sample
from acstor.cluster import member_list

_MEMBERS_INTERVAL = 5.0


class Top(lister.Lister):
    """Show reads, tiers, traffic and waiting times of all hosts, live.

    Local: zero chunks, the chunk store and chunks of a moment ago. Wait: how long reads waited for
    chunks that were not on the host. '--once' measures one interval and prints a table (or, with
    '-f json', an object per host).
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the interval."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--interval",
            type=_interval,
            default=1.0,
            metavar="SECONDS",
            help="time between two looks (default: 1)",
        )
        parser.add_argument("--once", action="store_true", help="measure one interval, then end")
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw until interrupted, or print once."""
        if parsed_args.once or not self.app.stdout.isatty():
            return int(super().run(parsed_args))
        self._watch(deployment.configuration(self.app), parsed_args.interval)
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return one interval as a table."""
        conf = deployment.configuration(self.app)
        members = member_list.list_members(conf)
        if not members:
            raise exception.NotFoundError(
                "no host is alive", hint="start acstor-agent on the hosts"
            )
        tls = metrics_tls.client_context(conf)
        before = samples.fetch_all(members.values(), tls)
        time.sleep(parsed_args.interval)
        after = samples.fetch_all(members.values(), tls)
        rows = [_row(samples.rates(name, before.get(name), after[name])) for name in sorted(after)]
        columns = (
            "host", "reads_per_s", "read_bytes_per_s", "read_errors_per_s", "local", "peer",
            "origin", "origin_bytes_per_s", "peer_bytes_per_s", "serve_bytes_per_s",
            "wait_p50_ms", "wait_p99_ms", "store_used_bytes", "store_capacity_bytes",
            "ring_generation", "problem",
        )  # fmt: skip
        return columns, rows

    def _watch(self, conf: cfg.ConfigOpts, interval: float) -> None:
        # Not needed by any other command.
        from rich.console import Console
        from rich.live import Live

        from acstor.cli import top_view

        tls = metrics_tls.client_context(conf)
        members = member_list.list_members(conf)
        listed_at = time.monotonic()
        before: dict[str, Sample] = {}
        with Live(console=Console(file=sys.stdout), screen=True, auto_refresh=False) as live:
            while True:
                if time.monotonic() - listed_at > _MEMBERS_INTERVAL:
                    members, listed_at = member_list.list_members(conf), time.monotonic()
                after = samples.fetch_all(members.values(), tls)
                shown = [
                    samples.rates(name, before.get(name), after[name]) for name in sorted(after)
                ]
                live.update(top_view.draw(shown, interval), refresh=True)
                before = after
                time.sleep(interval)


def _row(rates: Rates) -> tuple[Any, ...]:
    from acstor.cli.top_view import tier_shares

    shares = tier_shares(rates)
    return (
        rates.host,
        round(rates.reads, 1),
        round(rates.read_bytes),
        round(rates.read_errors, 2),
        round(shares["local"], 4),
        round(shares["peer"], 4),
        round(shares["origin"], 4),
        round(rates.origin_bytes),
        round(rates.peer_bytes),
        round(rates.serve_bytes),
        None if rates.wait_p50 is None else round(rates.wait_p50 * 1e3, 3),
        None if rates.wait_p99 is None else round(rates.wait_p99 * 1e3, 3),
        round(rates.store_used_bytes),
        round(rates.store_capacity_bytes),
        rates.ring_generation,
        rates.problem,
    )


def _interval(text: str) -> float:
    interval = float(text)
    if not 0.1 <= interval <= 60:
        raise argparse.ArgumentTypeError("must be 0.1 to 60 seconds")
    return interval

"""``acstor ring ...``: the published ring."""

import argparse
from typing import Any

from cliff import command, lister, show

from acstor.cli import deployment
from acstor.cli.columns import Fields, Share


class ShowRing(show.ShowOne):
    """Show the published ring: its generation and its hosts."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        ring = deployment.published_ring(deployment.configuration(self.app)).ring
        hosts = [
            {
                "name": host.name,
                "address": host.address,
                "weight": host.weight,
                "vnodes": host.vnodes,
                "topology": host.topology,
            }
            for host in ring.hosts
        ]
        return ("generation", "vnodes", "seed", "hosts"), (
            ring.generation,
            ring.vnode_count,
            ring.seed,
            Fields(hosts),
        )


class ExportRing(command.Command):
    """Print the text form of the published ring, for diffs and for looking at it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take how much to print."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--full", action="store_true", help="with the owner of every v-node")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print it."""
        ring = deployment.published_ring(deployment.configuration(self.app)).ring
        self.app.stdout.write(ring.to_text(parsed_args.full))


class AnalyzeRing(lister.Lister):
    """Show how even the published ring is, and what happens when a host fails.

    'Takeover' is the largest part of a host's share that a single other host takes over when it
    fails: the more evenly a ring is scattered, the smaller it is.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        analysis: dict[str, Any] = deployment.published_ring(
            deployment.configuration(self.app)
        ).ring.analyze()
        rows = [
            (
                host["name"],
                host["weight"],
                host["vnodes"],
                Share(host["share"]),
                Share(host["ideal_share"]),
                "" if host["deviation"] is None else Share(host["deviation"]),
                Share(host["takeover_share_max"]),
            )
            for host in analysis["hosts"]
        ]
        columns = ("Name", "Weight", "V-nodes", "Share", "Ideal", "Deviation", "Takeover")
        return columns, rows

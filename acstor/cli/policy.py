"""``acstor policy ...``: what the policy service decided, why, and what the operator insists on."""

import argparse
import dataclasses
import uuid
from typing import Any

from cliff import command, lister, show

from acstor import exception
from acstor.cli import deployment
from acstor.cli.columns import Fields, Share
from acstor.cli.policy_view import (
    explained_rows,
    instances_of,
    last_decision_record,
    moves,
    parse_relative,
)
from acstor.cluster.decision_journal import read_records
from acstor.cluster.ring.decision import MEAN_WEIGHT, Decision, read_decision
from acstor.cluster.ring.published_ring import read_ring
from acstor.native import DataPlaneError
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.policy import neighbourhood_plan
from acstor.policy.pins import PINS_REF, Pins, read_pins
from acstor.policy.replay import replay

JOURNAL_HELP = "journal of a policy service; by default [policy] journal_path on this machine"


class ShowPolicy(show.ShowOne):
    """Show the decision in force, and what the operator insists on."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        del parsed_args
        with deployment.opened_origin(deployment.configuration(self.app)) as origin:
            decision, pins = _required_decision(origin), read_pins(origin)
            published = read_ring(origin)
        weights = {name: weight / MEAN_WEIGHT for name, weight in sorted(decision.weights.items())}
        pinned = {name: weight / MEAN_WEIGHT for name, weight in sorted(pins.weights.items())}
        return (
            "term",
            "sequence",
            "leader",
            "decided_at_ms",
            "policy",
            "reason",
            "threshold",
            "ring_generation",
            "weights",
            "pinned_weights",
            "pinned_threshold",
            "is_frozen",
        ), (
            decision.term,
            decision.sequence,
            decision.leader,
            decision.decided_at_ms,
            decision.policy,
            decision.reason,
            decision.threshold,
            published.ring.generation if published else None,
            Fields(weights),
            Fields(pinned),
            (pins.threshold if pins.threshold is not None else "none")
            if pins.is_threshold_pinned
            else "not pinned",
            pins.is_frozen,
        )


class ExplainPolicy(lister.Lister):
    """Explain why each host has its weight, from the last decision of a policy service's journal.

    Run it on the controller whose policy service leads. 'Extra' is the traffic that was decided
    with, 'Used' the busy part of the link, 'Row' for how many collections the host had been
    overloaded. Weights are in ordinary hosts'. With a host named, 'Instances' tells who causes its
    traffic, bytes per second, where the policy service hears Ceilometer.

    With --image: explain instead of whom each host would hear, in the exchange of that image, what
    others miss, if all hosts had joined it in the order of their names.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take whom to explain."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("host", nargs="*", help="only these hosts")
        parser.add_argument("--journal", metavar="FILE", help=JOURNAL_HELP)
        parser.add_argument("--image", type=uuid.UUID, help="explain the exchange of this image")
        parser.add_argument(
            "--exchange", metavar="ORDER", help="with this order; default: [readpath] exchange"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        conf = deployment.configuration(self.app)
        if parsed_args.image:
            return self._explain_exchange(parsed_args)
        journal = parsed_args.journal or conf.policy.journal_path
        record = last_decision_record(journal)
        replayed = replay(record)
        self.app.stderr.write(f"{replayed.recorded.reason}\n")
        rows = explained_rows(replayed.result.explanations, parsed_args.host)
        columns: tuple[str, ...] = (
            "Host", "Extra in", "Extra out", "Link", "Used", "Row", "Before", "Target", "Decided",
            "Part",
        )  # fmt: skip
        if parsed_args.host:
            columns = (*columns, "Instances")
            rows = [(*row, instances_of(journal, row[0])) for row in rows]
        return columns, rows

    def _explain_exchange(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table of one image's exchange.

        :raises NotFoundError: before the first ring.
        :raises InvalidError: where hosts tell each other nothing, and no order is named.
        """
        conf = deployment.configuration(self.app)
        order = parsed_args.exchange or conf.readpath.exchange
        if order == "none":
            raise exception.InvalidError(
                "hosts tell each other nothing", hint="set [readpath] exchange, or name --exchange"
            )
        with deployment.opened_origin(conf) as origin:
            published = read_ring(origin)
        if published is None:
            raise exception.NotFoundError("there is no ring", hint="see 'acstor ring show'")
        fan_out = conf.readpath.exchange_fan_out
        found = neighbourhood_plan.places(published.ring, parsed_args.image, order, fan_out)
        rows = [
            dataclasses.astuple(place)
            for place in found
            if not parsed_args.host or place.host in parsed_args.host
        ]
        return ("Host", "Rack", "Part", "Hears of", "Hops"), rows


class PinPolicy(command.Command):
    """Pin the weight of a host, the threshold, or everything: automatic decisions leave it alone.

    A weight is that of an ordinary host in percent ('50%') or as a factor ('0.5'). The leader puts
    it in force at its next collection; 'acstor policy dry-run' shows what that moves.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take what to pin."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("host", nargs="?", help="whose weight to pin")
        parser.add_argument("--weight", type=parse_relative, help="50%% or 0.5; default: 100%%")
        parser.add_argument(
            "--threshold", metavar="HOPS", help="pin the threshold: 1 to 255, or 'none'"
        )
        parser.add_argument("--freeze", action="store_true", help="change nothing any more")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Pin it."""
        if not (parsed_args.host or parsed_args.threshold or parsed_args.freeze):
            raise exception.InvalidError("nothing to pin", hint="name a host, or see --help")
        if parsed_args.weight is not None and not parsed_args.host:
            raise exception.InvalidError("whose weight?", hint="name a host")
        threshold = _parsed_threshold(parsed_args.threshold)

        def changed(pins: Pins) -> Pins:
            if parsed_args.host:
                weight = parsed_args.weight or parse_relative("100%")
                pins = dataclasses.replace(pins, weights={**pins.weights, parsed_args.host: weight})
            if parsed_args.threshold:
                pins = dataclasses.replace(pins, is_threshold_pinned=True, threshold=threshold)
            return dataclasses.replace(pins, is_frozen=pins.is_frozen or parsed_args.freeze)

        with deployment.opened_origin(deployment.configuration(self.app)) as origin:
            _change_pins(origin, changed)


class UnpinPolicy(command.Command):
    """Take pins back: of a host, of the threshold, of everything."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take what to unpin."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("host", nargs="?", help="whose weight to unpin")
        parser.add_argument("--threshold", action="store_true", help="unpin the threshold")
        parser.add_argument("--unfreeze", action="store_true", help="decide again")
        parser.add_argument("--all", action="store_true", help="take back every pin")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Unpin it."""
        if not (
            parsed_args.host or parsed_args.threshold or parsed_args.unfreeze or parsed_args.all
        ):
            raise exception.InvalidError("nothing to unpin", hint="name a host, or see --help")
        with deployment.opened_origin(deployment.configuration(self.app)) as origin:
            if parsed_args.all:
                ref_replacement.replace(origin, PINS_REF, None)
                return

            def changed(pins: Pins) -> Pins:
                weights = dict(pins.weights)
                if parsed_args.host and weights.pop(parsed_args.host, None) is None:
                    raise exception.NotFoundError(
                        f"host {parsed_args.host} is not pinned", hint="see 'acstor policy show'"
                    )
                is_pinned = pins.is_threshold_pinned and not parsed_args.threshold
                return Pins(
                    weights,
                    is_pinned,
                    pins.threshold if is_pinned else None,
                    pins.is_frozen and not parsed_args.unfreeze,
                )

            _change_pins(origin, changed)


class DryRunPolicy(show.ShowOne):
    """Show what weights would move, without putting them in force.

    Builds the next ring from the published one. Weights not given stay as they are. 'moved' is the
    share of the ring that changes its owner, 'least' the least that any ring with these weights
    must move.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the weights."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--weight", action="append", default=[], metavar="HOST=WEIGHT",
            help="50%% or 0.5 of an ordinary host's; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--pins", action="store_true", help="also what is pinned, as the leader would"
        )
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        weights = dict(_assignment(text) for text in parsed_args.weight)
        with deployment.opened_origin(deployment.configuration(self.app)) as origin:
            published, in_force = read_ring(origin), read_decision(origin)
            if parsed_args.pins:
                weights = {**read_pins(origin).weights, **weights}
        if published is None:
            raise exception.NotFoundError(
                "no ring is published yet", hint="start acstor-agent on a host"
            )
        if not weights:
            raise exception.InvalidError(
                "no weight is given", hint="name some: --weight compute-1=50%"
            )
        try:
            found = moves(published.ring, in_force.decision if in_force else None, weights)
        except DataPlaneError as error:
            raise exception.InvalidError(f"no ring can be built of this: {error}") from error
        return ("moved", "least", "hosts"), (
            Share(found.moved),
            Share(found.least),
            Fields(found.hosts),
        )


class ReplayPolicy(lister.Lister):
    """Compute the decisions of a journal again, and tell where something else comes out.

    For a journal of this release and its plug-ins nothing does. The exit status is 1 where
    something did.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the journal."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("journal", nargs="?", help=JOURNAL_HELP)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        conf = deployment.configuration(self.app)
        rows = []
        for record in read_records(parsed_args.journal or conf.policy.journal_path):
            if record.get("kind") != "decision":
                continue
            found = replay(record)
            differences = found.differences
            rows.append(
                (
                    found.at_ms,
                    found.recorded.reason,
                    Share(found.result.moved_share),
                    found.recorded.threshold,
                    "same" if not differences else "; ".join(differences[:5]),
                )
            )
        if any(row[-1] != "same" for row in rows):
            self.has_differences = True
        return ("At ms", "Reason", "Moved", "Threshold", "Now"), rows

    has_differences = False

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run; the status tells whether everything came out the same."""
        status = int(super().run(parsed_args) or 0)
        return 1 if self.has_differences else status


def _required_decision(refs: RefStore) -> Decision:
    published = read_decision(refs)
    if published is None:
        raise exception.NotFoundError(
            "nothing has been decided yet", hint="start acstor-policy on a controller"
        )
    return published.decision


def _change_pins(refs: RefStore, changed: Any) -> None:
    def content(before: bytes | None) -> bytes | None:
        after: Pins = changed(Pins() if before is None else Pins.parse(before))
        return None if after == Pins() else after.encode()

    ref_replacement.change(refs, PINS_REF, content)


def _parsed_threshold(text: str | None) -> int | None:
    if text is None or text == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise exception.InvalidError(
            f"threshold {text!r:.20} is no number of hops", hint="give 1 to 255, or 'none'"
        ) from None


def _assignment(text: str) -> tuple[str, int]:
    host, separator, weight = text.partition("=")
    if not separator or not host:
        raise exception.InvalidError(
            f"{text!r:.60} is no weight of a host", hint="write compute-1=50%"
        )
    try:
        return host, parse_relative(weight)
    except argparse.ArgumentTypeError as error:
        raise exception.InvalidError(str(error), hint="write compute-1=50%") from error

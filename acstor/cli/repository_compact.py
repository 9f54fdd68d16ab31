"""Table of the packs that a compaction moves, and moving them: ``acstor repository compact``."""

import argparse
import dataclasses
from collections.abc import Iterable
from typing import Any

from cliff import lister
from oslo_config import cfg

from acstor.cli import repository_access
from acstor.repository import progress
from acstor.repository.gc.compaction import Compactor, Report
from acstor.repository.gc.compaction_plan import Candidate, Limits, Plan
from acstor.repository.gc.remembered_packs import remembered

COLUMNS = ("pack", "class", "reason", "stored_bytes", "live_bytes", "live_share")


class CompactRepository(lister.Lister):
    """Move what is needed out of packs of which little is needed, and list these packs.

    What is needed is copied, verified, to new packs; collections ([gc] grace apart) then delete the
    old ones. Images and volumes go on, and no manifest changes. [gc] compact_dead_share and
    compact_live_share_max say which packs. Killed at any moment it leaves nothing but what
    collections delete once the next compaction on this host has begun. One compaction at a time
    runs on a host; the later one ends the other.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--dry-run", action="store_true", help="list the packs, and move nothing"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Compact, unless that is only asked about, and return the table."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        repository.check_compaction_allowed()
        with (
            progress.for_stream(self.app.stderr) as shown,
            remembered(conf.registration.cache_path or None, repository) as known,
        ):
            compactor = Compactor(
                repository,
                conf.host,
                limits_of(conf),
                shown,
                remembered=known,
                reserve_percent=conf.origin.reserve_percent,
            )
            if parsed_args.dry_run:
                plan = compactor.plan()
                told = _summary(plan)
            else:
                compactor.begin()
                plan = compactor.plan()
                told = _told(compactor.compact(plan))
        self.app.stderr.write(told)
        return COLUMNS, _rows(plan.candidates)


def limits_of(conf: cfg.ConfigOpts) -> Limits:
    """Return the limits that the configuration sets."""
    return Limits(
        conf.gc.compact_dead_share, conf.gc.compact_live_share_max, conf.registration.pack_size
    )


def _told(report: Report) -> str:
    fields = {**dataclasses.asdict(report), "seconds": round(report.seconds, 3)}
    return f"compacted: {', '.join(f'{name} {value}' for name, value in fields.items())}\n"


def _summary(plan: Plan) -> str:
    return (
        f"would copy {plan.live_bytes} bytes out of {len(plan.candidates)} packs; "
        f"{plan.dead_bytes} of {plan.stored_bytes} stored bytes are needed by nothing\n"
    )


def _rows(candidates: Iterable[Candidate]) -> Iterable[tuple[Any, ...]]:
    for one in candidates:
        yield (
            one.pack.hex(),
            one.pack_class,
            str(one.reason),
            one.size_bytes,
            one.live_bytes,
            round(one.live_share, 3),
        )

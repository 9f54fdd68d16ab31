"""Commands on the repository as a whole: ``acstor repository ...`` and ``acstor gc``."""

import argparse
import dataclasses
from typing import Any

from cliff import show

from acstor.cli import repository_access
from acstor.conf import types
from acstor.repository import accounting, upgrade
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.remembered_packs import remembered
from acstor.repository.repository import (
    CHUNK_SIZE_DEFAULT,
    COMPRESSED_VERSION,
    FORMAT_VERSION,
    FORMAT_VERSIONS_MADE,
    Repository,
)

Row = tuple[tuple[str, ...], tuple[Any, ...]]


class InitRepository(show.ShowOne):
    """Make a new repository in the origin; does nothing when there is one already."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--chunk-size",
            type=types.ByteSize(4 * types.KIB, 4 * types.MIB),
            default=CHUNK_SIZE_DEFAULT,
            metavar="SIZE",
            help="size of every chunk, a power of two from 4KiB to 4MiB (64KiB)",
        )
        _add_version(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Make the repository."""
        origin = repository_access.open_origin(repository_access.configuration(self.app))
        return _described(
            Repository.init(origin, parsed_args.chunk_size, parsed_args.format_version)
        )


class ShowRepository(show.ShowOne):
    """Show the repository in the origin."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--space",
            action="store_true",
            help="add up what its packs hold, too: every manifest is read",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return what holds for all of it."""
        repository = repository_access.open_repository(repository_access.configuration(self.app))
        names, values = _described(repository)
        if not parsed_args.space:
            return names, values
        space = accounting.account(repository)
        added = {
            "packs": space.packs,
            "stored_bytes": space.stored_bytes,
            "live_bytes": space.live_bytes,
            "garbage_bytes": space.garbage_bytes,
            "overhead_bytes": space.overhead_bytes,
            "unreadable": ", ".join(f"{one.kind} {one.id}" for one in space.unreadable),
        }
        return (*names, *added), (*values, *added.values())


class UpgradeRepository(show.ShowOne):
    """Upgrade the repository to the format version of this release, or a newer one.

    Volumes need version 2. With version 3 no host waits for one that stopped while it changed a
    ref of an origin in a directory. Only when every machine runs this release, and every program of
    it was restarted: programs of older releases refuse the repository afterwards, but one that
    opened it before would go on, and delete what volumes refer to. Repeating it is safe.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        _add_version(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Upgrade, and describe the repository."""
        conf = repository_access.configuration(self.app)
        origin = repository_access.open_origin(conf)
        return _described(upgrade.upgrade(origin, parsed_args.format_version))


class CollectGarbage(show.ShowOne):
    """Condemn what nothing refers to, and delete what was condemned long enough ago.

    Run it now and then, for example daily; it takes two runs, [gc] grace apart, to free space.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Collect and return the report."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        with remembered(conf.registration.cache_path or None, repository) as known:
            report = Collector(repository, conf.host, conf.gc.grace, remembered=known).collect()
        fields = {**dataclasses.asdict(report), "seconds": round(report.seconds, 3)}
        return tuple(fields), tuple(fields.values())


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format-version",
        type=int,
        choices=FORMAT_VERSIONS_MADE,
        default=FORMAT_VERSION,
        help=f"format version ({FORMAT_VERSION}); {FORMAT_VERSIONS_MADE[0]} while programs of the "
        "release before run, which do not read images that are stored compressed; "
        f"{COMPRESSED_VERSION} for packs that are never compacted",
    )


def _described(repository: Repository) -> Row:
    fields = dataclasses.asdict(repository.format)
    return tuple(fields), tuple(fields.values())

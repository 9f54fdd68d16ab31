"""Copy of the whole repository in another origin: ``acstor repository copy``."""

import argparse
import dataclasses
from typing import Any

from cliff import show

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Fields, Names, Size
from acstor.origin import opening
from acstor.repository import progress
from acstor.repository.copying.copier import WORKERS, Copier, CopySettings, Verify
from acstor.repository.copying.report import CopyReport

WORKERS_MAX = 64
_BYTES = ("bytes", "bytes_copied")
Row = tuple[tuple[str, ...], tuple[Any, ...]]


class CopyRepository(show.ShowOne):
    """Copy this repository to another origin, while it is in use.

    The destination is empty, or holds a former copy, which is updated; what was interrupted is gone
    on with. Collections delete nothing meanwhile. A volume in use is in the copy as after a power
    cut. With --restore the destination is to be used as the live repository: no volume has an owner
    there, and nothing is in it that only says what hosts did. Exit status 7 when something was
    damaged: the rest is copied, and a restore is not finished then.
    """

    _report: CopyReport

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("url", metavar="URL", help="destination, as [origin] url names one")
        purpose = parser.add_mutually_exclusive_group()
        purpose.add_argument(
            "--restore",
            action="store_true",
            help="make the empty destination the live repository: from a backup, or to move it",
        )
        purpose.add_argument(
            "--prune",
            action="store_true",
            help="remove from a former copy what the source has no more; not where anything was "
            "damaged",
        )
        parser.add_argument(
            "--verify",
            type=Verify,
            choices=tuple(Verify),
            default=Verify.SOME,
            help="objects that are read back from the destination (some)",
        )
        parser.add_argument(
            "--with-damaged",
            action="store_true",
            help="copy damaged objects too, as they are, and all that names them",
        )
        parser.add_argument(
            "--no-hold",
            action="store_true",
            help="leave collections alone: the source cannot be written to, and nobody collects "
            "there",
        )
        parser.add_argument(
            "--jobs",
            type=_jobs,
            default=WORKERS,
            metavar="N",
            help=f"objects that are copied at the same time ({WORKERS})",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Copy, and return the report."""
        conf = repository_access.configuration(self.app)
        source = repository_access.open_repository(conf)
        destination = opening.open_origin(parsed_args.url, conf.origin.timeout)
        settings = CopySettings(
            is_restore=parsed_args.restore,
            prunes=parsed_args.prune,
            takes_damaged=parsed_args.with_damaged,
            holds=not parsed_args.no_hold,
            verify=parsed_args.verify,
            workers=parsed_args.jobs,
        )
        try:
            with progress.for_stream(self.app.stderr) as shown:
                self._report = Copier(source, destination, settings, progress=shown).copy()
        except KeyboardInterrupt:
            self.app.stderr.write("interrupted; the same command goes on with what is there\n")
            raise
        finally:
            destination.close()
            source.origin.close()
        return _row(self._report)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the report, then fail if anything was damaged."""
        super().run(parsed_args)
        if self._report.damages:
            raise exception.CorruptError(
                f"{len(self._report.damages)} objects or records are damaged or missing",
                hint="the report names them; --with-damaged copies them as they are"
                if self._report.is_complete
                else "the report names them; the destination is not finished, --with-damaged "
                "copies them as they are",
            )
        return 0


def _row(report: CopyReport) -> Row:
    fields: dict[str, Any] = {
        field.name: getattr(report, field.name)
        for field in dataclasses.fields(report)
        if not field.name.startswith("_")
    }
    fields.update({name: Size(fields[name]) for name in _BYTES})
    fields["refs_unknown"] = Names(report.refs_unknown)
    fields["damages"] = Fields([dataclasses.asdict(one) for one in report.damages.values()])
    fields["seconds"] = round(report.seconds, 3)
    return tuple(fields), tuple(fields.values())


def _jobs(text: str) -> int:
    number = int(text)
    if not 1 <= number <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to {WORKERS_MAX}")
    return number

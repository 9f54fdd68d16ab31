"""Commands on the keys of signed images: ``acstor repository keygen`` and ``... sign``."""

import argparse
import os
from typing import Any

from cliff import show

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Fields
from acstor.repository import progress
from acstor.repository.images.configured_records import signed_records
from acstor.repository.images.resigning import Resigning, SigningReport
from acstor.repository.signing import key_files, trusted_keys

Row = tuple[tuple[str, ...], tuple[Any, ...]]


class MakeKeys(show.ShowOne):
    """Make a pair of keys for signed images.

    The private key is for [repository] signing_key of the controllers and for nobody else; the
    public key, FILE.pub, is for the directory [repository] public_keys of every machine.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "file", metavar="FILE", help="file of the private key; neither file may be there yet"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Make the pair, and name it."""
        private = os.path.abspath(parsed_args.file)
        public = os.path.splitext(private)[0] + trusted_keys.SUFFIX
        if public == private:
            raise exception.InvalidError(
                f"{parsed_args.file} is the name of a public key",
                hint="name the private key, such as signing.pem",
            )
        key = key_files.make_pair(private, public)
        return ("key", "private_key", "public_key"), (key.id, private, public)


class SignRecords(show.ShowOne):
    """Sign the records of all images with [repository] signing_key.

    When signing begins, with --adopt-unsigned; and when the key was replaced, before the former
    public key is taken away. Records that the key has signed stay as they are; those that no
    trusted key has signed are refused and listed. Repeating it is safe. Exit status 7 when a
    record was refused.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--adopt-unsigned",
            action="store_true",
            help="sign records that have no signature, as they are: only while nobody who can "
            "write to the origin has to be feared",
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="sign those anew that the key has signed, too: after the origin was restored "
            "from a backup, whose records hosts take for old ones",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Sign, and return the report."""
        conf = repository_access.configuration(self.app)
        records = signed_records(conf)
        if records is None:
            raise exception.ConfigurationError(
                "there is no key to sign with",
                hint="make one with 'acstor repository keygen', and set [repository] signing_key",
            )
        repository = repository_access.open_repository(conf)
        with progress.for_stream(self.app.stderr, is_bytes=False) as shown:
            self._report = Resigning(
                repository,
                records,
                adopt_unsigned=parsed_args.adopt_unsigned,
                are_all_signed_anew=parsed_args.all,
                progress=shown,
            ).run()
        return _row(self._report)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the report, then fail if a record was refused."""
        super().run(parsed_args)
        if self._report.refused:
            raise exception.CorruptError(
                f"{len(self._report.refused)} records were not signed",
                hint="the report says why; register those images again from their files",
            )
        return 0


def _row(report: SigningReport) -> Row:
    refused = [{"image": image_id, "why": why} for image_id, why in report.refused.items()]
    return (
        ("key", "images", "signed", "adopted", "unchanged", "refused", "seconds"),
        (
            report.key,
            report.images,
            report.signed,
            report.adopted,
            report.unchanged,
            Fields(refused),
            report.seconds,
        ),
    )

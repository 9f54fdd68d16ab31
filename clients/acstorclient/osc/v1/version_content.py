"""``openstack acstor version browse|diff``: content of versions."""

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import IO

from osc_lib.command import command

from acstorclient.osc.columns import FileName, Size, Table, rows
from acstorclient.osc.command import client_of, tell
from acstorclient.osc.files import written_file
from acstorclient.osc.progress import Progress
from acstorclient.v1.proxy import Proxy
from acstorclient.v1.version import Version

STDOUT = "-"
"""File name of standard output, as ``openstack object save --file`` has it."""
ENTRIES = (
    ("Mode", "mode", None),
    ("UID", "uid", None),
    ("GID", "gid", None),
    ("Size", "size_bytes", Size),
    ("Modified At", "modified_at", None),
    ("Kind", "kind", None),
    ("Name", "name", FileName),
    ("Target", "target", lambda target: FileName(target or "")),
)
"""Columns of the files in a directory."""
PARTITIONS = (
    ("Number", "number", None),
    ("Size", "size_bytes", Size),
    ("Name", "name", FileName),
    ("File System", "file_system", None),
    ("Label", "label", FileName),
    ("Can Be Browsed", "is_readable", None),
    ("Reason", "reason", lambda reason: FileName(reason or "")),
)
"""Columns of partitions."""


class DiffVersions(command.Lister):
    """Show how two versions of a disk differ: extents, or files."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        parser.add_argument(
            "against", metavar="<against>", help="Version that it is compared with (name or ID)"
        )
        parser.add_argument(
            "--files", action="store_true", help="Compare the files; this reads both versions"
        )
        parser.add_argument(
            "--path",
            metavar="<path>",
            default="/",
            help="With --files: directory below which they are compared (default: /)",
        )
        _add_partition(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        client = client_of(self.app)
        one = client.find_version(parsed_args.version)
        other = client.find_version(parsed_args.against)
        if parsed_args.files:
            return _changed_files(client, one, other, parsed_args)
        diff = client.diff_versions(one, other)
        tell(f"{Size(diff.changed_bytes).human_readable()} in {len(diff.extents)} extents differ")
        return ("Offset", "Length"), diff.extents


class BrowseVersion(command.Lister):
    """Look into a version: list a directory, save a file, or a directory as tar.

    The version is read apart from your servers and mounted nowhere.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        parser.add_argument(
            "path", metavar="<path>", nargs="?", default="/", help="Path in the disk (default: /)"
        )
        saved = parser.add_mutually_exclusive_group()
        saved.add_argument(
            "--file",
            metavar="<file>",
            help="Save the file <path> as <file>, - is standard output",
        )
        saved.add_argument(
            "--archive",
            metavar="<file>",
            help="Save the directory <path> as tar archive <file>, - is standard output",
        )
        saved.add_argument(
            "--partitions", action="store_true", help="List the partitions in place of files"
        )
        _add_partition(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Save something, or print the table: not both."""
        if not (parsed_args.file or parsed_args.archive):
            return int(super().run(parsed_args))
        client = client_of(self.app)
        version = client.find_version(parsed_args.version)
        path, partition = parsed_args.path, parsed_args.partition
        if parsed_args.file:
            with _written(parsed_args.file) as sink, Progress() as progress:
                client.save_content(version, path, sink, partition, progress.show_bytes)
        else:
            with _written(parsed_args.archive) as sink:
                client.save_archive(version, path, sink, partition)
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the entries of the directory, or the partitions."""
        client = client_of(self.app)
        version = client.find_version(parsed_args.version)
        if parsed_args.partitions:
            return rows(client.partitions(version), PARTITIONS)
        found = client.browse_files(version, parsed_args.path, parsed_args.partition)
        return rows(list(found), ENTRIES)


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        metavar="<number>",
        type=int,
        help="Partition that is looked into (default: the one that has files, or most of them)",
    )


@contextlib.contextmanager
def _written(target: str) -> Iterator[IO[bytes]]:
    """Return where to write: a file that is there only when it is whole, or standard output."""
    if target == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with written_file(pathlib.Path(target)) as file:
        yield file


def _changed_files(
    client: Proxy, one: Version, other: Version, parsed_args: argparse.Namespace
) -> Table:
    found = client.diff_files(one, other, parsed_args.path, parsed_args.partition)
    columns = ("Change", "Name", "Fields")
    return columns, [(each.change, FileName(each.path), ", ".join(each.fields)) for each in found]

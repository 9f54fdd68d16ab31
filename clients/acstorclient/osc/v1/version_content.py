"""``openstack acstor version browse|diff``: content of versions."""

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from osc_lib import exceptions
from osc_lib.command import command

from acstorclient.osc.columns import FileName, Size, Table, rows
from acstorclient.osc.command import client_of, seconds, settle, tell
from acstorclient.osc.files import written_file
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
    ("Type", "type", None),
    ("Name", "name", FileName),
    ("Target", "target", lambda target: FileName(target or "")),
)
"""Columns of the files in a folder."""


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
            "--wait",
            metavar="<seconds>",
            type=seconds,
            default=0.0,
            help="Wait for the files that long at most (default: until they are compared)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        client = client_of(self.app)
        one = client.find_version(parsed_args.version)
        other = client.find_version(parsed_args.against)
        if parsed_args.files:
            return _changed_files(client, one, other, parsed_args.wait)
        diff = client.diff_versions(one, other)
        tell(f"{Size(diff.changed_bytes).human_readable()} in {len(diff.extents)} extents differ")
        return ("Offset", "Length"), diff.extents


class BrowseVersion(command.Lister):
    """Look into a version: list a folder, save a file, or a folder as tar.

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
            help="Save the folder <path> as tar archive <file>, - is standard output",
        )
        parser.add_argument(
            "--wait",
            metavar="<seconds>",
            type=seconds,
            default=0.0,
            help="Wait for the session that long at most (default: until it begins or fails)",
        )
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Save something, or print the table: not both."""
        if not (parsed_args.file or parsed_args.archive):
            return int(super().run(parsed_args))
        client = client_of(self.app)
        with _session(client, parsed_args) as browse_id:
            if parsed_args.file:
                _save(parsed_args.file, parsed_args.path, client.save_content, browse_id)
            else:
                _save(parsed_args.archive, parsed_args.path, client.save_archive, browse_id)
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the entries of the folder."""
        client = client_of(self.app)
        with _session(client, parsed_args) as browse_id:
            entries = list(client.browse_files(browse_id, parsed_args.path))
        return rows(entries, ENTRIES)


@contextlib.contextmanager
def _session(client: Proxy, parsed_args: argparse.Namespace) -> Iterator[str]:
    """Open a session, and end it in any case."""
    version = client.find_version(parsed_args.version)
    task = settle(client, client.create_browse(version), parsed_args.wait)
    browse_id = str(task.outcome["browse_id"])
    try:
        yield browse_id
    finally:
        client.delete_browse(browse_id)


def _save(
    target: str, path: str, save: Callable[[str, str, IO[bytes]], int], browse_id: str
) -> None:
    if target == STDOUT:
        save(browse_id, path, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with written_file(pathlib.Path(target)) as file:
        save(browse_id, path, file)


def _changed_files(client: Proxy, one: Version, other: Version, wait: float) -> Table:
    task = settle(client, client.diff_files(one, other), wait)
    found: list[tuple[Any, ...]] = []
    for change in ("added", "changed", "removed"):
        listed = task.outcome.get(change) or []
        if not isinstance(listed, list):
            raise exceptions.CommandError(f"Task {task.id} has no list of {change} files")
        found += [(change, FileName(str(name))) for name in listed]
    if task.outcome.get("is_truncated"):
        tell("There are more than these; compare folders with: openstack acstor version browse")
    return ("Change", "Name"), found

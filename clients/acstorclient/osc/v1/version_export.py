"""``openstack acstor version export``: a file here, or an image with bytes of its own."""

import argparse
import pathlib

from osc_lib.command import command

from acstorclient.osc.columns import Row, Size
from acstorclient.osc.command import add_wait, client_of, settle, task_row
from acstorclient.osc.files import written_file
from acstorclient.osc.progress import Progress
from acstorclient.v1.version import Version


class ExportVersion(command.ShowOne):
    """Export a version: to a file here, or to an image that outlives the version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        parser.add_argument(
            "--disk-format",
            choices=["qcow2", "raw"],
            default="qcow2",
            help="Format (default: qcow2, without what is empty)",
        )
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument("--file", metavar="<file>", help="Save it as this file")
        where.add_argument("--image", metavar="<image-name>", help="Make an image of this name")
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Export it."""
        client = client_of(self.app)
        version = client.find_version(parsed_args.version)
        if parsed_args.file:
            return self._save(version, parsed_args)
        task = client.create_export(version, parsed_args.disk_format, parsed_args.image)
        return task_row(settle(client, task, parsed_args.wait))

    def _save(self, version: Version, parsed_args: argparse.Namespace) -> Row:
        path = pathlib.Path(parsed_args.file)
        with written_file(path) as file, Progress() as progress:
            written = client_of(self.app).download_version(
                version, file, parsed_args.disk_format, progress.show_bytes
            )
        return (
            ("version_id", "disk_format", "file", "size_bytes"),
            (version.id, parsed_args.disk_format, str(path), Size(written)),
        )

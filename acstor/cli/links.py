"""``acstor links ...``: the links of this host in Nova's image cache."""

import argparse
import datetime
from typing import Any

from cliff import lister

from acstor import exception
from acstor.agent.reconcilers.local_files import known_files
from acstor.agent.reconcilers.local_files.known_files import KnownFiles
from acstor.cli import deployment
from acstor.cli.columns import Size
from acstor.drivers.nova.image_links import known_links, link_removal
from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.known_links import KnownLinks
from acstor.drivers.nova.image_links.local_directory import local_path

Table = tuple[tuple[str, ...], list[Any]]


class ListLinks(lister.Lister):
    """List the links of this host, as the agent saw them last.

    'planted': Nova finds the image. 'waiting', 'busy': not yet, tried again. 'nova_downloaded': a
    file that Nova has downloaded itself, and that stays. 'foreign': something else is there.
    'refused': the reason says which setting forbids links. 'kept': it should go, but instances use
    it.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        conf = deployment.configuration(self.app)
        known = known_links.load(known_links.path_in(conf.state_path))
        if known is None:
            if conf.image_links.enabled:
                raise exception.NotFoundError(
                    "no agent of this host has looked after image links yet",
                    hint="start acstor-agent",
                )
            known = KnownLinks()
        rows = [
            (
                image_id,
                f"{known.base_directory}/{base_name(image_id)}",
                link.state.value,
                link.reason,
            )
            for image_id, link in sorted(known.links.items())
        ]
        return ("Image", "Link", "State", "Reason"), rows


class ListLocalFiles(lister.Lister):
    """List the local files of this host, as the agent saw them last.

    'linked': guests that start read the file, and nothing of ACStor is in the way. 'ready': the
    link is moved to it soon. 'waiting': the reason says for what. 'unlinking': it is to go.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        conf = deployment.configuration(self.app)
        known = known_files.load(known_files.path_in(conf.state_path)) or KnownFiles()
        rows = [
            (
                image_id,
                local_path(known.base_directory, image_id),
                str(each.state),
                Size(each.data_bytes),
                _time(each.verified_at),
                each.is_sealed,
                each.reason,
            )
            for image_id, each in sorted(known.files.items())
        ]
        return ("Image", "File", "State", "Bytes", "Verified", "Sealed", "Reason"), rows


def _time(posix_seconds: float) -> str | None:
    if not posix_seconds:
        return None
    moment = datetime.datetime.fromtimestamp(posix_seconds, datetime.UTC)
    return moment.isoformat(timespec="seconds")


class RemoveLinks(lister.Lister):
    """Remove every link of this host that no instance uses, and list what became of each.

    For taking ACStor off a host, with acstor-agent stopped. Instances of an image whose link is
    removed later download it as without ACStor. Exit status 8 when links stay.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept = 0

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Have the caller say that all are meant."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--all", action="store_true", required=True, help="remove the links of all images"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Remove them and return the table."""
        removals = link_removal.remove_all(deployment.configuration(self.app))
        self._kept = sum(not removal.is_removed for removal in removals)
        rows = [
            (
                removal.image_id,
                removal.path,
                "removed" if removal.is_removed else "kept",
                removal.reason,
            )
            for removal in removals
        ]
        return ("Image", "Link", "State", "Reason"), rows

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table, then fail where links stay."""
        status = int(super().run(parsed_args) or 0)
        if self._kept:
            raise exception.ConflictError(
                f"{self._kept} links stay",
                hint="delete the instances that use them or migrate these away, then try again",
            )
        return status

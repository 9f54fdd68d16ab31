"""Commands on what the registrar decided about Glance's images: ``acstor registry ...``."""

import argparse
import dataclasses
import time
from typing import Any

from cliff import command, show

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Size
from acstor.cli.partial_list import PartialLister
from acstor.repository.images import image_registry
from acstor.repository.images.image_registry import EntryEvent, EntryState, ImageRegistry

Row = tuple[tuple[str, ...], tuple[Any, ...]]


class ListRegistry(PartialLister):
    """List what becomes of each image of Glance, and why.

    The exit status is 7 where an entry cannot be read.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--state",
            action="append",
            choices=[state.value for state in EntryState],
            help="only images in this state; may be repeated",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table; entries that cannot be read are left out."""
        found = open_registry(self.app)
        rows = []
        for image_id in found.ids():
            try:
                listed = found.find(image_id)
            except (exception.CorruptError, exception.UnsupportedError) as error:
                self.leave_out(error)
                continue
            if listed is None or (
                parsed_args.state and listed.entry.state not in parsed_args.state
            ):
                continue
            entry = listed.entry
            rows.append(
                (
                    image_id,
                    entry.name,
                    entry.state.value,
                    Size(entry.size_bytes),
                    entry.pin,
                    entry.changed_at,
                    entry.retry_at or "",
                    entry.reason,
                )
            )
        rows.sort(key=lambda row: (row[2], row[1], row[0]))
        columns = ("id", "name", "state", "size_bytes", "pin", "changed_at", "retry_at", "reason")
        return columns, rows


class ShowEntry(show.ShowOne):
    """Show what becomes of one image of Glance."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_image(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the entry."""
        listed = find_entry(open_registry(self.app), parsed_args.image)
        fields = {"id": listed.image_id, **dataclasses.asdict(listed.entry)}
        fields["state"] = listed.entry.state.value
        return tuple(fields), tuple(fields.values())


class RetryImage(command.Command):
    """Have a failed image, or one that was left for its content, be registered again.

    The registrar does so at its next comparison: within [registrar] interval, or at once after
    a SIGHUP.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_image(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the entry."""
        found = open_registry(self.app)
        listed = find_entry(found, parsed_args.image)
        entry = listed.entry
        if entry.state not in (EntryState.FAILED, EntryState.LEFT):
            raise exception.InvalidError(
                f"image {listed.image_id} is {entry.state.value}, there is nothing to retry",
                hint="only failed images, and those that were left, can be tried again",
            )
        state = image_registry.next_state(entry.state, EntryEvent.ACCEPT)
        if state is None:
            raise exception.InternalError("accepting an image removes no entry")
        waiting = dataclasses.replace(
            entry,
            state=state,
            reason="",
            attempts=0,
            retry_at=None,
            judged=None,
            changed_at=image_registry.format_time(time.time()),
        )
        found.replace(listed.image_id, listed, waiting)
        self.app.stdout.write(f"{listed.image_id} {entry.name} waits for the registrar\n")


def open_registry(app: Any) -> ImageRegistry:
    """Return the image registry in the configured origin.

    :raises AcstorError: when the origin cannot be opened.
    """
    repository = repository_access.open_repository(repository_access.configuration(app))
    return ImageRegistry(repository.origin, repository.image_index)


def find_entry(found: ImageRegistry, image_id: str) -> image_registry.Listed:
    """Return an image's entry.

    :raises NotFoundError: when there is none.
    """
    listed = found.find(image_id)
    if listed is None:
        raise exception.NotFoundError(
            f"the image registry has no image {image_id}",
            hint="'acstor registry list' shows all; is acstor-registrar running?",
        )
    return listed


def _with_image(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("image", metavar="UUID", help="id of the image")
    return parser

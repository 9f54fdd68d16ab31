"""``acstor volume give-up`` and ``acstor volume aside ...``: logs with what the origin lacks."""

import argparse
import datetime
import os
import sys
from typing import Any

from cliff import command, lister, show

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Size
from acstor.control.client import AdminClient
from acstor.repository import layout

_COLUMNS = ("name", "volume", "put_aside_at", "bytes", "why", "path")


Row = tuple[tuple[str, ...], tuple[Any, ...]]


class GiveUpVolume(show.ShowOne):
    """Close a volume that this host can neither open nor push, and put its log aside.

    What guests wrote here and the origin lacks is then no part of the volume any more: it is in the
    log only, which stays on this host's disk ('acstor volume aside list').
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_socket(super().get_parser(prog_name))
        parser.add_argument("volume", metavar="UUID", help="id of the volume")
        return _with_yes(parser, "the volume's id")

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Ask, give up, and return where the log is."""
        client = _client(self.app, parsed_args)
        volume = layout.canonical_id(parsed_args.volume, "volume")
        status: dict[str, Any] = client.call("volume.status", volume=volume)
        _confirm(self.app, parsed_args, volume, _loss(status))
        answer = client.call("volume.give_up", volume=volume)
        if answer["aside"] is None:
            return ("volume", "name"), (volume, None)
        return _COLUMNS, _row(answer["aside"])


class ListAside(lister.Lister):
    """List the logs of this host that were put aside, with what the origin may lack."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        return _with_socket(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        return _COLUMNS, [
            _row(one) for one in _client(self.app, parsed_args).call("volume.list_aside")
        ]


class RestoreAside(command.Command):
    """Open a volume again from a log that was put aside, if nobody has owned it since."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_name(_with_socket(super().get_parser(prog_name)))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Restore it."""
        client = _client(self.app, parsed_args)
        client.call(
            "volume.restore_aside",
            name=parsed_args.name,
        )


class ExportAside(show.ShowOne):
    """Write the disk as a log that was put aside has it to a new raw file on this host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_name(_with_socket(super().get_parser(prog_name)))
        parser.add_argument("file", metavar="FILE", help="that is made; nothing may be there")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Export, and return the file and its size."""
        done = _client(self.app, parsed_args).call(
            "volume.export_aside",
            name=parsed_args.name,
            path=os.path.abspath(parsed_args.file),
        )
        return ("path", "size_bytes"), (done["path"], Size(done["size_bytes"]))


class RemoveAside(show.ShowOne):
    """Remove a log that was put aside, with whatever only it has."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_yes(_with_name(_with_socket(super().get_parser(prog_name))), "its name")

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Ask, remove, and return what it was."""
        client = _client(self.app, parsed_args)
        found = {one["name"]: one for one in client.call("volume.list_aside")}
        if parsed_args.name not in found:
            raise exception.NotFoundError(
                f"no log {parsed_args.name} was put aside here",
                hint="'acstor volume aside list' lists them",
            )
        one = found[parsed_args.name]
        loss = (
            f"The log of volume {one['volume']}, {Size(one['bytes']).human_readable()}, was put "
            f"aside because {one['why'] or 'of a reason that was not kept'}. What guests wrote to "
            "it and the origin lacks is lost with it, for good."
        )
        _confirm(self.app, parsed_args, parsed_args.name, loss)
        return _COLUMNS, _row(client.call("volume.remove_aside", name=parsed_args.name))


def _loss(status: dict[str, Any]) -> str:
    dirty_bytes = status.get("dirty_bytes")
    lacks = "an unknown number of bytes" if dirty_bytes is None else Size(dirty_bytes)
    lacks = lacks if isinstance(lacks, str) else lacks.human_readable()
    since = status.get("recovery_point_age_s")
    age = f", the oldest of them written {since:.0f} s ago" if dirty_bytes and since else ""
    return (
        f"Volume {status['volume']} is {status['state']}: "
        f"{status.get('error') or 'without an error'}.\n"
        f"The origin lacks {lacks} that guests wrote here{age}. They are no part of the volume any "
        "more once it is opened again, here or elsewhere. Its log is put aside, not removed."
    )


def _confirm(app: Any, parsed_args: argparse.Namespace, word: str, loss: str) -> None:
    """Say what is lost, and go on only when it is confirmed."""
    app.stderr.write(f"{loss}\n")
    if parsed_args.yes:
        return
    app.stderr.write(f"Type {word} to go on: ")
    app.stderr.flush()
    if sys.stdin.readline().strip() != word:
        raise exception.InvalidError("not confirmed, nothing was done", hint="or use --yes")


def _row(aside: dict[str, Any]) -> tuple[Any, ...]:
    at = aside["put_aside_at"]
    moment = at and datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds")
    values = {**aside, "bytes": Size(aside["bytes"]), "put_aside_at": moment}
    return tuple(values[name] for name in _COLUMNS)


def _client(app: Any, parsed_args: argparse.Namespace) -> AdminClient:
    conf = repository_access.configuration(app)
    return AdminClient(parsed_args.socket or conf.dataplane.admin_socket)


def _with_socket(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--socket", metavar="PATH", help="admin socket, instead of [dataplane] admin_socket"
    )
    return parser


def _with_name(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="NAME", help="as 'acstor volume aside list' shows it")
    return parser


def _with_yes(parser: argparse.ArgumentParser, word: str) -> argparse.ArgumentParser:
    parser.add_argument(
        "--yes", action="store_true", help=f"go on without being asked to type {word}"
    )
    return parser

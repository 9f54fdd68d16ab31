"""Usage records of hosts as commands show them, and refusals to destroy an object in use."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from cliff import lister

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Names
from acstor.cli.partial_list import PartialLister
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.images.usage import USAGE_PREFIX, Usage, read_all, read_usage
from acstor.repository.images.withdrawal_rounds import read_rounds

NAMED_MAX = 5
"""Hosts, instances or images that a message names."""

Table = tuple[tuple[str, ...], list[Any]]


class ListImageUsers(lister.Lister):
    """List the hosts that use an image, or have it attached, as they said last.

    State 'used': instances on the host's disk need it, or its file is open. 'attached': it is only
    offered there.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the image."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", metavar="UUID", help="id of the image")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        image_id = layout.canonical_image_id(parsed_args.image)
        origin = repository_access.open_repository(repository_access.configuration(self.app)).origin
        rows = []
        for host, usage in sorted(read_all(origin).items()):
            is_used = usage.uses(image_id)
            if is_used or image_id in usage.manifests.values():
                rows.append(
                    (
                        host,
                        "used" if is_used else "attached",
                        Names(usage.images.get(image_id, ())),
                        usage.time,
                    )
                )
        return ("Host", "State", "Instances", "Spoke at"), rows


class ListHostUsage(PartialLister):
    """List what each host has said of its use, and when.

    Column 'Behind': withdrawals wait for the host, which has not answered the newest round yet.
    The exit status is 7 where a record cannot be read: nothing is withdrawn or collected then.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table; records that cannot be read are left out."""
        origin = repository_access.open_repository(repository_access.configuration(self.app)).origin
        rounds = read_rounds(origin)
        asked = max((one.round for one in rounds.images.values()), default=0)
        rows = []
        for name in sorted(origin.list_refs(USAGE_PREFIX)):
            host = name.removeprefix(USAGE_PREFIX)
            try:
                usage = read_usage(origin, host)
            except (exception.CorruptError, exception.UnsupportedError) as error:
                self.leave_out(error)
                continue
            if usage is not None:
                used = len(usage.images) + len(usage.bases)
                is_behind = not usage.has_answered(rounds.epoch, asked)
                rows.append((host, usage.time, used, len(usage.manifests), usage.round, is_behind))
        return ("Host", "Spoke at", "Images used", "Manifests kept", "Round", "Behind"), rows


def check_unused(refs: RefStore, image_id: str) -> None:
    """Refuse to go on while a host says that it uses an image.

    :raises ConflictError: naming the hosts, and instances where they are known.
    :raises CorruptError: and the like when a host's record is not readable.
    """
    users = {host: usage for host, usage in read_all(refs).items() if usage.uses(image_id)}
    if users:
        raise exception.ConflictError(
            f"image {image_id} is in use on {_hosts(users, image_id)}",
            hint=f"delete these instances first ('acstor image users {image_id}' lists them); with "
            "--force it goes all the same: their hosts keep its chunks, but they can be started, "
            "resized and migrated nowhere else",
        )


def _hosts(users: Mapping[str, Usage], image_id: str) -> str:
    texts = []
    for host, usage in sorted(users.items()):
        instances = usage.images.get(image_id, ())
        texts.append(f"{host} (instances {named(instances)})" if instances else host)
    return named(texts)


def named(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

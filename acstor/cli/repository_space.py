"""Table of who needs which stored bytes: ``acstor repository space``."""

import argparse
from collections.abc import Iterable
from typing import Any

from cliff import lister

from acstor.cli import projects, repository_access
from acstor.repository import accounting

BYTES = ("used_bytes", "unique_bytes", "shared_bytes")
NOBODY = "-"
"""Instead of a project: neither Glance nor Cinder knows of what needs these bytes."""


class ListSpace(lister.Lister):
    """List images, volumes, snapshots and versions with the bytes of packs that they need.

    Used are the bytes, as they are stored, of all chunks of a disk; unique are those of them that
    nothing else needs, which removing it would free. Every manifest is read; what cannot be read is
    left out. By project it is the bytes of all that a project has in Glance and Cinder and of its
    versions, each once; the former are asked with the credentials of [keystone].
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--by",
            choices=("disk", "project"),
            default="disk",
            help="what to list: images, volumes, snapshots and versions (disk), or projects",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table, the largest first."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        if parsed_args.by == "disk":
            disks = accounting.account(repository).owners
            rows = ((str(one.owner.kind), one.owner.id, *_bytes(one)) for one in disks)
            return ("kind", "id", *BYTES), _sorted(rows)
        known = {**projects.projects_of(conf), **projects.projects_of_versions(repository)}
        found = accounting.account_owners(repository, lambda one: known.get(one) or NOBODY)
        return ("project_id", *BYTES), _sorted((one.owner, *_bytes(one)) for one in found.owners)


def _bytes(space: accounting.OwnerSpace[Any]) -> tuple[int, int, int]:
    return space.used_bytes, space.unique_bytes, space.shared_bytes


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows by unique bytes, the largest first, then by what comes before the bytes."""
    return sorted(rows, key=lambda row: (-row[-2], row[: -len(BYTES)]))

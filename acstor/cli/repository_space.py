"""Table of who needs which stored bytes: ``acstor repository space``."""

import argparse
from typing import Any

from cliff import lister

from acstor.cli import repository_access
from acstor.repository import accounting


class ListSpace(lister.Lister):
    """List the images, volumes and snapshots with the bytes of packs that they need.

    Used are the bytes, as they are stored, of all chunks of a disk; unique are those of them that
    nothing else needs, which removing it would free. Every manifest is read; what cannot be read is
    left out.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table, the largest first."""
        conf = repository_access.configuration(self.app)
        space = accounting.account(repository_access.open_repository(conf))
        found = sorted(space.subjects, key=lambda one: (-one.unique_bytes, one.subject.id))
        return (
            ("kind", "id", "used_bytes", "unique_bytes", "shared_bytes"),
            (
                (
                    str(one.subject.kind),
                    one.subject.id,
                    one.used_bytes,
                    one.unique_bytes,
                    one.shared_bytes,
                )
                for one in found
            ),
        )

"""Tables that leave out what cannot be read, and fail for it once they are printed."""

import argparse
from typing import Any

from cliff import lister

from acstor import exception


class PartialLister(lister.Lister):
    """A list of documents of which some may be damaged, or of a newer release."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._left_out: list[exception.AcstorError] = []

    def leave_out(self, error: exception.AcstorError) -> None:
        """Name on stderr what cannot be read; the rest is listed."""
        self._left_out.append(error)
        self.app.stderr.write(f"{error}; {error.hint}\n")

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table, then fail where something is missing in it."""
        status = int(super().run(parsed_args) or 0)
        if self._left_out:
            raise type(self._left_out[0])(
                f"{len(self._left_out)} of what was to be listed cannot be read",
                hint="it is named above",
            )
        return status

"""Files that a command writes: whole, or not there."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import IO

from osc_lib import exceptions


@contextlib.contextmanager
def written_file(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Give a file beside the named one; it takes its place when all is written.

    It can be read by its owner only, as the disk that it comes from.

    :raises CommandError: it cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        ) as file:
            part = pathlib.Path(file.name)
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        raise exceptions.CommandError(f"Cannot write {path}: {error.strerror}") from error

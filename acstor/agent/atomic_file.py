"""Writing a file so that it is complete or absent."""

import contextlib
import os
import tempfile


def write_atomically(path: str, content: bytes) -> None:
    """Replace the file at ``path`` by ``content``; its directory is made when missing.

    Not synced to disk: what is written here can be had again from the origin.

    :raises OSError: when it cannot be written; the file is then as it was.
    """
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".arriving-")
    try:
        with os.fdopen(descriptor, "wb") as target:
            target.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise

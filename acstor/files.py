"""Writing a file so that it is complete or absent."""

import contextlib
import os
import tempfile


def write_atomically(
    path: str, content: bytes, *, is_synced: bool = False, owner: int | None = None
) -> None:
    """Replace the file at ``path`` by ``content``; its directory is made when missing.

    :param is_synced: whether it is on the disk when this returns; what can be had again from the
        origin need not be.
    :param owner: number of the user whom the file is given to before it is there; who writes it
        must be root.
    :raises OSError: when it cannot be written; the file is then as it was.
    """
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".arriving-")
    try:
        with os.fdopen(descriptor, "wb") as target:
            if owner is not None:
                os.fchown(target.fileno(), owner, -1)
            target.write(content)
            if is_synced:
                target.flush()
                os.fsync(target.fileno())
        os.replace(temporary, path)
        if is_synced:
            sync_directory(directory)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def sync_directory(path: str) -> None:
    """Return once the names in a directory outlive a power failure.

    :raises OSError: when they cannot be made to.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

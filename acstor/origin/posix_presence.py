"""Existence checks for decisions that must not take a failed look-up for an absence.

``os.path.exists`` and its kin answer "no" to every error. A soft NFS mount that timed out, a stale
handle, or a directory without permission would then be taken for a ref that was removed.
"""

import os
import stat


def is_there(path: str) -> bool:
    """Return whether there is a file, a folder or a link of that name.

    :raises OSError: when it cannot be told.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_folder(path: str) -> bool:
    """Return whether there is a folder, or a link to one, of that name.

    :raises OSError: when it cannot be told.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False

"""Files that the data plane is told of: it is another user, and reads them once."""

import os
import stat

from acstor.control.client import AdminClient
from acstor.files import write_atomically

_CLOSED, _PASSED_THROUGH = 0o700, 0o711


def hand_over(data_plane: AdminClient, path: str, content: bytes, size: int | None = None) -> None:
    """Write a file that nobody but the data plane, and root, can read.

    Its directory, and the one above, may be passed through from then on where they were closed to
    everybody; they cannot be listed.

    :param size: of the file, bytes, where it is to end with a hole; None: that of the content.
    :raises OSError: when it cannot be written, or given to the data plane's user.
    """
    owner = data_plane.user()
    is_other = owner not in (None, os.geteuid())
    write_atomically(path, content, owner=owner if is_other else None, size=size)
    if is_other:
        folder = os.path.dirname(path)
        for passed in (folder, os.path.dirname(folder)):
            if stat.S_IMODE(os.stat(passed).st_mode) == _CLOSED:
                os.chmod(passed, _PASSED_THROUGH)

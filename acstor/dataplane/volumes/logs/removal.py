"""Removing local logs while others go on: gigabytes take seconds, and a guest may wait."""

import os
import shutil
import tempfile
import threading

_REMOVED = "removed-"


class LogRemoval:
    """The logs of a directory that are being removed, of a process that was killed, too.

    :param directory: with the logs; need not exist.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def remove(self, path: str) -> None:
        """Have a log be gone, and remove it in the background."""
        try:
            removed = tempfile.mkdtemp(dir=self._directory, prefix=_REMOVED)
            os.rename(path, os.path.join(removed, "log"))
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
        self.sweep()

    def sweep(self) -> None:
        """Remove, in the background, what is to be removed."""
        names = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        paths = [os.path.join(self._directory, name) for name in names if name.startswith(_REMOVED)]

        def remove() -> None:
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)

        if paths:
            threading.Thread(target=remove, name="volume-remove", daemon=True).start()

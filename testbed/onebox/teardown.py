"""Take a one-box down: nothing of it is left but what makes the next one quick."""

import contextlib
import shutil

from testbed.onebox import network
from testbed.onebox.directory import KEPT, OneBoxDirectory
from testbed.onebox.host import Host


def take_down(directory: OneBoxDirectory, *, purge: bool = False) -> None:
    """End every host and remove everything; idempotent, also after a crash.

    :param purge: remove also what is installed and cached.
    :raises NotReadyError: when the kernel does not end a process.
    """
    for name in recorded_hosts(directory):
        # Their addresses do not matter any more.
        Host(directory, name, "").stop()
    kept = () if purge else KEPT
    if directory.path.is_dir():
        for entry in directory.path.iterdir():
            if entry.name in kept:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        with contextlib.suppress(OSError):
            directory.path.rmdir()  # when nothing is kept


def recorded_hosts(directory: OneBoxDirectory) -> list[str]:
    """Return the hosts that may have processes, the controller last: the others need it."""
    if not directory.run.is_dir():
        return []
    names = {path.stem for path in directory.run.glob("*.json")}
    return sorted(names, key=lambda name: (name == network.CONTROLLER, name))

"""Volumes that are not to be folded for a while: a fold that is under way is given up for that."""

import contextlib
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.native import DataPlane, map_errors


class FoldExclusion:
    """Keeps folds away from volumes.

    :param runtime: returns the runtime.
    """

    def __init__(self, runtime: Callable[[], DataPlane]) -> None:
        self._runtime = runtime

    @contextlib.contextmanager
    def of(self, local: LocalVolume) -> Iterator[None]:
        """Hold the ``fold_lock`` of a volume; a fold that takes its time is given up."""
        self.set_unwanted(local, True)
        try:
            local.fold_lock.acquire()
        finally:
            self.set_unwanted(local, False)
        try:
            yield
        finally:
            local.fold_lock.release()

    def set_unwanted(self, local: LocalVolume, is_unwanted: bool) -> None:
        """Have a fold that is under way be given up, or not any more; each caller counts."""
        with local.unwanted_lock:
            local.fold_unwanted += 1 if is_unwanted else -1
            if local.is_in_runtime:
                # Not owned, or closed this moment: nothing of it is folded.
                with (
                    contextlib.suppress(exception.AcstorError),
                    map_errors(f"volume {local.volume}"),
                ):
                    self._runtime().volume_set_fold_unwanted(local.volume, local.fold_unwanted > 0)

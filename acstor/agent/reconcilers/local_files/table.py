"""Table of the local files of a host: the state of each, what becomes of it, and its record."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

from acstor.agent.reconcilers.local_files import known_files
from acstor.agent.reconcilers.local_files.known_files import KnownFile, KnownFiles
from acstor.agent.reconcilers.local_files.states import (
    LocalFileEvent,
    LocalFileState,
    next_state,
)

LOG = logging.getLogger(__name__)

FINISHED = frozenset({LocalFileState.READY, LocalFileState.LINKED})
"""States in which links may lead to a file."""
_S, _E = LocalFileState, LocalFileEvent


class LocalFileTable:
    """States of all local files; not safe for threads by itself.

    :param path: of the record.
    :param known: what was known at the end of the process before.
    :param on_change: told all files after each change.
    """

    def __init__(
        self,
        path: str,
        known: KnownFiles,
        on_change: Callable[[Iterable[KnownFile]], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self.base_directory = known.base_directory
        self._files = dict(known.files)
        self.problem: str | None = None
        """Reason for which the record could not be written; None: it was."""
        on_change(self._files.values())

    @property
    def files(self) -> Mapping[str, KnownFile]:
        """All files by image id, those that were wanted first first."""
        return self._files

    @property
    def finished(self) -> frozenset[str]:
        """Ids of the images whose links may lead to their files."""
        return frozenset(self.in_states(*FINISHED))

    @property
    def taken_bytes(self) -> int:
        """Bytes that the files take, or are about to take."""
        return sum(known.data_bytes for known in self._files.values())

    def in_states(self, *states: LocalFileState) -> list[str]:
        """Return the ids of the images whose files are in one of some states."""
        return [image_id for image_id, known in self._files.items() if known.state in states]

    def state(self, image_id: str) -> LocalFileState | None:
        """Return the state of an image's file; None: there is none and none is wanted."""
        known = self._files.get(image_id)
        return None if known is None else known.state

    def use(self, base_directory: str) -> bool:
        """Have the files beside other base files; return whether these are others than before."""
        if self.base_directory == base_directory:
            return False
        if self._files:
            LOG.warning(
                "local files below %s are not looked after any more: base files are in %s",
                self.base_directory,
                base_directory,
            )
        self.base_directory = base_directory
        self._files = {}
        self._save()
        return True

    def want(self, image_id: str, manifest: str) -> None:
        """Note that an image is to have a file."""
        self._files[image_id] = KnownFile(next_state(None, _E.WANT) or _S.WAITING, manifest)
        self._save()

    def find(self, image_id: str) -> None:
        """Note a finished file that nobody knows."""
        state = next_state(None, _E.FIND) or _S.UNLINKING
        self._files[image_id] = KnownFile(state, "0" * 64, reason="nobody knows what it is of")
        self._save()

    def move(self, image_id: str, event: LocalFileEvent, **changes: object) -> None:
        """Let something happen to a file; write it down.

        :param changes: of the record's fields; the reason is empty unless it is among them.
        """
        known = self._files[image_id]
        state = next_state(known.state, event)
        reason = str(changes.get("reason", ""))
        LOG.info(
            "local file of image %s: %s%s",
            image_id,
            state or event,
            f", {reason}" if reason else "",
        )
        if state is None:
            del self._files[image_id]
        else:
            fields = {"reason": "", **changes, "state": state}
            self._files[image_id] = dataclasses.replace(known, **fields)  # type: ignore[arg-type]
        self._save()

    def note(self, image_id: str, **changes: object) -> None:
        """Change a record without changing the state."""
        known = self._files[image_id]
        changed = dataclasses.replace(known, **changes)  # type: ignore[arg-type]
        if changed != known:
            self._files[image_id] = changed
            self._save()

    def _save(self) -> None:
        self._on_change(self._files.values())
        try:
            known_files.save(self._path, KnownFiles(self.base_directory, self._files))
            self.problem = None
        except OSError as error:
            self.problem = f"the state of the local files cannot be written down: {error}"

"""Broken variants of the code that decides who owns a volume, made by changing a line of it."""

import inspect
import textwrap
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from acstor.dataplane.volumes import files, mending
from acstor.dataplane.volumes.folds import folds
from acstor.dataplane.volumes.handover import handover
from acstor.dataplane.volumes.lifecycle import acquisition, opening, releases, reopening, resuming
from acstor.dataplane.volumes.ownership import owner as volume_owner
from acstor.repository.volumes import ownership, record
from tests.unit.dataplane.ownership_cases import Case
from tests.unit.dataplane.ownership_model import Effect


def changed(owner: type, name: str, *lines: str) -> AbstractContextManager[object]:
    """Return what changes lines of a method.

    :param lines: what must be in it, and what comes in its place, by turns.
    """
    method: Any = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(method))
    for old, new in zip(lines[::2], lines[1::2], strict=True):
        assert old in source, f"{owner.__name__}.{name} has no {old!r} any more"
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(source, "<variant>", "exec"), method.__globals__, names)
    return mock.patch.object(owner, name, names[name])


BROKEN_VARIANTS: dict[str, AbstractContextManager[object]] = {
    "a release that hangs may take effect after all": mock.patch.object(
        mending.VolumeMending, "reaffirm", return_value=None
    ),
    "an epoch that was taken over is not sealed": changed(
        volume_owner.VolumeOwner,
        "acquire",
        "end = seal(volume, record.unsealed, record.next, record.unsealed_member)",
        "end = outcomes.Sealed(None, record.next)",
    ),
    "what lies before a seal is left out": changed(
        volume_owner.VolumeOwner,
        "acquire",
        "last = record.next - 1 if end.last is None else end.last",
        "last = record.next - 1",
    ),
    # Of as many as a record has room for: what holds for one holds for the last of them.
    "seals are forgotten after one more": mock.patch.object(record, "SEALS_MAX", 1),
    "a host that may not attach the volume takes it": mock.patch.object(
        ownership, "_check_may_own", return_value=None
    ),
    "an owner is not asked for its epoch when it releases": mock.patch.object(
        ownership, "_check_writing", return_value=None
    ),
    "a release without an answer is forgotten in a kill": mock.patch.object(
        files.VolumeFiles, "is_doubtful", return_value=False
    ),
    "a release is noted after it": changed(
        releases.VolumeReleases,
        "release",
        "self._files.note_clean(local.volume, CleanReason.RELEASED)\n"
        "    self._owner.release(local.volume, *local.released)",
        "self._owner.release(local.volume, *local.released)\n"
        "    self._files.note_clean(local.volume, CleanReason.RELEASED)",
    ),
    "a close that failed goes on without a look": changed(
        reopening.VolumeReopening,
        "reopen",
        "check = self._mending.check_owner(local.volume)",
        "pass",
        "if check is None or check.record is None:",
        "if False:",
        "self._mending.mended(self._files.require(local.volume), check.record)",
        "self._files.require(local.volume)",
        "self._mending.reaffirm(kept)",
        "pass",
    ),
    "a new guest is let in without a look": changed(
        opening.VolumeOpening,
        "open",
        "if local.state in _SERVED or (local.state is _S.CLOSING and local.released is None):",
        "if local.state in _SERVED and local.is_unchecked:",
    ),
    "a resumed volume is served whatever its record says": changed(
        resuming.VolumeResuming,
        "resume",
        "if check is not None and check.record is None:",
        "if False:",
    ),
    "what is kept is opened whatever its record says": changed(
        acquisition.VolumeAcquisition,
        "acquire",
        "record = self._owner.check_owner(volume, kept.epoch).record\n"
        "        if record is not None:",
        "record = self._owner.check_owner(volume, kept.epoch).record"
        " or self._owner.record(volume)\n"
        "        if record is not None:",
    ),
    "a hand-over without an answer is served on": changed(
        handover.VolumeHandover,
        "hand_over",
        "        self._releases.finish(local, kept.size_bytes)",
        "        try:\n"
        "            self._releases.finish(local, kept.size_bytes)\n"
        "        except exception.AcstorError:\n"
        "            self._releases._serving.start(local, kept)\n"
        "            local.move(LocalVolumeEvent.SERVED)\n"
        "            raise",
    ),
    "slots that were folded are used again": changed(
        folds.VolumeFolds,
        "_prepare",
        'if is_own and last["sequence"] >= kept.next:',
        "if False:",
    ),
    "a record is followed with the slots that are here": changed(
        mending.VolumeMending,
        "mended",
        "mended = _as_recorded(kept, record)",
        "mended = kept",
    ),
}

RELEASED_IS_NOT_SEALED = changed(
    volume_owner.VolumeOwner,
    "acquire",
    "end = seal(volume, record.unsealed, record.next, record.unsealed_member)",
    "end = outcomes.Sealed(None, record.next)\n"
    "    if change.before.owner is not None or change.before.unsealed is not None:\n"
    "        end = seal(volume, record.unsealed, record.next, record.unsealed_member)",
)
"""Nothing of this release needs the seal of a released epoch any more: it is for owners that go on
after a release as older releases do."""

_LATE = Case("close", Effect.LATE, "nothing", "open", "between")
_KILLED = Case("close", Effect.KILLED, "nothing", "away")
_STOPPED = Case("close", None, "taken", "open")
SUFFERERS = {
    "a release that hangs may take effect after all": _LATE,
    "an epoch that was taken over is not sealed": _STOPPED,
    "what lies before a seal is left out": _STOPPED,
    "seals are forgotten after one more": Case("push", None, "taken twice", "open"),
    "a host that may not attach the volume takes it": Case("open", None, "taken", "open"),
    "an owner is not asked for its epoch when it releases": _STOPPED,
    "a release without an answer is forgotten in a kill": _KILLED,
    "a release is noted after it": _KILLED,
    "a close that failed goes on without a look": Case("close", Effect.FAILED, "taken", "open"),
    "a new guest is let in without a look": Case("open", None, "taken", "open"),
    "a resumed volume is served whatever its record says": Case(
        "close", Effect.KILLED, "taken", "reconcile"
    ),
    "what is kept is opened whatever its record says": Case("open", Effect.FAILED, "taken", "open"),
    "a hand-over without an answer is served on": Case("hand over", Effect.LOST, "nothing", "away"),
    "slots that were folded are used again": Case("fold", Effect.KILLED, "nothing", "away"),
    "a record is followed with the slots that are here": Case(
        "fold", Effect.LOST, "nothing", "open"
    ),
}
"""The first of all cases that notices."""

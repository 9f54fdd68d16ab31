"""The contents of several volumes as they were at one moment.

The writes of all volumes that are in use are held, then all are pushed, then what is pushed is
noted, then the writes go on. A guest notices at most that writes took a while; data planes let
writes go on by themselves when nobody tells them to in time, and what was noted is then refused.
Several of these may go on at once and share volumes: each holds the writes under a name of its own,
and is told in the end whether they were held all the time.
"""

import functools
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping

from acstor import exception
from acstor.drivers.cinder.back_end import BackEnd
from acstor.drivers.cinder.hosts import call_each, first_error
from acstor.drivers.cinder.present_state import from_answer
from acstor.repository.volumes.store import PushedState

LOG = logging.getLogger(__name__)

_MARGIN = 1.0
"""Seconds by which all must be noted before a data plane would let writes go on by itself."""


def consistent_states(
    back_end: BackEnd,
    disks: Iterable[str],
    freeze_timeout: float,
    push_timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, PushedState]:
    """Return the contents of volumes at one moment.

    :param freeze_timeout: seconds for which writes are held at most.
    :param push_timeout: seconds that a host may take to push a volume before that.
    :raises DeadlineError: when it takes longer than that.
    :raises UnavailableError: when a host that has one of them open does not answer.
    :raises ConflictError: when one of them is opened or closed meanwhile.
    """
    records = {disk: back_end.volumes.get(disk).record for disk in disks}
    owners = {disk: record.owner for disk, record in records.items() if record.owner is not None}
    # What is written now is pushed with writes going on, so that little is left for the freeze.
    _push(back_end, owners, push_timeout)
    started = clock()
    frozen: dict[str, str] = {}
    holder = secrets.token_hex(16)
    try:
        _freeze(back_end, owners, freeze_timeout, holder, frozen)
        states = _push(back_end, owners, freeze_timeout)
        for disk, record in records.items():
            if disk not in owners:
                states[disk] = PushedState(record.size_bytes, record.disk)
            present = back_end.volumes.get(disk).record
            if (present.owner, present.epoch) != (record.owner, record.epoch):
                raise exception.ConflictError(
                    f"volume {disk} was opened or closed while its group was held",
                    hint="take the snapshot of the group again",
                )
        if clock() - started > freeze_timeout - min(_MARGIN, freeze_timeout / 10):
            raise exception.DeadlineError(
                f"holding the writes of {len(owners)} volumes and pushing them took longer than "
                f"{freeze_timeout:g} s",
                hint="raise acstor_freeze_timeout, or take the snapshot when less is written",
            )
    finally:
        held = _thaw(back_end, frozen, holder)
    lost = sorted(frozen.keys() - held)
    if lost:
        raise exception.UnavailableError(
            f"the writes of volume {lost[0]} were not held until all of the group were noted, or "
            "nobody knows",
            hint="take the snapshot of the group again",
        )
    return states


def _freeze(
    back_end: BackEnd,
    owners: Mapping[str, str],
    timeout: float,
    holder: str,
    frozen: dict[str, str],
) -> None:
    """Hold the writes of volumes; note in ``frozen`` those that may be held."""
    frozen.update(owners)  # also where no answer came: it may have been done
    answers = call_each(
        {
            disk: functools.partial(
                back_end.hosts.call,
                owner,
                "volume_freeze",
                volume=disk,
                timeout_s=timeout,
                holder=holder,
            )
            for disk, owner in owners.items()
        }
    )
    error = first_error(answers)
    if error is not None:
        raise error


def _push(back_end: BackEnd, owners: Mapping[str, str], timeout: float) -> dict[str, PushedState]:
    answers = call_each(
        {
            disk: functools.partial(
                back_end.hosts.call, owner, "volume_push", timeout=timeout, volume=disk
            )
            for disk, owner in owners.items()
        }
    )
    error = first_error(answers)
    if error is not None:
        raise error
    return {disk: from_answer(disk, answer) for disk, answer in answers.items()}


def _thaw(back_end: BackEnd, frozen: Mapping[str, str], holder: str) -> set[str]:
    """Let writes go on; return the volumes whose writes were held until now."""
    answers = call_each(
        {
            disk: functools.partial(
                back_end.hosts.call, owner, "volume_thaw", volume=disk, holder=holder
            )
            for disk, owner in frozen.items()
        }
    )
    for disk, answer in answers.items():
        if isinstance(answer, exception.AcstorError):
            # Its data plane lets writes go on by itself when the time is over.
            LOG.warning("volume %s was not told to go on: %s", disk, answer)
    return {
        disk
        for disk, answer in answers.items()
        if isinstance(answer, Mapping) and answer.get("was_held") is True
    }

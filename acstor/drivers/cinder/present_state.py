"""The content of a volume as it is now: what snapshots and clones are made of.

Of a volume that a host has open, that host first pushes to the origin what it has not yet.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acstor import exception
from acstor.drivers.cinder.back_end import BackEnd
from acstor.repository.volumes.store import PushedState

LOG = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Attempts at an operation on a volume that changes its owner or is folded meanwhile."""

Result = TypeVar("Result")


def with_present_state(
    back_end: BackEnd,
    disk: str,
    push_timeout: float,
    action: Callable[[PushedState | None], Result],
) -> Result:
    """Do something with the content of a volume as it is now.

    Everything that a guest was told is written before this call is in it.

    :param push_timeout: seconds that the host which has it open may take.
    :param action: gets what was pushed; None: nobody has the volume open, its record says it
        all. Called again when it raises a ConflictError.
    :raises UnavailableError: when the host does not answer.
    :raises NotFoundError: when there is no such volume.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return action(pushed_state(back_end, disk, push_timeout))
        except exception.ConflictError as error:
            if attempt >= ATTEMPTS_MAX:
                raise
            LOG.info("volume %s changed meanwhile, trying again: %s", disk, error)


def pushed_state(back_end: BackEnd, disk: str, push_timeout: float) -> PushedState | None:
    """Have a volume pushed; return what then is in the origin, None when nobody has it open.

    :raises ConflictError: when its owner does not have it open.
    """
    owner = back_end.volumes.get(disk).record.owner
    if owner is None:
        return None
    try:
        answer = back_end.hosts.call(owner, "volume_push", timeout=push_timeout, volume=disk)
    except exception.NotFoundError as error:
        raise exception.ConflictError(
            f"host {owner} owns volume {disk} but does not have it open",
            hint=f"check acstor-dataplane on {owner}; if that host is lost, give up what it did "
            f"not push: 'acstor volume settle {disk}', or attach the volume to another one once",
        ) from error
    except exception.UnavailableError as error:
        raise exception.UnavailableError(
            f"host {owner}, which has volume {disk} open, does not push its writes: "
            f"{error.message}",
            hint=f"check acstor-agent and acstor-dataplane on {owner}; if that host is lost, "
            "evacuate its instances first, or remove its attachment and give up what it did not "
            f"push: 'acstor volume settle {disk}'",
        ) from error
    return from_answer(disk, answer)


def from_answer(disk: str, answer: Any) -> PushedState:
    """Return what a host says that it pushed.

    :raises InternalError: when the answer is malformed.
    """
    try:
        if not isinstance(answer, Mapping):
            raise exception.InvalidError("it is no object")
        return PushedState.from_answer(answer)
    except exception.InvalidError as error:
        raise exception.InternalError(
            f"the host that has volume {disk} open answered nonsense: {error.message}"
        ) from error

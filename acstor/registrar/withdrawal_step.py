"""The next step of one image's withdrawal, from what the hosts have said: pure functions."""

import dataclasses
import enum
from collections.abc import Mapping

from acstor.repository.images.usage import Usage
from acstor.repository.images.withdrawal_rounds import Phase, Rounds


class Step(enum.Enum):
    """Next step in the withdrawal of an image."""

    ASK = "ask"
    """Ask the hosts whether they use it."""
    WAIT = "wait"
    """Wait for hosts that have not answered since."""
    KEEP = "keep"
    """Hosts use it; where it was being closed, it is opened again."""
    CLOSE = "close"
    """No host uses it: close it, once the grace is over."""
    REMOVE = "remove"
    """Every host has closed it, and none uses it: take it from the hosts for good."""
    FINISH = "finish"
    """Finish the removal, which was decided before."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Answers of the hosts about one image."""

    users: tuple[str, ...] = ()
    """Hosts that use it."""
    silent: tuple[str, ...] = ()
    """Hosts that have not looked at their disks since the last round of the image."""


def answers(rounds: Rounds, usages: Mapping[str, Usage], image_id: str) -> Answers:
    """Return what the hosts have said.

    :param usages: by host, read after ``rounds``.
    """
    withdrawal = rounds.images.get(image_id)
    asked_in = withdrawal.round if withdrawal else 0
    return Answers(
        users=tuple(sorted(host for host, usage in usages.items() if usage.uses(image_id))),
        silent=tuple(
            sorted(
                host
                for host, usage in usages.items()
                if not usage.has_answered(rounds.epoch, asked_in)
            )
        ),
    )


def next_step(phase: Phase | None, said: Answers) -> Step:
    """Return what to do next."""
    if phase is None:
        return Step.ASK
    if phase is Phase.REMOVING:
        return Step.FINISH
    if said.users:
        return Step.KEEP
    if said.silent:
        return Step.WAIT
    return Step.CLOSE if phase is Phase.ASKED else Step.REMOVE


def grace_min(usages: Mapping[str, Usage], speaks_within: float) -> float:
    """Return the seconds that must pass from the last use of an image until it is closed.

    Twice the longest time that a host takes to tell of a change on its disk: Nova looks for the
    base file, and makes the overlay a while later.

    :param speaks_within: of hosts that do not say, and where there are none.
    """
    said = [usage.speaks_within or speaks_within for usage in usages.values()]
    return 2.0 * max(said, default=speaks_within)

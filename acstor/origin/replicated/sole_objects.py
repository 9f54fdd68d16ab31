"""Objects that one member alone has: what is lost with it, and keeps it from being taken away."""

import dataclasses

from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.set_placement import CONTENT_FOLDERS
from acstor.origin.replicated.states import MemberState


@dataclasses.dataclass(frozen=True, slots=True)
class SoleObjects:
    """Objects that one member alone has."""

    count: int
    example: str
    """Key of one of them; empty: there is none."""


def find_sole(origin: ReplicatedOrigin, name: str) -> SoleObjects:
    """Return what a member has of images that no other one in use and on has, by their listings.

    What the home decides is left out: what it lacks of that was deleted.

    :raises UnavailableError: when one of them cannot be asked.
    """
    others = [
        member
        for one, member in origin.members.items()
        if one != name
        and origin.view.state(one) is MemberState.ACTIVE
        and origin.view.power_state(one) is PowerState.ACTIVE
    ]
    sole: set[str] = set()
    for prefix in CONTENT_FOLDERS:
        listings = (member.list(prefix) for member in others)
        sole |= origin.members[name].list(prefix).difference(*listings)
    return SoleObjects(len(sole), min(sole, default=""))

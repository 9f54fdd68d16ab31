"""Objects that one member alone has: what is lost with it, and keeps it from being taken away."""

import dataclasses

from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.set_placement import CONTENT_FOLDERS, COPIED_FOLDERS


@dataclasses.dataclass(frozen=True, slots=True)
class SoleObjects:
    """Objects that one member alone has."""

    count: int
    example: str
    """Key of one of them; empty: there is none."""


def find_sole(origin: ReplicatedOrigin, name: str) -> SoleObjects:
    """Return what a member has of images that no other has, by the listings of all of them.

    :raises UnavailableError: when one of them cannot be asked.
    """
    sole: set[str] = set()
    for folder in sorted(CONTENT_FOLDERS | COPIED_FOLDERS):
        prefix = f"{folder}/"
        listings = {
            one: member.call(
                lambda store: frozenset(store.list(prefix)),  # noqa: B023
                seconds_max=member.listing_seconds,
            )
            for one, member in origin.members.items()
        }
        sole |= listings[name].difference(
            *(found for one, found in listings.items() if one != name)
        )
    return SoleObjects(len(sole), min(sole, default=""))

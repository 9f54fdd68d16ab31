"""The order in which images are registered: projects take turns.

Else whoever uploads much, or large files, has everybody else wait.
"""

from collections import OrderedDict
from collections.abc import Iterable

from acstor.registrar.image_service.base import ServiceImage

OWNERS_MAX = 4096
"""Owners whose last turn is remembered."""


class FairOrder:
    """Fair order of images: the smallest of the owner whose last turn is longest ago.

    Owners are remembered for longer than they have images that wait: one that comes back is not
    new. Of more than ``owners_max`` the one whose turn was longest ago is forgotten. It comes
    before all that are remembered then, as it would have come anyway.

    :param owners_max: owners that are remembered.
    """

    def __init__(self, owners_max: int = OWNERS_MAX) -> None:
        """Begin with owners that had no turn yet."""
        self._owners_max = owners_max
        self._turns = 0
        self._last_turns: OrderedDict[str, int] = OrderedDict()  # the longest ago first

    def next_of(self, images: Iterable[ServiceImage]) -> ServiceImage | None:
        """Return the image to register first, None of none; equals go by their ids."""
        return min(images, key=self._rank, default=None)

    def note_turn(self, owner: str) -> None:
        """Note that an image of an owner is being registered; images without one share theirs."""
        self._turns += 1
        self._last_turns[owner] = self._turns
        self._last_turns.move_to_end(owner)
        if len(self._last_turns) > self._owners_max:
            self._last_turns.popitem(last=False)

    def _rank(self, image: ServiceImage) -> tuple[int, int, str]:
        return self._last_turns.get(image.owner, 0), image.size_bytes or 0, image.id

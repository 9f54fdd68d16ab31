"""Time of each image's last use on this host: it decides which are pinned first."""

import time
from collections.abc import Callable, Iterable, Mapping

_NEVER = float("-inf")


class ImageUse:
    """Uses of images that the agent has seen since its start.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no use."""
        self._clock = clock
        self._used_at: dict[str, float] = {}

    def note(self, used: Iterable[str]) -> None:
        """Note the images that are in use now."""
        self._used_at.update(dict.fromkeys(used, self._clock()))

    def order(self, registered_at: Mapping[str, str]) -> list[str]:
        """Return images, the most recently used first, then the newest.

        The use of all others is forgotten.

        :param registered_at: by id, UTC, ISO 8601; empty where it is not known.
        """
        self._used_at = {key: used for key, used in self._used_at.items() if key in registered_at}
        newest_first = sorted(sorted(registered_at), key=registered_at.__getitem__, reverse=True)
        return sorted(newest_first, key=lambda key: -self._used_at.get(key, _NEVER))

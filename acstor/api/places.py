"""Places for what takes a thread of the server for a while: so many in all, half for a project."""

import collections
import enum
import threading

from acstor import exception

_WORDS = {
    "downloads_max": ("are being sent, or compared by their files", "when one has ended"),
    "looks_max": ("are being looked into", "in some seconds"),
}


class PlaceKind(enum.StrEnum):
    """Kind of the place that a use of a version's disk takes."""

    LOOK = "look"
    """Short: partitions, a page of a directory, one file without its content, a length."""
    DOWNLOAD = "download"
    """Long: content on its way to a client, which may be slow; trees that are compared."""
    BESIDE = "beside"
    """None: the caller has one already, for another disk."""


class Places:
    """Places of one kind. Safe to use from several threads.

    :param most: places in all; a project has half of them, rounded up.
    :param option: of ``[api]``, which the operator sets.
    """

    def __init__(self, most: int, option: str) -> None:
        """Give none away yet."""
        self._most = most
        self._project_most = -(-most // 2)
        self._option = option
        self._lock = threading.Lock()
        self._taken: collections.Counter[str] = collections.Counter()
        """Places that are taken, by project."""

    def take(self, project: str) -> "Place":
        """Return a place, which the caller closes. Nobody waits for one.

        :raises OverloadedError: when too many are taken already, of the project or of all.
        """
        with self._lock:
            total, own = self._taken.total(), self._taken[project]
            if total < self._most and own < self._project_most:
                self._taken[project] += 1
                return Place(self, project)
        what, when = _WORDS[self._option]
        raise exception.OverloadedError(
            f"{total} of {self._most} disks of versions {what} already, {own} of "
            f"{self._project_most} of this project",
            hint=f"try again {when}; the operator sets [api] {self._option}",
        )

    def give_back(self, project: str) -> None:
        """Let others have a place."""
        with self._lock:
            self._taken[project] -= 1
            self._taken += collections.Counter()  # leaves out those with none


class Place:
    """Place that somebody has, until it is closed."""

    def __init__(self, places: Places, project: str) -> None:
        """Keep whose it is."""
        self._places: Places | None = places
        self._project = project

    def close(self) -> None:
        """Let others have it; may be repeated."""
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self._project)

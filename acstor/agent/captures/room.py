"""Room for captures on their host: a bound of their own, and a share that is left to others."""

import os
from collections.abc import Callable

from acstor import exception

LOOK_BYTES = 64 << 20
"""Bytes after which the file system is looked at again."""


class Room:
    """Room for what one capture writes.

    :param folder: on the file system that is looked at.
    :param capacity: most bytes of the capture.
    :param reserve_percent: share of the file system that stays free.
    """

    def __init__(
        self,
        folder: str,
        capacity: int,
        reserve_percent: float,
        look: Callable[[str], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._folder = folder
        self._capacity = capacity
        self._reserve_percent = reserve_percent
        self._look = look
        self._left = 0
        self.used_bytes = 0

    def reserve(self, size: int) -> None:
        """Note that so many bytes are about to be written.

        :raises ExhaustedError: when there is no room for them.
        """
        if self.used_bytes + size > self._capacity:
            raise exception.ExhaustedError(
                f"the capture takes more than the {self._capacity} bytes that are left of "
                "[captures] capacity",
                hint="raise [captures] capacity on this host, or wait until others are committed",
            )
        if size > self._left:
            self._left = max(size, LOOK_BYTES)
            self._check_free(self._left)
        self._left -= size
        self.used_bytes += size

    def _check_free(self, wanted: int) -> None:
        found = self._look(self._folder)
        reserve = int(found.f_blocks * found.f_frsize * self._reserve_percent / 100)
        if found.f_bavail * found.f_frsize - reserve < wanted:
            raise exception.ExhaustedError(
                f"the file system of {self._folder} is full but for its reserve",
                hint="make room there, let [captures] path be on a larger one, or lower "
                "[captures] reserve_percent",
            )

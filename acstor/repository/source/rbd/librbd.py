"""Snapshots in a real cluster, through the distribution's binding of librbd.

librbd has no deadlines of its own: each of its calls consists of operations of librados, which end
with those of the connection. A snapshot is opened read-only, without a lock and without a watch.
Source: ``src/pybind/rbd/rbd.pyx`` and ``src/librbd/api/DiffIterate.cc`` of Ceph.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from acstor import exception
from acstor.origin.rados import binding
from acstor.origin.rados.cluster import Cluster, mapped_error
from acstor.origin.rados.connection import Connection
from acstor.repository.source.rbd import base
from acstor.repository.source.rbd.data_ranges import DataRanges
from acstor.repository.source.rbd.location import RbdLocation

OPTIONS = {
    # Everything is read once: a cache of librbd would copy it once more.
    "rbd_cache": "false",
}
"""Options of librados, for librbd."""


class LibrbdSnapshot(base.BlockSnapshot):
    """A snapshot that is open for as long as the object is.

    :param connection: cluster, client and the deadline of each operation.
    :param rbd: the module; None: the distribution's.
    :param rados: the binding of librados; None: the distribution's.
    :raises InvalidError: when the location is in another cluster.
    :raises UnsupportedError: when there is no binding of librbd.
    """

    def __init__(
        self,
        connection: Connection,
        location: RbdLocation,
        rbd: Any = None,
        rados: binding.Binding | None = None,
    ) -> None:
        """Connect and open it."""
        self.name = str(location)
        self._location = location
        self._rbd = rbd or binding.load(binding.RBD)
        options = {**OPTIONS, **connection.more_options}
        self._cluster = Cluster(dataclasses.replace(connection, more_options=options), rados)
        self._image: Any = None
        try:
            self._check_cluster()
            self._image = self._open()
            with self._map_errors("opening"):
                self._identity = self._identity_of(self._image)
                self.size_bytes = int(self._image.size())
        except BaseException:
            self.close()
            raise

    def list_data(self) -> DataRanges:
        """Return what the object map, or each object of the image, says is there.

        What a clone has of its parent is in it, too. Asked from the start to the end, since in
        fast-diff mode unaligned offsets gave wrong answers (Ceph tracker 53784). An image whose
        bytes go over several objects in turn is taken for data.
        """
        found = DataRanges(self.size_bytes)

        problems: list[exception.AcstorError] = []

        def take(offset: int, length: int, is_data: bool) -> None:
            try:
                if is_data:
                    found.add(offset, length)
            except exception.AcstorError as error:  # must not pass through librbd
                problems.append(error)

        if self._is_striped():
            found.add(0, self.size_bytes)
            return found
        with self._map_errors("listing the data of"):
            self._image.diff_iterate(
                0,
                self.size_bytes,
                None,
                take,
                include_parent=True,
                whole_object=self._has_sound_object_map(),
            )
        if problems:
            raise problems[0]
        return found

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the snapshot."""
        with self._map_errors("reading"):
            content = bytes(self._image.read(offset, size))
        if len(content) != size:
            raise exception.UnavailableError(
                f"reading {self.name}: {len(content)} bytes came instead of {size}"
            )
        return content

    def is_there(self) -> bool:
        """Open it anew, and compare its numbers."""
        try:
            image = self._open()
        except exception.NotFoundError:
            return False
        try:
            with self._map_errors("looking at"):
                return self._identity_of(image) == self._identity
        finally:
            image.close()

    def close(self) -> None:
        """Close image and connection."""
        image, self._image = self._image, None
        if image is not None:
            with contextlib.suppress(exception.AcstorError), self._map_errors("closing"):
                image.close()
        self._cluster.close()

    def _check_cluster(self) -> None:
        found = self._cluster.fsid()
        if found != self._location.fsid:
            raise exception.InvalidError(
                f"{self.name} is in the cluster {self._location.fsid:.40}, and this one is {found}",
                hint="let [registrar] rbd_conf name the ceph.conf of Glance's cluster",
            )

    def _open(self) -> Any:
        context = self._cluster.context(self._location.pool, "")
        with self._map_errors("opening"):
            return self._rbd.Image(
                context, self._location.image, snapshot=self._location.snapshot, read_only=True
            )

    def _identity_of(self, image: Any) -> tuple[object, ...]:
        return image.id(), image.snap_get_id(self._location.snapshot), image.size()

    def _is_striped(self) -> bool:
        """Return whether its objects are in another order than its bytes."""
        with self._map_errors("looking at"):
            return int(self._image.stripe_count()) > 1

    def _has_sound_object_map(self) -> bool:
        """Return whether whole objects may be told of by the snapshot's object map.

        Where a map is invalid each object is asked for, which takes longer and is right.
        """
        rbd = self._rbd
        wanted = rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF
        invalid = rbd.RBD_FLAG_OBJECT_MAP_INVALID | rbd.RBD_FLAG_FAST_DIFF_INVALID
        is_mapped = self._image.features() & wanted == wanted
        return bool(is_mapped and not self._image.flags() & invalid)

    @contextlib.contextmanager
    def _map_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._rbd.ImageNotFound as error:
            raise exception.NotFoundError(
                f"{what} {self.name}: there is no such image or snapshot"
            ) from error
        except self._rbd.Error as error:
            code = getattr(error, "errno", 0)
            raise mapped_error(code, f"{what} {self.name}: {error}") from error

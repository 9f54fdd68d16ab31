"""Calls of librbd: which object maps are believed, and its errors as this project's."""

import errno
from typing import Any

import pytest

from acstor import exception
from acstor.origin.rados.binding import Binding
from acstor.origin.rados.connection import Connection
from acstor.repository.source.rbd.data_ranges import GRAIN
from acstor.repository.source.rbd.librbd import LibrbdSnapshot
from acstor.repository.source.rbd.location import RbdLocation

FSID = "11111111-0000-4000-8000-000000000000"
LOCATION = RbdLocation(FSID, "images", "image", "snap")
SIZE = 8 * GRAIN


class FakeRbd:
    """The module ``rbd``, with one image."""

    RBD_FEATURE_OBJECT_MAP, RBD_FEATURE_FAST_DIFF = 8, 16
    RBD_FLAG_OBJECT_MAP_INVALID, RBD_FLAG_FAST_DIFF_INVALID = 1, 2

    class Error(Exception):
        errno = 0

    class ImageNotFound(Error):  # noqa: N818
        errno = errno.ENOENT

    def __init__(self) -> None:
        self.feature_bits, self.flag_bits, self.stripes, self.number = 24, 0, 1, 4
        self.told: list[tuple[int, int, bool]] = [(0, GRAIN, True), (2 * GRAIN, GRAIN, False)]
        self.asked: list[Any] = []
        self.error: Exception | None = None
        self.open_images = 0

    def Image(self, context: object, name: str, snapshot: str, read_only: bool) -> "FakeRbd":  # noqa: N802
        assert (name, snapshot, read_only) == ("image", "snap", True)
        self._fail()
        self.open_images += 1
        return self

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def features(self) -> int:
        return self.feature_bits

    def flags(self) -> int:
        return self.flag_bits

    def stripe_count(self) -> int:
        return self.stripes

    def id(self) -> str:
        return "1a2b"

    def snap_get_id(self, name: str) -> int:
        return self.number

    def size(self) -> int:
        return SIZE

    def read(self, offset: int, size: int) -> bytes:
        self._fail()
        return bytes(min(size, SIZE - offset))

    def diff_iterate(self, offset: int, size: int, start: None, take: Any, **how: bool) -> None:
        self.asked.append((offset, size, how["include_parent"], how["whole_object"]))
        for each in self.told:
            take(*each)

    def close(self) -> None:
        self.open_images -= 1


class FakeRados:
    """The module ``rados``: one cluster that is there."""

    class Error(Exception):
        pass

    class ObjectNotFound(Error):  # noqa: N818
        pass

    class ObjectExists(Error):  # noqa: N818
        pass

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def Rados(self, conffile: str, rados_id: str) -> "FakeRados":  # noqa: N802
        return self

    def conf_set(self, name: str, value: str) -> None:
        self.options[name] = value

    def connect(self) -> None:
        pass

    def get_fsid(self) -> str:
        return FSID

    def open_ioctx(self, pool: str) -> "FakeRados":
        return self

    def get_pool_id(self) -> int:
        return 7

    def set_namespace(self, namespace: str) -> None:
        assert namespace == ""

    def set_osdmap_full_try(self) -> None:
        pass

    def close(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


class NoLister:
    def close(self) -> None:
        pass


def snapshot_of(
    rbd: FakeRbd, rados: FakeRados | None = None, location: RbdLocation = LOCATION
) -> LibrbdSnapshot:
    lister: Any = NoLister()
    return LibrbdSnapshot(
        Connection("/nowhere", "glance", 7.0),
        location,
        rbd,
        Binding(rados or FakeRados(), lambda connection: lister),
    )


@pytest.fixture
def rbd() -> FakeRbd:
    return FakeRbd()


def test_sound_object_map_tells_the_holes(rbd: FakeRbd) -> None:
    snapshot = snapshot_of(rbd)
    assert list(snapshot.list_data()) == [(0, GRAIN)]
    assert rbd.asked == [(0, SIZE, True, True)]
    snapshot.close()
    snapshot.close()
    assert rbd.open_images == 0


@pytest.mark.parametrize(
    ("features", "flags"), [(24, 1), (24, 2), (24, 3), (8, 0), (16, 0), (0, 0)]
)
def test_object_map_that_is_invalid_or_absent_is_not_asked(
    rbd: FakeRbd, features: int, flags: int
) -> None:
    rbd.feature_bits, rbd.flag_bits = features, flags
    snapshot_of(rbd).list_data()
    assert rbd.asked == [(0, SIZE, True, False)]


def test_striped_image_is_all_data(rbd: FakeRbd) -> None:
    rbd.stripes = 4
    assert list(snapshot_of(rbd).list_data()) == [(0, SIZE)]
    assert rbd.asked == []


def test_nonsense_of_the_listing_is_an_error_of_the_call(rbd: FakeRbd) -> None:
    rbd.told = [(GRAIN, GRAIN, True), (0, GRAIN, True), (0, 1, True)]
    with pytest.raises(exception.InternalError):
        snapshot_of(rbd).list_data()


def test_every_operation_has_a_deadline(rbd: FakeRbd) -> None:
    rados = FakeRados()
    snapshot_of(rbd, rados)
    assert (
        rados.options.items()
        >= {
            "rbd_cache": "false",
            "rados_osd_op_timeout": "7",
            "rados_mon_op_timeout": "7",
            "client_mount_timeout": "7",
        }.items()
    )


def test_image_of_another_cluster_is_refused(rbd: FakeRbd) -> None:
    with pytest.raises(exception.InvalidError, match="in the cluster other"):
        snapshot_of(rbd, location=RbdLocation("other", "images", "image", "snap"))
    assert rbd.open_images == 0


def test_absent_snapshot_is_not_found(rbd: FakeRbd) -> None:
    rbd.error = FakeRbd.ImageNotFound("no")
    with pytest.raises(exception.NotFoundError, match="opening rbd:images/image@snap"):
        snapshot_of(rbd)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ETIMEDOUT, exception.UnavailableError),
        (errno.EPERM, exception.InvalidError),
        (errno.EIO, exception.UnavailableError),
    ],
)
def test_errors_have_their_kinds(
    rbd: FakeRbd, code: int, kind: type[exception.AcstorError]
) -> None:
    snapshot = snapshot_of(rbd)
    rbd.error = FakeRbd.Error("no")
    rbd.error.errno = code
    with pytest.raises(kind, match="reading"):
        snapshot.read(0, 1)


def test_short_read_is_no_content(rbd: FakeRbd) -> None:
    with pytest.raises(exception.UnavailableError):
        snapshot_of(rbd).read(SIZE - 1, 2)


def test_snapshot_of_the_same_name_is_another_one(rbd: FakeRbd) -> None:
    snapshot = snapshot_of(rbd)
    assert snapshot.is_there()
    rbd.number = 5
    assert not snapshot.is_there()
    rbd.error = FakeRbd.ImageNotFound("no")
    assert not snapshot.is_there()
    assert rbd.open_images == 1

"""Members of the origin as the data plane gets them."""

import pathlib

import pytest

from acstor import exception
from acstor.dataplane import member_readers, origin_source
from acstor.dataplane.member_readers import open_members
from acstor.dataplane.origin_source import OriginSource
from acstor.origin.base import RefStore
from acstor.origin.memory import MemoryOrigin
from acstor.origin.rados import native_reader
from acstor.origin.replicated.member_records import MembersRecord
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent

NAMES = ("nfs", "old", "new")


class Stores:
    """Refs of members by URL, and the members as they are opened."""

    def __init__(self, root: pathlib.Path) -> None:
        self.addresses = [MemberAddress(name, f"posix://{root}/{name}") for name in NAMES]
        self.refs: dict[str, RefStore] = {name: MemoryOrigin() for name in NAMES}
        self.opened: list[str] = []
        self.membership = Membership("nfs", self.refs)
        self.membership.create()
        for name in NAMES[1:]:
            self.record: MembersRecord = self.membership.change(name, MemberEvent.FILLED)

    def open_refs(self, url: str) -> RefStore:
        self.opened.append(url)
        return self.refs[url.rsplit("/", 1)[1]]

    def open(self) -> OriginSource:
        return open_members(self.addresses, self.record, {"new"}, 5.0, self.open_refs)


@pytest.fixture
def stores(tmp_path: pathlib.Path) -> Stores:
    return Stores(tmp_path)


def test_members_are_given_in_order_with_their_generations(stores: Stores) -> None:
    stores.membership.advance("old")
    stores.record, _ = stores.membership.check()
    source = stores.open()
    assert [(one.name, one.generation) for one in source.members] == [
        ("nfs", 1),
        ("old", 2),
        ("new", 1),
    ]
    assert [one.is_assigned for one in source.members] == [False, False, True]
    roots = [one.posix_root for one in source.members]
    assert roots == [one.url.removeprefix("posix://") for one in stores.addresses]
    assert source.given == list(source.members)
    assert not stores.opened, "a store that is away keeps no host from starting"


def test_generation_is_read_of_the_store_itself(stores: Stores) -> None:
    reader = stores.open().members[1]
    stores.membership.advance("old")
    assert (reader.generation, reader.read_generation()) == (1, 2)
    assert reader.read_generation() == 2
    assert len(stores.opened) == 1


def test_another_store_has_no_generation(stores: Stores) -> None:
    reader = stores.open().members[1]
    stores.refs["old"] = stores.refs["new"]
    with pytest.raises(exception.FencedError, match="old is member new"):
        reader.read_generation()
    reader = stores.open().members[1]
    stores.refs["old"] = MemoryOrigin()
    with pytest.raises(exception.FencedError, match="is no member"):
        reader.read_generation()


def test_members_that_are_not_used_are_not_read(stores: Stores) -> None:
    stores.record = stores.membership.change("old", MemberEvent.FAIL)
    assert [one.name for one in stores.open().members] == ["nfs", "new"]
    stores.record = stores.membership.change("new", MemberEvent.FAIL)
    source = stores.open()
    assert not source.members
    assert source.posix_root == stores.addresses[0].url.removeprefix("posix://")
    assert source.given is None


def test_member_that_the_home_does_not_know_is_left_out(stores: Stores) -> None:
    stores.addresses.append(MemberAddress("other", "posix:///other"))
    assert [one.name for one in stores.open().members] == list(NAMES)


class NativeReader:
    """Stands in the place of a reader in Ceph, which brings a writer of logs with it."""

    is_closed = False

    def __init__(self, **settings: object) -> None:
        del settings

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        buffer[:] = b"x" * len(buffer)
        return len(buffer)

    def close(self) -> None:
        self.is_closed = True


def test_no_log_is_stored_past_python_in_the_last_member(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others join while the data plane runs, and epochs of volumes are in them then.

    With a writer of its own the runtime stored all but the first object of these in this one, where
    nobody looks: whoever seals the epoch finds its end behind that first one.
    """
    for module in (native_reader, origin_source, member_readers):
        monkeypatch.setattr(module, "RadosReader", NativeReader, raising=False)
    stores.addresses[0] = MemberAddress("nfs", "rados://heads")
    assert isinstance(stores.open().members[0].reader, NativeReader)
    for name in NAMES[1:]:
        stores.record = stores.membership.change(name, MemberEvent.FAIL)
    source = stores.open()
    reader = source.given
    assert not isinstance(reader, list | NativeReader | None)
    buffer = bytearray(3)
    assert reader.readinto("packs/0", 0, memoryview(buffer)) == 3
    assert buffer == b"xxx"
    source.close()
    assert reader._reader.is_closed  # type: ignore[attr-defined]

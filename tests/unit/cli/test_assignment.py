"""'acstor assignment ...' on directories: volumes go to other members, which then stay in use."""

import contextlib
import json
import pathlib
import uuid
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin.opening import open_driver
from acstor.origin.posix import PosixOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_upkeep import check_readable
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes import doorbells
from acstor.repository.volumes.epoch_log import EpochLog, sealer_of
from acstor.repository.volumes.log_places import RecordedLogs
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.cli.test_origin import Deployment
from tests.unit.repository.volumes.log_objects import log_object

FIRST, SECOND = (str(uuid.UUID(int=number)) for number in (1, 2))


class Members(Deployment):
    """Two members, and two volumes."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.run("origin", "create")
        self.lead()
        self.origin = ReplicatedOrigin(self.addresses, open_driver)
        self.store = VolumeStore(Repository.open(self.origin))
        for volume in (FIRST, SECOND):
            self.store.create(NewVolume(volume, 1 << 20))

    def own(self, volume: str, count: int = 0) -> None:
        """Have h1 own a volume in a new epoch, and write so many objects of its log."""
        self.store.allow_host(volume, "h1")
        record = self.store.acquire(volume, "h1").after
        if record.unsealed is not None:
            seal = sealer_of(self.origin)
            last, slot = seal(volume, record.unsealed, record.next, record.unsealed_member)
            record = self.store.record_takeover(
                volume,
                "h1",
                record.epoch,
                last=record.next - 1 if last is None else last,
                seal=slot,
            ).after
        log = EpochLog(lambda: self.origin, volume, record.epoch, record.member)
        for place in range(record.next, record.next + count):
            content = log_object(volume, record.epoch, place, b"word", created_ms=1)
            assert log.put_if_absent(layout.log_key(volume, record.epoch, place), [content])

    def release(self, volume: str) -> None:
        record = self.store.get(volume).record
        self.store.release(volume, "h1", record.epoch, None)
        self.store.disallow_host(volume, "h1")

    def assignments(self) -> dict[str, dict[str, object]]:
        rows = json.loads(self.run("assignment", "list", "-f", "json"))
        return {row["Volume"]: row for row in rows}

    def lead(self) -> None:
        """Make a pass of the process that leads."""
        origin = ReplicatedOrigin(self.addresses, open_driver)
        logs = RecordedLogs(origin, lambda: origin.view.home)
        MemberKeeping(origin, check_readable, 1 << 30, "registrar", logs=logs).run()
        origin.close()


@pytest.fixture
def members(tmp_path: pathlib.Path) -> Iterator[Members]:
    found = Members(tmp_path)
    with contextlib.closing(found.origin):
        yield found


def test_list_says_where_volumes_are_and_what_is_there_alone(members: Members) -> None:
    members.own(FIRST, 2)
    row = members.assignments()[FIRST]
    assert (row["Member"], row["Assigned"], row["Problem"]) == ("home", "home", "")
    assert row["Owed"] == 2 * (128 + 4)
    age = row["Recovery Point Age (s)"]
    assert isinstance(age, int)
    assert age > 1_000_000_000, "the first of them says that it is of 1970"
    assert members.assignments()[SECOND]["Owed"] == 0
    members.lead()
    row = members.assignments()[FIRST]
    assert (row["Owed"], row["Recovery Point Age (s)"]) == (0, 0)


def test_list_does_not_guess_while_a_member_is_away(members: Members) -> None:
    members.own(FIRST, 1)
    (members.folder / "near").rename(members.folder / "away")
    row = members.assignments()[FIRST]
    assert (row["Owed"], row["Recovery Point Age (s)"]) == (None, None)
    assert "near" in str(row["Problem"])


def test_owner_is_told_and_goes_when_the_volume_is_opened_again(members: Members) -> None:
    members.own(FIRST, 1)
    assert doorbells.heard(members.origin, "h1") is None
    text = members.run("assignment", "move", FIRST, SECOND, "near")
    assert f"volume {FIRST} goes to near within a minute, by its host h1" in text
    assert f"volume {SECOND} goes to near when it is opened next" in text
    assert doorbells.heard(members.origin, "h1") is not None
    row = members.assignments()[FIRST]
    assert (row["Member"], row["Assigned"]) == ("home", "near")
    members.own(FIRST, 1)
    row = members.assignments()[FIRST]
    assert (row["Member"], row["Assigned"]) == ("near", "near")
    assert row["Owed"] == 2 * (128 + 4)
    assert f"volume {FIRST} writes to near" in members.run("assignment", "move", FIRST, "near")


def test_volume_that_nobody_uses_goes_at_once(members: Members) -> None:
    members.own(FIRST, 2)
    members.release(FIRST)
    assert f"volume {FIRST} writes to near" in members.run("assignment", "move", FIRST, "near")
    record = members.store.get(FIRST).record
    assert (record.epoch, record.member, record.owner, record.unsealed) == (2, "near", None, None)
    assert [len(one) for one in record.logs] == [2]
    assert f"volume {FIRST} writes to home" in members.run("assignment", "move", FIRST, "home")
    assert not members.store.get(FIRST).record.names_members


@pytest.mark.parametrize(
    ("member", "problem"),
    [("far", "has no member far"), ("near", "near is draining, and nothing new")],
)
def test_move_to_what_is_not_active_is_refused(members: Members, member: str, problem: str) -> None:
    members.run("origin", "drain", "near")
    status, text = members("assignment", "move", FIRST, member)
    assert status != 0
    assert problem in text
    assert members.store.get(FIRST).record.assigned is None


def test_member_is_taken_away_when_no_volume_needs_it(members: Members) -> None:
    members.run("assignment", "move", FIRST, "near")
    members.own(FIRST, 2)
    assert "1 volumes write to it or are to" in members.run("origin", "drain", "near")
    status, text = members("origin", "remove", "near")
    assert status != 0
    assert (
        f"1 volumes write to member near, seal a log in it or are to write to it, {FIRST}" in text
    )
    members.run("assignment", "move", FIRST, "home")
    assert members("origin", "remove", "near")[0] != 0, "its epoch is there still"
    members.own(FIRST)
    status, text = members("origin", "remove", "near")
    assert status != 0
    assert "2 objects of logs are in member near alone" in text
    members.lead()
    assert "near is removed" in members.run("origin", "remove", "near")
    home = PosixOrigin(str(members.folder / "home"))
    record = members.store.get(FIRST).record
    assert all(
        home.exists(one.key(at)) for one in record.logs for at in range(one.first, one.last + 1)
    )


def test_volumes_are_said_to_be_lost_with_the_member_that_they_write_to(members: Members) -> None:
    members.run("assignment", "move", FIRST, "near")
    members.own(FIRST, 1)
    members.run("assignment", "move", SECOND, "near")
    members.lead()
    status, text = members("origin", "fail", "near", "--lost-bytes", "0")
    assert status != 0
    assert f"1 volumes that write to it, {FIRST} for one, cannot be opened any more" in text
    assert "--lost-bytes 0 --lost-volumes 1" in text
    assert members("origin", "fail", "near", "--lost-bytes", "0", "--lost-volumes", "2")[0] != 0
    said = members.run("origin", "fail", "near", "--lost-bytes", "0", "--lost-volumes", "1")
    assert "near is failed" in said
    origin = ReplicatedOrigin(members.addresses, open_driver)
    with (
        contextlib.closing(origin),
        pytest.raises(exception.UnavailableError, match="near of the origin is not in use"),
    ):
        VolumeStore(Repository.open(origin)).acquire(FIRST, "h1")


def test_one_store_has_no_assignments(members: Members) -> None:
    members.config.write_text(f"[origin]\nurl = posix://{members.folder / 'home'}\n")
    status, text = members("assignment", "list")
    assert status != 0
    assert "the origin is one store" in text

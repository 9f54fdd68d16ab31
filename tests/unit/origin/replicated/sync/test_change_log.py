"""Change logs: their bytes, when they are stored, and what becomes of those that cannot be."""

import hashlib
import json

import pytest

from acstor import exception
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.sync import change_log
from acstor.origin.replicated.sync.change_log import (
    Change,
    ChangeLogWriter,
    Segment,
    UnreadableSegment,
    read_segments,
)
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.documents import ROOT
from tests.unit.origin.replicated.stores import PATIENT_SECONDS

GOLDEN = ROOT / "tests" / "golden" / "change-log-v1.json"
VOLUME = "11111111-2222-4333-8444-555555555555"
SEGMENT = Segment(
    "nfs",
    "0123456789abcdef" * 2,
    3,
    {
        VOLUME: (
            Change(f"volume-log/{VOLUME}/00000002/0000000000000007", 4736),
            Change("packs/ab/" + "ab" * 32, 67_108_864),
        ),
        "images": (Change("manifests/cd/" + "cd" * 32, 81_920),),
    },
)


def test_change_log_version_requires_update() -> None:
    assert change_log.CHANGE_LOG_VERSION == 1
    assert SEGMENT.encode() == GOLDEN.read_bytes(), "bump CHANGE_LOG_VERSION"
    assert Segment.parse(GOLDEN.read_bytes()) == SEGMENT
    assert SEGMENT.key == "changes/0123456789abcdef0123456789abcdef/00000003"


def changed(body: object | None = None, **header: object) -> bytes:
    line, _, former = SEGMENT.encode().partition(b"\n")
    content = former if body is None else json.dumps(body).encode()
    fields = {**json.loads(line), "sha256": hashlib.sha256(content).hexdigest(), **header}
    return json.dumps(fields).encode() + b"\n" + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n{}",
        SEGMENT.encode()[:-2],
        SEGMENT.encode().replace(b"4736", b"4737"),
        changed(sha256="0"),
        changed(member="A"),
        changed(session="x"),
        changed(number=-1),
        changed(number=1 << 32),
        changed(body=[]),
        changed(body={"d" * 65: []}),
        changed(body={"d": [["../x", 1]]}),
        changed(body={"d": [["packs/x", -1]]}),
        changed(body={"d": [["packs/x"]]}),
        changed(body={"d": {"packs/x": 1}}),
    ],
)
def test_damaged_segment_is_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        Segment.parse(content)


def test_segment_of_too_many_objects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 2)
    with pytest.raises(exception.CorruptError, match="more than 2"):
        Segment.parse(SEGMENT.encode())


def test_segment_of_a_newer_release_is_refused() -> None:
    with pytest.raises(exception.UnsupportedError):
        Segment.parse(changed(version=2))


class Writing:
    """A writer of the log of one member, which misbehaves as told."""

    def __init__(self) -> None:
        self.clock = VirtualTime()
        self.store = FaultyOrigin(MemoryOrigin())
        self.member = Member("a", self.store, PATIENT_SECONDS, clock=self.clock)
        self.writer = ChangeLogWriter(
            {"a": self.member}, lambda key: key.split("/")[0], clock=self.clock
        )

    def segments(self) -> list[Segment]:
        """Return what is stored."""
        found = list(read_segments(self.member))
        assert all(isinstance(one, Segment) for one in found)
        return sorted(found, key=lambda one: one.key)  # type: ignore[arg-type]


@pytest.fixture
def writing() -> Writing:
    return Writing()


def test_segment_is_stored_when_it_is_full(writing: Writing) -> None:
    half = change_log.S_LOG // 2
    writing.writer.note("a", "disk/1", half)
    writing.writer.store_due()
    assert not writing.segments()
    assert writing.writer.size_bytes("a") == half
    writing.writer.note("a", "disk/2", half)
    writing.writer.note("a", "other/3", 1)
    writing.writer.store_due()
    assert [one.disks for one in writing.segments()] == [
        {"disk": (Change("disk/1", half), Change("disk/2", half))}
    ]
    assert writing.writer.size_bytes("a") == 1


def test_segment_is_stored_when_it_is_old_or_its_process_ends(writing: Writing) -> None:
    writing.writer.note("a", "disk/1", 1)
    writing.clock.now += change_log.PERIOD_SECONDS
    writing.writer.store_due()
    assert [one.number for one in writing.segments()] == [0]
    writing.writer.note("a", "disk/2", 1)
    writing.writer.store_due()
    assert [one.number for one in writing.segments()] == [0]
    writing.writer.store_due(is_ending=True)
    assert [one.number for one in writing.segments()] == [0, 1]


def test_segment_of_many_small_objects_is_full(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 3)
    for number in range(7):
        writing.writer.note("a", f"disk/{number}", 1)
    writing.writer.store_due()
    assert [len(one.disks["disk"]) for one in writing.segments()] == [3, 3]


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
def test_segment_waits_for_a_member_that_is_away(writing: Writing, effect: Effect) -> None:
    writing.store.faults = [Fault(Operation.PUT, effect)]
    writing.writer.note("a", "disk/1", 7)
    with pytest.raises(exception.UnavailableError):
        writing.writer.store_due(is_ending=True)
    assert writing.writer.size_bytes("a") == 7
    writing.store.faults = []
    writing.writer.store_due()
    assert [one.disks for one in writing.segments()] == [{"disk": (Change("disk/1", 7),)}]
    assert writing.writer.size_bytes("a") == 0


def test_segments_of_a_member_that_stays_away_are_given_up_and_counted(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 1)
    for number in range(change_log.WAITING_MAX + 2):
        writing.writer.note("a", f"disk/{number}", 1)
    assert writing.writer.lost == 2
    writing.writer.store_due()
    numbers = [one.number for one in writing.segments()]
    assert numbers == list(range(2, change_log.WAITING_MAX + 2))


def test_segment_that_cannot_be_read_is_told_apart(writing: Writing) -> None:
    writing.store.put_if_absent(SEGMENT.key, [SEGMENT.encode()])  # of another member
    writing.store.put_if_absent("changes/x/1", [b"?"])
    writing.writer.note("a", "disk/1", 7)
    writing.writer.store_due(is_ending=True)
    found = list(read_segments(writing.member))
    unreadable = {one.key for one in found if isinstance(one, UnreadableSegment)}
    assert unreadable == {SEGMENT.key, "changes/x/1"}
    assert len(found) == 3


def test_unreachable_member_is_no_unreadable_segment(writing: Writing) -> None:
    writing.writer.note("a", "disk/1", 7)
    writing.writer.store_due(is_ending=True)
    writing.store.faults = [Fault(Operation.READ, Effect.ERROR)]
    with pytest.raises(exception.UnavailableError):
        list(read_segments(writing.member))

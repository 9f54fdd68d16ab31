"""Documents of others: whatever is in one, its reader says so, by an error that callers expect."""

import contextlib
import copy
import io
import json
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor import exception, untrusted_json
from acstor.agent.reconcilers.desired_host import DesiredState
from acstor.agent.reconcilers.working_sets import Reported
from acstor.cluster import decision_journal
from acstor.cluster.ring.decision import Decision
from acstor.cluster.ring.publisher_term import PublisherTerm
from acstor.control import protocol
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.volumes.clean_proof import CleanProof
from acstor.dataplane.volumes.logs.aside import LogsAside
from acstor.dataplane.volumes.persisted_volume import PersistedStandby, PersistedVolume
from acstor.drivers.nova.image_links.known_links import KnownLinks
from acstor.origin.base import Ref
from acstor.policy.feeds.ceilometer import traffic_file
from acstor.policy.pins import Pins
from acstor.preload import admitted_preload
from acstor.registrar.image_service.glance import GlanceImageService
from acstor.repository import layout
from acstor.repository.gc.condemnation import State, Tombstone
from acstor.repository.images.boot_profile import BootProfile
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.image_registry import Entry
from acstor.repository.images.usage import Usage
from acstor.repository.images.withdrawal_rounds import Rounds
from acstor.repository.images.working_set import WorkingSet
from acstor.repository.repository import Format
from acstor.repository.versions.record import VersionRecord
from acstor.repository.volumes.record import SnapshotRecord, VolumeRecord
from acstor.telemetry.disk_watch import parse_report
from acstor.telemetry.host_states import HostState

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
IMAGE = "00000000-0000-0000-0000-000000000001"
NAME = "ab" * 32

NO_JSON = (
    b"",
    b"{",
    b"\xff",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1e999",
    b"1" + b"0" * 400,
    b"1" * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"[" * 900 + b"]" * 900,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'"\\ud800"',
    b'"\\uDBFFx"',
    b'{"\\udc00": 1}',
    b'"\xed\xa0\x80"',
)
"""Texts that are no documents here, whole or as a value in one."""
ODD = (
    b"null",
    b"true",
    b"-1",
    b"1.5",
    b"9223372036854775807",
    b'"x"',
    b'""',
    b"[]",
    b"{}",
    b"[[]]",
)
"""Values that are JSON; mostly not what is expected where they stand."""
EXPECTED = (exception.AcstorError, protocol.ProtocolError)
"""Errors that callers expect of a reader."""
MARK = "the place of the value"


class Directory:
    """A folder of a host's state, for readers of files."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def read_aside(self, content: bytes) -> object:
        folder = self.path / "aside" / f"{IMAGE}.1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "aside.json").write_bytes(content)
        return LogsAside(str(folder.parent)).list()

    def read_attachments(self, content: bytes) -> object:
        for name in ("repository.json", "placement.json"):
            (self.path / name).write_bytes(content)
        found = Attachments(str(self.path))
        return found.chunk_size(), found.distance_threshold()

    def read_journal(self, content: bytes) -> object:
        path = self.path / "journal"
        path.write_bytes(content.replace(b"\n", b" ") + b"\n")
        return list(decision_journal.read_records(str(path)))


class GlanceAnswer(contextlib.nullcontext[Any]):
    """An answer of Glance."""

    status_code = 200
    request = types.SimpleNamespace(path_url="/")

    def __init__(self, content: bytes) -> None:
        super().__init__(self)
        source = io.BytesIO(content)
        self.raw = types.SimpleNamespace(read1=lambda size, decode_content: source.read(size))


def read_glance(content: bytes) -> object:
    adapter = types.SimpleNamespace(get=lambda *_, **__: GlanceAnswer(content))
    return GlanceImageService(adapter).find_image(IMAGE)  # type: ignore[arg-type]


def read_host_state(content: bytes) -> object:
    return HostState.from_message(json.loads(content))


Reader = Callable[[bytes], object]


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


GLANCE_IMAGE = json.dumps(
    {"id": IMAGE, "status": "active", "size": 7, "name": "n", "hw": 1}
).encode()
REPOSITORY = json.loads(golden("repository-v4.json"))["format"].encode()
TOMBSTONE = Tombstone(NAME, layout.pack_key(NAME), State.CONDEMNED, {"h1": 5.0})
SMART = b'{"smart_status": {"passed": true}, "endurance_used": {"current_percent": 3}}'
DOCUMENTS: dict[str, tuple[Reader, bytes]] = {
    "usage": (lambda content: Usage.parse(content, "h1"), golden("usage-v2.json")),
    "usage 1": (lambda content: Usage.parse(content, "h1"), golden("usage-v1.json")),
    "tombstone": (lambda content: Tombstone.parse(NAME, Ref("t", content)), TOMBSTONE.encode()),
    "desired state": (
        lambda content: DesiredState.parse(content, "h1"),
        golden("desired-state-v1.json"),
    ),
    "withdrawals": (Rounds.parse, golden("withdrawals-v1.json")),
    "format": (Format.parse, REPOSITORY),
    "image": (
        lambda content: ImageRecord.parse(content, IMAGE),
        ImageRecord(NAME, NAME, "n", 7, 4096, 1, 1, 0, "raw", "t").encode(),
    ),
    "catalogue": (lambda content: Entry.parse(content, IMAGE), golden("image-registry-v1.json")),
    "working set of a large disk": (
        lambda content: WorkingSet.parse(content, IMAGE),
        golden("working-set-v2.json"),
    ),
    "working set": (
        lambda content: WorkingSet.parse(content, IMAGE),
        golden("working-set-v1.json"),
    ),
    "boot profile": (
        lambda content: BootProfile.parse(content, IMAGE),
        golden("boot-profile-v1.json"),
    ),
    "volume": (lambda content: VolumeRecord.parse(content, IMAGE), golden("volume-record-v1.json")),
    "snapshot": (
        lambda content: SnapshotRecord.parse(content, IMAGE),
        golden("snapshot-record-v1.json"),
    ),
    "version": (
        lambda content: VersionRecord.parse(content, IMAGE),
        golden("version-record-v1.json"),
    ),
    "decision": (Decision.parse, golden("decision-v1.json")),
    "ring term": (PublisherTerm.parse, golden("ring-term-v1.json")),
    "pins": (Pins.parse, golden("policy-pins-v1.json")),
    "traffic file": (traffic_file.parse, golden("instance-traffic-v1.json")),
    "links": (KnownLinks.parse, golden("image-links-v1.json")),
    "promises": (admitted_preload.decode, golden("admitted-preloads-v1.json")),
    "kept volume": (PersistedVolume.decode, golden("volume-kept-v2.json")),
    "kept standby": (PersistedStandby.decode, golden("volume-standby-v1.json")),
    "kept clean": (CleanProof.decode, golden("volume-clean-v1.json")),
    "reported": (Reported.parse, golden("working-set-reported-v1.json")),
    "reported of a large disk": (Reported.parse, golden("working-set-reported-v2.json")),
    "disk": (parse_report, SMART),
    "image service": (read_glance, GLANCE_IMAGE),
    "admin line": (protocol.decode_request, golden("admin-protocol-v1.jsonl").splitlines()[0]),
}
FILES: dict[str, tuple[Callable[[Directory, bytes], object], bytes]] = {
    "aside": (Directory.read_aside, golden("volume-aside-v1.json")),
    "attachments": (Directory.read_attachments, golden("dataplane-state-v1.json")),
    "placement": (Directory.read_attachments, golden("dataplane-placement-v1.json")),
    "journal": (Directory.read_journal, golden("policy-journal-v1.jsonl").splitlines()[0]),
}
TOLERANT = {"disk", "aside", "attachments", "placement"}
"""Readers that go on without what they cannot read."""


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its keys."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


def variants(document: bytes, value: bytes) -> Iterator[bytes]:
    """Yield the document with each of its values replaced by another, and that one alone."""
    yield value
    if not value:
        return
    whole = json.loads(document)
    for number in range(len(list(places(whole)))):
        changed = copy.deepcopy(whole)
        container, key = list(places(changed))[number]
        container[key] = MARK
        yield json.dumps(changed).encode().replace(json.dumps(MARK).encode(), value)


@pytest.fixture(params=[*DOCUMENTS, *FILES])
def reader(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> tuple[str, Reader, bytes]:
    name = request.param
    if name in DOCUMENTS:
        return name, *DOCUMENTS[name]
    read, document = FILES[name]
    return name, lambda content: read(Directory(tmp_path), content), document


def test_sound_document_is_read(reader: tuple[str, Reader, bytes]) -> None:
    _, read, document = reader
    assert read(document)


def test_no_document_ends_its_reader(reader: tuple[str, Reader, bytes]) -> None:
    name, read, document = reader
    for value in NO_JSON:
        for content in variants(document, value):
            if name == "journal":  # some of it looks like the torn line of a killed writer
                with contextlib.suppress(*EXPECTED):
                    read(content)
                continue
            if name in TOLERANT:
                read(content)
                continue
            with pytest.raises(EXPECTED):
                read(content)


def test_odd_value_is_refused_or_taken_but_never_a_fault(reader: tuple[str, Reader, bytes]) -> None:
    _, read, document = reader
    for value in ODD:
        for content in variants(document, value):
            with contextlib.suppress(*EXPECTED):
                read(content)


def test_message_of_another_host_with_a_number_that_no_float_holds_is_refused() -> None:
    for name in ("host-state-v1.json", "host-state-v1-full.json"):
        for value in (b"1" + b"0" * 400, b"NaN", b"Infinity", b"-1"):
            for content in variants(golden(name), value):
                with contextlib.suppress(*EXPECTED):
                    read_host_state(content)


def test_error_names_the_document() -> None:
    for content in NO_JSON:
        with pytest.raises(ValueError, match="the letter"):
            untrusted_json.load(content, "the letter")


def test_what_is_deep_but_not_too_deep_is_read() -> None:
    depth = untrusted_json.DEPTH_MAX
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        inner = b"1" if opening != b"[" else b""
        content = opening * depth + inner + closing * depth
        assert json.dumps(untrusted_json.load(content, "it"))
        with pytest.raises(ValueError, match="in one another"):
            untrusted_json.load(opening + content + closing, "it")


def test_document_is_read_wherever_the_stack_is() -> None:
    """A text that is just shallow enough for the decoder here is not for who looks at it later."""

    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
            return
        for content in NO_JSON:
            with pytest.raises(ValueError, match="it"):
                untrusted_json.load(content, "it")

    deeper(sys.getrecursionlimit() // 2)


def test_character_in_two_escapes_is_a_whole_one() -> None:
    assert untrusted_json.load(b'["\\ud83d\\ude00", "\\\\ud800"]', "it") == [
        "\U0001f600",
        "\\ud800",
    ]


@pytest.mark.parametrize("value", [True, None, "1", 1.0, -1, 11, 10**400])
def test_no_count(value: object) -> None:
    assert not untrusted_json.is_whole(value, 0, 10)
    with pytest.raises(ValueError, match="it is no whole number from 0 to 10"):
        untrusted_json.whole(value, "it", 0, 10)


@pytest.mark.parametrize(
    "value", [True, None, "1", -0.1, 10.1, float("nan"), float("inf"), 10**400]
)
def test_no_number(value: object) -> None:
    assert not untrusted_json.is_number(value, 0, 10)
    with pytest.raises(ValueError, match="it is no number from 0 to 10"):
        untrusted_json.number(value, "it", 0, 10)


def test_numbers_of_the_range() -> None:
    assert [untrusted_json.whole(value, "it", 0, 10) for value in (0, 10)] == [0, 10]
    assert [untrusted_json.number(value, "it", 0, 10) for value in (0, 2.5, 10)] == [0.0, 2.5, 10.0]

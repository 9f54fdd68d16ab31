"""A repository with one of everything, and the copies of it, for tests."""

import random
import uuid

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.copying.copier import Copier, CopySettings, Verify
from acstor.repository.copying.object_check import check_object
from acstor.repository.copying.report import CopyReport
from acstor.repository.copying.roots import open_end
from acstor.repository.copying.settled_volumes import Seal
from acstor.repository.repository import Repository
from acstor.repository.volumes import log_range
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import DiskState
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository.images import disk, image_id, open_repository, read_back, register
from tests.unit.repository.volumes.hosts import CHUNK_SIZE, SEAL, Owner, content_of

IN_USE, FOLDED, CLONE, SNAPSHOT = (str(uuid.UUID(int=number)) for number in range(100, 104))
IMAGES = {0: disk(1, 2, 3, 4, 5), 1: disk(4, 5, 6), 2: disk(7, 8)}
TEXTS = {IN_USE: "one two three four ", FOLDED: "five six "}
DAMAGED = b"rotten"
"""Content of a log object that is damaged; what others hold is any text in these tests."""
TRANSIENT = (
    "ring",
    "ring-generation",
    "ring-term",
    "decision",
    "withdrawals",
    "volume-bells/0123",
    f"volume-heads/{IN_USE}",
    layout.condemned_ref("ab" * 32),
)
"""Refs that no copy has."""
LASTING = (
    "policy-pins",
    "hosts/h1",
    f"catalogue/{image_id(0)}",
    f"working-sets/{image_id(0)}",
    f"boot-profiles/{image_id(0)}",
)
"""Refs that every copy has, and that name nothing."""


def check(key: str, content: memoryview, others: base.ObjectStore) -> None:
    """Compare an object with its name; log objects are any text but one."""
    if layout.parse_log_key(key) is None:
        check_object(key, content, others)
    elif bytes(content) == DAMAGED:
        raise exception.CorruptError(f"{key} is damaged")


def sealer_of(origin: base.Origin) -> Seal:
    """Return what seals the logs of these tests."""

    def seal(volume: str, epoch: int, first: int) -> tuple[int | None, int]:
        slot = first
        while True:
            key = layout.log_key(volume, epoch, slot)
            if origin.put_if_absent(key, [SEAL]) or origin.get(key, 100) == SEAL:
                break
            slot += 1
        return (slot - 1 if slot > first else None), slot

    return seal


def copier(source: base.Origin, destination: base.Origin, **settings: object) -> Copier:
    """Return a copier whose steps follow one another."""
    chosen = {"workers": 1, "verify": Verify.ALL, **settings}
    return Copier(
        Repository.open(source),
        destination,
        CopySettings(**chosen),  # type: ignore[arg-type]
        check=check,
        sealer_of=sealer_of,
        wait=lambda seconds: None,
    )


def copy(source: base.Origin, destination: base.Origin, **settings: object) -> CopyReport:
    """Copy a repository."""
    return copier(source, destination, **settings).copy()


class Cloud:
    """A repository in which a volume is in use, one is folded, and hosts have written refs."""

    def __init__(self, origin: base.Origin) -> None:
        self.origin = origin
        self.repository = open_repository(origin)
        self.store = VolumeStore(self.repository, wait=lambda seconds: None)
        for number in (0, 1):
            register(self.repository, number, IMAGES[number])
        self._make_withdrawn_image()
        folded = self.owner(FOLDED, "b")
        folded.write("five ")
        self.store.snapshot(FOLDED, SNAPSHOT, folded.push())
        folded.write("six ")
        folded.fold()
        folded.release()
        self._make_volume_in_use()
        for name in (*TRANSIENT, *LASTING):
            origin.swap_ref(name, None, b"any")

    def _make_withdrawn_image(self) -> None:
        """Leave an image to the host that has it attached."""
        register(self.repository, 2, IMAGES[2])
        record = self.repository.get_image(image_id(2)).record
        write_usage(self.origin, "h1", manifests={record.manifest: image_id(2)})
        self.repository.remove_image(image_id(2))
        self.withdrawn = record.manifest

    def _make_volume_in_use(self) -> None:
        """Leave a volume with a closed range, a seal and an open end, of which hosts know more."""
        first = self.owner(IN_USE, "a")
        first.write("one ")
        first.write("two ")
        self.store.advance(IN_USE, "a", first.epoch, first.following - 1)
        first.write("three ")
        self.writer = Owner(self.store, self.origin, IN_USE, "a", random.Random(8))
        self.writer.acquire()
        self.writer.write("four ")

    def owner(self, volume_id: str, host: str) -> Owner:
        """Return the owner of a new volume."""
        self.store.create(NewVolume(volume_id, CHUNK_SIZE))
        self.store.allow_host(volume_id, host)
        owner = Owner(self.store, self.origin, volume_id, host, random.Random(len(volume_id)))
        owner.acquire()
        return owner


def volume_text(origin: base.Origin, volume_id: str) -> str:
    """Return the content of a volume with what its owner pushed."""
    store = VolumeStore(Repository.open(origin), wait=lambda seconds: None)
    record = store.get(volume_id).record
    _, epoch, first = open_end(volume_id, record)
    last = first - 1
    key = layout.log_key(volume_id, epoch, first)
    while origin.exists(key) and origin.get(key, 100) != SEAL:
        last += 1
        key = layout.log_key(volume_id, epoch, last + 1)
    pushed = LogRange(volume_id, epoch, first, last) if last >= first else None
    logs = log_range.appended(record.logs, pushed)
    return content_of(origin, DiskState(record.manifest, logs))


def check_content(origin: base.Origin) -> None:
    """Compare everything in a copy of a cloud."""
    repository = Repository.open(origin)
    assert sorted(repository.list_image_ids()) == [image_id(0), image_id(1)]
    for number in (0, 1):
        assert read_back(repository, number) == IMAGES[number]
    for volume_id, text in TEXTS.items():
        assert volume_text(origin, volume_id) == text
    snapshot = VolumeStore(repository).get_snapshot(SNAPSHOT)
    assert content_of(origin, snapshot.record.disk) == "five "

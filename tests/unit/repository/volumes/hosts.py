"""A host that owns a volume, as far as the origin sees it; for tests."""

import random

from acstor import exception, native
from acstor.origin.base import Origin
from acstor.repository import layout
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.ownership import LogPosition
from acstor.repository.volumes.record import DiskState, VolumeRecord
from acstor.repository.volumes.store import PushedState, VolumeStore

CHUNK_SIZE = 4096
SEAL = b"seal"


class FencedOwnerError(Exception):
    """The owner found a seal where it wanted to store a log object."""


class Owner:
    """The protocol of an owner over a store; what a log object holds is any text.

    :param salt: where the salts of packs and manifests come from.
    """

    def __init__(
        self, store: VolumeStore, origin: Origin, volume_id: str, host: str, salt: random.Random
    ) -> None:
        self.store = store
        self.origin = origin
        self.volume_id = volume_id
        self.host = host
        self.salt = salt
        self.epoch = -1
        self.member: str | None = None
        self.following = 0
        self.size_bytes = 0

    def acquire(self) -> VolumeRecord:
        """Become the owner: take over and seal where that is necessary."""
        record = self.store.acquire(self.volume_id, self.host).after
        self.epoch, self.member = record.epoch, record.member
        if record.unsealed is not None:
            seal = record.next
            while not self._put_seal(record.unsealed, record.unsealed_member, seal):
                seal += 1
            record = self.store.record_takeover(
                self.volume_id, self.host, self.epoch, last=seal - 1, seal=seal
            ).after
        self.following = record.next
        self.size_bytes = record.size_bytes
        return record

    def _put_seal(self, epoch: int, member: str | None, sequence: int) -> bool:
        """Return whether there is a seal now; False when a log object was there."""
        key = layout.log_key(self.volume_id, epoch, sequence)
        log = self.origin.of_member(member)
        return log.put_if_absent(key, [SEAL]) or log.get(key, 1 << 20) == SEAL

    def write(self, content: str) -> int:
        """Store a log object; return its sequence number once it is acknowledged."""
        sequence = self.following
        key = layout.log_key(self.volume_id, self.epoch, sequence)
        if not self.origin.of_member(self.member).put_if_absent(key, [content.encode()]):
            raise FencedOwnerError(key)
        self.following += 1
        return sequence

    def push(self) -> PushedState:
        """Return what an owner answers to a push."""
        record = self.store.get(self.volume_id).record
        if (record.owner, record.epoch) != (self.host, self.epoch):
            raise exception.FencedError("not the owner any more")
        disk = record.pushed_disk(self.volume_id, self.following - 1)
        return PushedState(record.size_bytes, disk)

    def release(self) -> None:
        """Give the volume back."""
        last = self.following - 1
        self.store.release(self.volume_id, self.host, self.epoch, last)

    def fold(self) -> None:
        """Merge everything that was written into one more pack, and install its manifest.

        Its one chunk holds the text of the disk, so that :func:`content_of` finds it again.
        """
        disk = self.push().disk
        if not disk.logs:
            return
        packs, manifest, pack_content = packed(content_of(self.origin, disk), self.salt)
        self.announce(packs, manifest.digest)
        self.origin.put_if_absent(layout.pack_key(packs[0]), [pack_content])
        key = layout.manifest_key(manifest.digest)
        self.origin.put_if_absent(key, [manifest.to_bytes()])
        end = disk.logs[-1]
        at = LogPosition(end.volume, end.epoch, end.last)
        self.store.install_fold(self.volume_id, self.host, self.epoch, manifest.digest, at)

    def announce(self, packs: list[str], manifest: str) -> None:
        """Name what a fold will store."""
        self.store.announce_fold(
            self.volume_id, self.host, self.epoch, packs=packs, manifest=manifest
        )


def packed(text: str, salt: random.Random) -> tuple[list[str], native.Manifest, bytes]:
    """Return the pack and the manifest of a disk whose content is a text."""
    chunk = text.encode().ljust(CHUNK_SIZE, b"\n")
    assert len(chunk) == CHUNK_SIZE, "the model's disks have one chunk"
    pack_salt = salt.randbytes(16)
    digests = native.digest(chunk)
    pack = native.pack_id(digests, pack_salt)
    index = native.DigestIndex(CHUNK_SIZE)
    index.add_pack(pack, pack_salt, digests)
    builder = native.ImageBuilder(index)
    buffer = bytearray(chunk)
    builder.absorb(native.scan_buffer(buffer, CHUNK_SIZE), buffer)
    disk_id = f"{salt.getrandbits(32):08x}-0000-4000-8000-000000000000"
    manifest = builder.finish(disk_id, CHUNK_SIZE, salt.getrandbits(64))
    header = native.pack_header(CHUNK_SIZE, 1, pack_salt)
    content = bytes(header).ljust(4096, b"\0") + chunk + digests
    return [pack.hex()], manifest, content


def content_of(origin: Origin, disk: DiskState) -> str:
    """Return the text that a disk holds: its manifest's, and that of its log objects.

    :raises NotFoundError: when something is missing.
    """
    parts = []
    if disk.manifest is not None:
        content = origin.get(layout.manifest_key(disk.manifest), 1 << 20)
        entry = native.Manifest.parse(content).entry(0)
        assert entry is not None
        chunk = origin.get_range(layout.pack_key(entry[1].hex()), entry[2], CHUNK_SIZE)
        parts.append(chunk.decode().rstrip("\n"))
    for one in disk.logs:
        parts.extend(_texts(origin, one))
    return "".join(parts)


def _texts(origin: Origin, logs: LogRange) -> list[str]:
    sequences = range(logs.first, logs.last + 1)
    return [origin.get(logs.key(sequence), 1 << 20).decode() for sequence in sequences]

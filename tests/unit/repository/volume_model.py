"""A small cloud of volumes over one origin, and what has to be true of it whatever happens."""

import contextlib
import itertools
import random
import uuid
from collections.abc import Callable

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import NewVolume, PushedState, VolumeStore
from tests.unit.repository.volumes.hosts import (
    CHUNK_SIZE,
    SEAL,
    FencedOwnerError,
    Owner,
    content_of,
)

GONE = (exception.NotFoundError, exception.ConflictError, exception.FencedError, FencedOwnerError)
"""Errors that stop an actor whose turn is over."""


class PromiseError(AssertionError):
    """A promise that was broken."""


def uuid_of(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


SHARED, QUIET, COPY, LATER = (uuid_of(number) for number in range(4))
"""A volume that hosts fight for, one that nobody uses, a clone, and another that comes later."""
FIRST, SECOND, FRESH = (uuid_of(number) for number in range(10, 13))
"""Snapshots: of the shared volume, of the quiet one, and one that is taken meanwhile."""


class Cloud:
    """The actions, and what their callers were told."""

    def __init__(self, repository: Repository, salt: random.Random) -> None:
        self.repository = repository
        self.salt = salt
        self.texts: dict[str, set[str]] = {}
        """Volume or snapshot -> the contents that it may have; without an entry: any, or none."""
        self.acknowledged: dict[str, list[str]] = {"a": [], "b": []}
        self.pushed: tuple[PushedState, str] | None = None
        self.wrong: list[str] = []
        """Contents that a pushed state had, and that the writes contradict."""
        store = self.store(repository.origin)
        self._make(store, SHARED, "s0 s1 ")
        store.snapshot(SHARED, FIRST)
        self._make(store, QUIET, "q0 ")
        store.snapshot(QUIET, SECOND)
        self._make(store, QUIET, "q1 ", fold=True)
        self.texts = {FIRST: {"s0 s1 "}, QUIET: {"q0 q1 "}, SECOND: {"q0 "}}

    def store(self, origin: base.Origin) -> VolumeStore:
        return VolumeStore(Repository.open(origin), wait=lambda seconds: None)

    def owner(self, origin: base.Origin, volume_id: str, host: str) -> Owner:
        return Owner(self.store(origin), origin, volume_id, host, self.salt)

    def _make(self, store: VolumeStore, volume_id: str, text: str, *, fold: bool = False) -> None:
        if store.find(volume_id) is None:
            store.create(NewVolume(volume_id, CHUNK_SIZE))
        store.allow_host(volume_id, "a")
        owner = self.owner(self.repository.origin, volume_id, "a")
        owner.acquire()
        for word in text.split():
            owner.write(f"{word} ")
        if fold:
            owner.fold()
        owner.release()
        store.disallow_host(volume_id, "a")

    def actions(self, choice: random.Random) -> dict[str, Callable[[base.Origin], object]]:
        """Return everything that may be going on at once, by name."""
        return {
            "owner a": self.serve("a", choice.randint(3, 8), choice.randint(1, 6)),
            "owner b": self.serve("b", choice.randint(2, 5), choice.randint(1, 4)),
            "clone": self.clone,
            "snapshot": self.snapshot,
            "revert": self.revert,
            "restore": self.restore,
            "delete quiet": self.delete_quiet,
            "delete first": self.delete_first,
            "collect x": self.collect("x", choice.randint(2, 4)),
            "collect y": self.collect("y", choice.randint(2, 4)),
        }

    def serve(self, host: str, writes: int, fold_at: int) -> Callable[[base.Origin], object]:
        """Return the life of an owner of the shared volume; the other host is let go first."""

        def action(origin: base.Origin) -> None:
            store = self.store(origin)
            for other in {"a", "b"} - {host}:
                store.disallow_host(SHARED, other)
            with contextlib.suppress(*GONE):
                store.allow_host(SHARED, host)
                owner = self.owner(origin, SHARED, host)
                owner.acquire()
                for number in range(writes):
                    word = f"{host}{number} "
                    owner.write(word)
                    self.acknowledged[host].append(word)
                    written = {name: list(words) for name, words in self.acknowledged.items()}
                    pushed = self.push(owner)
                    with contextlib.suppress(exception.NotFoundError):
                        text = content_of(self.repository.origin, pushed.disk)
                        self._check_pushed(text, written)
                        self.pushed = (pushed, text)
                    if number == fold_at:
                        owner.fold()
                owner.release()

        return action

    @staticmethod
    def push(owner: Owner) -> PushedState:
        """Return what an owner answers to a push."""
        return owner.push()

    def clone(self, origin: base.Origin) -> None:
        """Clone the shared volume, as it was pushed or from its snapshot; write to the clone."""
        store = self.store(origin)
        for _ in range(3):
            with contextlib.suppress(*GONE):
                if self.pushed is None:
                    text = "s0 s1 "
                    store.create_from_snapshot(NewVolume(COPY, CHUNK_SIZE), FIRST)
                else:
                    pushed, text = self.pushed
                    store.clone(NewVolume(COPY, CHUNK_SIZE), SHARED, pushed)
                self.texts[COPY] = {text, f"{text}c0 "}
                store.allow_host(COPY, "c")
                owner = self.owner(origin, COPY, "c")
                owner.acquire()
                owner.write("c0 ")
                self.texts[COPY] = {f"{text}c0 "}
                owner.fold()
                owner.release()
                return

    def snapshot(self, origin: base.Origin) -> None:
        """Take a snapshot of the shared volume as it was pushed, or of the quiet one."""
        store = self.store(origin)
        for _ in range(3):
            with contextlib.suppress(*GONE):
                if self.pushed is None:
                    store.snapshot(QUIET, FRESH)
                    self.texts[FRESH] = {"q0 q1 ", "q0 "}
                else:
                    pushed, text = self.pushed
                    store.snapshot(SHARED, FRESH, pushed)
                    self.texts[FRESH] = {text}
                return

    def revert(self, origin: base.Origin) -> None:
        with contextlib.suppress(*GONE):
            if QUIET in self.texts:
                self.texts[QUIET] = {"q0 q1 ", "q0 "}
            self.store(origin).revert(QUIET, SECOND)
            if QUIET in self.texts:
                self.texts[QUIET] = {"q0 "}

    def restore(self, origin: base.Origin) -> None:
        """Make a volume of a snapshot, then delete the snapshot."""
        with contextlib.suppress(*GONE):
            store = self.store(origin)
            store.create_from_snapshot(NewVolume(LATER, CHUNK_SIZE), SECOND)
            self.texts[LATER] = {"q0 "}
            self.texts.pop(SECOND, None)
            store.delete_snapshot(SECOND)

    def delete_quiet(self, origin: base.Origin) -> None:
        self.texts.pop(QUIET, None)
        with contextlib.suppress(*GONE):
            self.store(origin).delete(QUIET)

    def delete_first(self, origin: base.Origin) -> None:
        self.texts.pop(FIRST, None)
        with contextlib.suppress(*GONE):
            self.store(origin).delete_snapshot(FIRST)

    def collect(self, host: str, count: int) -> Callable[[base.Origin], object]:
        def action(origin: base.Origin) -> None:
            collector = Collector(Repository.open(origin), host, 0.0, clock=lambda: 1.0)
            for _ in range(count):
                # Without any grace a clone may have been published of what was deleted an
                # instant before, and not yet be taken back; the collector refuses, which is safe.
                with contextlib.suppress(exception.CorruptError):
                    collector.collect()

        return action

    def _check_pushed(self, text: str, written: dict[str, list[str]]) -> None:
        """Compare a pushed state, which snapshots and clones are made of, with what was written."""
        try:
            self._check_words(text.split(), written)
        except AssertionError as error:
            self.wrong.append(f"a pushed state: {error}")

    # What has to be true

    def check(self, seed: int) -> None:
        """Check every promise now, and after further collections; then that nothing is left.

        :raises PromiseError: when one is broken.
        """
        if self.wrong:
            raise PromiseError(f"seed {seed}: {'; '.join(self.wrong)}")
        for _ in range(2):
            try:
                self._check_contents()
            except (exception.NotFoundError, AssertionError) as error:
                raise PromiseError(f"seed {seed}: {error}") from error
            self._remove_unpublished()
            for _ in range(4):
                Collector(self.repository, "w", 0.0, clock=lambda: 1.0).collect()
        left = self._unneeded()
        if left or list(self.repository.origin.list_refs("gc/")):
            raise PromiseError(f"seed {seed}: garbage is left: {left}")

    def _remove_unpublished(self) -> None:
        """Remove what killed callers left, whose content nobody was promised."""
        origin = self.repository.origin
        names = [layout.volume_ref(COPY), layout.volume_ref(LATER), layout.snapshot_ref(FRESH)]
        for name in names:
            ref = origin.get_ref(name)
            if ref is not None and name.rsplit("/", 1)[-1] not in self.texts:
                origin.swap_ref(name, ref.token, None)

    def _check_contents(self) -> None:
        origin = self.repository.origin
        for number, allowed in self.texts.items():
            volume = record_refs.find_volume(origin, number)
            snapshot = record_refs.find_snapshot(origin, number)
            assert volume or snapshot, f"{number} is gone"
            text = content_of(origin, snapshot.record.disk) if snapshot else self._text_of(number)
            assert text in allowed, f"{number} has {text!r}, not {sorted(allowed)}"
        self._check_words(self._text_of(SHARED).split(), self.acknowledged)

    @staticmethod
    def _check_words(words: list[str], written: dict[str, list[str]]) -> None:
        """Check what the volume has that two hosts fought for.

        Everything acknowledged is there, in order, and at most one more word of each host, whose
        acknowledgement was under way when it ended.
        """
        assert words[:2] == ["s0", "s1"], words
        rest = words[2:]
        for host, acknowledged in written.items():
            found = [word for word in rest if word.startswith(host)]
            wanted = [word.strip() for word in acknowledged]
            assert found[: len(wanted)] == wanted, f"{host} wrote {wanted}, found are {words}"
            assert len(found) <= len(wanted) + 1, f"{host} wrote {wanted}, found are {words}"
        owners = [word[0] for word in rest]
        changes = sum(one != other for one, other in itertools.pairwise(owners))
        assert changes <= 1, f"two owners at once: {words}"

    def _text_of(self, volume_id: str) -> str:
        """Return the content of a volume as the next owner would find it."""
        origin = self.repository.origin
        volume = record_refs.find_volume(origin, volume_id)
        assert volume is not None, f"{volume_id} is gone"
        record = volume.record
        text = content_of(origin, record.disk)
        epoch = record.epoch if record.unsealed is None else record.unsealed
        sequence = record.next
        while record.owner is not None:
            key = layout.log_key(volume_id, epoch, sequence)
            if not origin.exists(key) or origin.get(key, 1 << 20) == SEAL:
                break
            text += origin.get(key, 1 << 20).decode()
            sequence += 1
        return text

    def _unneeded(self) -> set[str]:
        """Return the keys of everything that no record says is needed."""
        origin = self.repository.origin
        disks = [(v.id, v.record, v.record.disk) for v in self.store(origin).list()]
        needed = {layout.FORMAT_KEY}
        for volume_id, record, _ in disks:
            for packs in [record.pending.packs] if record.pending else []:
                needed.update(map(layout.pack_key, packs))
            needed.update(self._open(volume_id, record))
        states = [state for _, record, state in disks] + [
            record.pending.disk for _, record, _ in disks if record.pending
        ]
        states += [snapshot.record.disk for snapshot in self.store(origin).list_snapshots()]
        for state in states:
            for logs in state.logs:
                needed.update(map(logs.key, range(logs.first, logs.last + 1)))
            if state.manifest is None:
                continue
            needed.add(layout.manifest_key(state.manifest))
            with contextlib.suppress(exception.NotFoundError):
                packs_of = self.repository.load_manifest(state.manifest).packs()
                needed.update(layout.pack_key(pack.hex()) for pack in packs_of)
        return set(origin.list()) - needed

    def _open(self, volume_id: str, record: VolumeRecord) -> set[str]:
        """Return the log objects that are in no closed range of a volume, but its own."""
        origin = self.repository.origin
        found = {layout.log_key(volume_id, *seal) for seal in record.seals}
        for epoch in {record.epoch, record.unsealed} - {None}:
            folder = LogRange(volume_id, epoch or 0, 0, 0).folder
            for key in origin.list(folder):
                parsed = layout.parse_log_key(key)
                if parsed is not None and parsed[2] >= record.next:
                    found.add(key)
        return found

"""Size, limits and durability of a volume that is open follow its record, whoever tells of it."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import INDEX_VERSION, Repository
from acstor.repository.upgrade import upgrade
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.memory_preloads import failure
from testbed.doubles.memory_volumes import MemoryVolume
from tests.unit.dataplane.stepped_hosts import SteppedHost
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME

OTHER = "7d1f0a4e-35c2-4b8e-9d60-b1a2c3d4e5f6"
THROUGH = Durability(DurabilityClass.WRITE_THROUGH)
BACK = Durability(DurabilityClass.WRITE_BACK)


@pytest.fixture
def owner(store: VolumeStore, origin: MemoryOrigin, path: pathlib.Path) -> SteppedHost:
    """h1, which serves a write-back volume."""
    store.set_durability(VOLUME, BACK)
    host = SteppedHost("h1", origin, path / "h1")
    host.volumes.opening.open(VOLUME, "owner")
    return host


def device(host: SteppedHost) -> MemoryVolume:
    assert host.device is not None
    return host.device


def kept(host: SteppedHost) -> PersistedVolume:
    found = host.volumes.files.find(VOLUME)
    assert found is not None
    return found


def restart(host: SteppedHost) -> None:
    """Have the process end and the next one resume, while the origin is away."""
    host.start()
    host.volumes.resuming.resume(VOLUME, None)


def change(store: VolumeStore) -> None:
    """Change the record of the volume, and tell nobody."""
    store.resize(VOLUME, 2 * SIZE)
    store.set_durability(VOLUME, THROUGH)
    store.describe(VOLUME, metadata={"iops": "100", "bytes_per_s": "5000"})


def settings(host: SteppedHost) -> tuple[int, tuple[int, int], Mapping[str, Any]]:
    one = device(host)
    return one.size_bytes, one.limits, one.durability


CHANGED = (2 * SIZE, (100, 5000), THROUGH.to_fields())


def test_owner_that_was_not_told_does_as_its_record_says(
    owner: SteppedHost, store: VolumeStore
) -> None:
    """A volume that is write-through to whoever reads its record loses nothing with its host."""
    change(store)
    owner.step()
    assert settings(owner) == CHANGED
    restart(owner)
    assert settings(owner) == CHANGED


def test_durability_that_cannot_be_changed_yet_is_tried_at_each_look(
    owner: SteppedHost, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(store)

    def is_busy(volume: str, durability: object) -> None:
        raise failure("unavailable", "the partition table is being written")

    with monkeypatch.context() as busy:
        busy.setattr(owner.runtime, "volume_set_durability", is_busy)
        owner.step()
        assert owner.is_served
        assert settings(owner) == (2 * SIZE, (100, 5000), BACK.to_fields())
    owner.step()
    assert settings(owner) == CHANGED


def test_setting_that_was_not_kept_is_set_again(
    owner: SteppedHost, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart would go back to what is kept."""
    change(store)

    def is_full(kept: PersistedVolume) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(owner.volumes.files, "change", is_full)
        owner.step()
        assert owner.is_served
        assert kept(owner).durability == BACK.to_fields()
    owner.step()
    assert (kept(owner).durability, kept(owner).size_bytes) == (THROUGH.to_fields(), 2 * SIZE)


def test_setting_that_the_record_took_back_is_taken_back(
    owner: SteppedHost, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that reached the runtime and not the disk is undone: the record's setting is kept
    again."""

    def is_full(kept: PersistedVolume) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(owner.volumes.files, "change", is_full)
        with pytest.raises(OSError, match="space"):
            owner.volumes.settings.set_limits(VOLUME, 1, 1)
    owner.step()
    assert device(owner).limits == (0, 0)


def test_call_that_comes_beside_a_look_counts(
    owner: SteppedHost, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that the pass has read is older than what the owner was told meanwhile."""
    store.describe(VOLUME, metadata={"iops": "100"})
    record = store.get(VOLUME).record
    store.describe(VOLUME, metadata={"iops": "200"})
    owner.volumes.settings.set_limits(VOLUME, 200, 0)
    monkeypatch.setattr(owner.volumes.owner, "record", lambda volume: record)
    owner.volumes.watching.watch(VOLUME)
    assert device(owner).limits == (200, 0)


def test_limit_that_can_be_none_limits_nothing(
    store: VolumeStore, origin: MemoryOrigin, path: pathlib.Path
) -> None:
    other = "c6a3a6c0-3f2b-4f6b-8f1c-6a6a35a7a0de"
    metadata = {"iops": str(1 << 70), "bytes_per_s": "9" * 15}
    store.create(NewVolume(other, SIZE, metadata=metadata))
    store.allow_host(other, "h1")
    host = SteppedHost("h1", origin, path / "h1")
    host.volumes.opening.open(other, "owner")
    assert host.runtime.volumes[other].limits == (0, 0)


def test_smaller_size_of_a_record_shrinks_nothing(owner: SteppedHost, store: VolumeStore) -> None:
    owner.volumes.settings.resize(VOLUME, 2 * SIZE)
    owner.step()
    assert owner.is_served
    assert device(owner).size_bytes == 2 * SIZE


def test_setting_that_changes_while_a_fold_is_installed_leaves_its_manifest(
    owner: SteppedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = owner.volumes
    install = volumes.owner.install_fold

    def install_late(*arguments: Any) -> Any:
        volumes.settings.set_limits(VOLUME, 7, 0)
        return install(*arguments)

    monkeypatch.setattr(volumes.owner, "install_fold", install_late)
    words = [device(owner).write(512)]
    volumes.pushes.push(VOLUME)
    assert volumes.folds.fold(VOLUME)["is_folded"]
    restart(owner)
    assert owner.is_served, "without the origin"
    assert (device(owner).words, device(owner).limits) == (words, (7, 0))
    found = list(pathlib.Path(volumes.files.directory(VOLUME)).glob("*.manifest"))
    assert [path.stem for path in found] == [kept(owner).manifest]


def test_fold_names_new_chunks_in_the_scope_of_the_record(
    owner: SteppedHost, store: VolumeStore
) -> None:
    for scope in ("a project", "another one", None):
        store.set_dedup_scope(VOLUME, scope)
        device(owner).write(512)
        owner.volumes.pushes.push(VOLUME)
        assert owner.volumes.folds.fold(VOLUME)["is_folded"]
        assert device(owner).fold_scope == scope


def test_first_manifest_is_of_the_version_that_the_repository_has_by_then(
    path: pathlib.Path,
) -> None:
    """And each later one of that of the first, whatever becomes of the repository."""
    origin = MemoryOrigin()
    store = VolumeStore(Repository.init(origin, version=INDEX_VERSION))
    hosts = {}
    for volume in (VOLUME, OTHER):
        store.create(NewVolume(volume, SIZE, BACK))
        store.allow_host(volume, "h1")
        hosts[volume] = SteppedHost("h1", origin, path / volume)
        hosts[volume].volumes.opening.open(volume, "owner")

    def is_first_paged(volume: str) -> bool | None:
        found = hosts[volume].runtime.volumes[volume]
        found.write(512)
        hosts[volume].volumes.pushes.push(volume)
        assert hosts[volume].volumes.folds.fold(volume)["is_folded"]
        return found.is_fold_paged

    assert is_first_paged(VOLUME) is False
    upgrade(origin)
    assert is_first_paged(VOLUME) is False, "it has a manifest"
    assert is_first_paged(OTHER) is True

"""Manifests below a volume: all that a delta needs is fetched, kept, and removed when it is not."""

import dataclasses
import json
import os
import pathlib

import pytest

from acstor import exception, native
from acstor.dataplane.volumes import manifest_levels
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.persisted_volume import PersistedVolume

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
KINDS = ("delta", "dense")
CONTENT = {kind: (GOLDEN / f"manifest-v2-{kind}.bin").read_bytes() for kind in KINDS}
NAMES = json.loads((GOLDEN / "manifest-v2.json").read_text())
DELTA, WHOLE = (NAMES[kind]["name"] for kind in KINDS)
LEVELS = {DELTA: CONTENT["delta"], WHOLE: CONTENT["dense"]}
VOLUME = "c6a3a6c0-3f2b-4f6b-8f1c-6a6a35a7a0de"
KEPT = PersistedVolume(
    volume=VOLUME,
    epoch=2,
    next=1,
    size_bytes=1 << 20,
    manifest=DELTA,
    logs=[],
    durability={"class": "write-through"},
    iops=0,
    bytes_per_s=0,
)


def get(name: str) -> bytes:
    try:
        return LEVELS[name]
    except KeyError as error:
        raise exception.NotFoundError(name) from error


def test_all_that_a_delta_needs_is_fetched() -> None:
    assert list(manifest_levels.fetch(get, DELTA).items()) == list(LEVELS.items())
    assert list(manifest_levels.fetch(get, WHOLE)) == [WHOLE]


def test_manifest_of_version_1_needs_no_other() -> None:
    content = (GOLDEN / "manifest-v1.bin").read_bytes()
    name = native.digest(content).hex()
    assert manifest_levels.fetch(lambda _: content, name) == {name: content}


@pytest.mark.parametrize("name", LEVELS)
def test_damaged_level_is_told(name: str) -> None:
    damaged = bytearray(LEVELS[name])
    damaged[-100] ^= 1
    levels = LEVELS | {name: bytes(damaged)}
    with pytest.raises(exception.CorruptError):
        manifest_levels.fetch(lambda wanted: levels[wanted], DELTA)


def test_delta_without_end_is_refused() -> None:
    with pytest.raises(exception.CorruptError, match="too many"):
        manifest_levels.fetch(EndlessDeltas(), DELTA)


class EndlessDeltas:
    """An origin in which whatever is asked for is a delta."""

    def __call__(self, name: str) -> bytes:
        return CONTENT["delta"]


def test_missing_or_malformed_base_is_told(tmp_path: pathlib.Path) -> None:
    def there() -> list[str] | None:
        return manifest_levels.names_in(str(tmp_path), DELTA)

    path = tmp_path / manifest_levels.file_name(WHOLE)
    assert there() is None
    (tmp_path / manifest_levels.file_name(DELTA)).write_bytes(CONTENT["delta"])
    assert there() is None
    path.write_bytes(CONTENT["dense"])
    assert there() == [DELTA, WHOLE]
    path.write_bytes(CONTENT["dense"][:-1])
    assert there() is None


def test_base_stays_as_long_as_a_delta_needs_it(tmp_path: pathlib.Path) -> None:
    files = VolumeFiles(str(tmp_path))
    files.make(VOLUME)
    files.keep(KEPT, LEVELS)
    assert files.has_manifest(KEPT)
    files.keep(KEPT)
    assert manifests(files) == {DELTA, WHOLE}
    folded = dataclasses.replace(KEPT, manifest=WHOLE)
    files.keep(folded)
    assert manifests(files) == {WHOLE}
    assert files.has_manifest(folded)
    assert not files.has_manifest(KEPT)


def manifests(files: VolumeFiles) -> set[str]:
    names = os.listdir(files.directory(VOLUME))
    return {name.removesuffix(".manifest") for name in names if name.endswith(".manifest")}

"""Volumes of images without a copy: only of those whose records are signed as they have to be."""

import pathlib
from collections.abc import Callable
from unittest import mock

import pytest

from acstor.drivers.cinder.back_end import BackEnd, OriginSettings, origin_settings
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.record_writer import SignedRecords
from acstor.repository.repository import Repository
from testbed.doubles.volume_hosts import MemoryVolumeHosts
from testbed.fixtures.cinder_driver import DriverHarness
from tests.unit.repository.signing.keys import install, private, trusted

CONTENT = bytes(range(256)) * 512


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> pathlib.Path:
    install(tmp_path / "keys", 0)
    return tmp_path / "keys"


@pytest.fixture
def back_end(
    origin: MemoryOrigin, repository: Repository, hosts: MemoryVolumeHosts, keys: pathlib.Path
) -> BackEnd:
    settings = OriginSettings("memory:", 1.0, public_keys=str(keys), require_signatures=True)
    return BackEnd(settings, origin, hosts)


def is_cloned(harness: DriverHarness, image_id: str) -> bool:
    meta = {"id": image_id}
    return bool(harness.driver.clone_image(harness.context, harness.volume(), None, meta, None)[1])


def rewritten(
    harness: DriverHarness, image_id: str, change: Callable[[ImageRecord], bytes]
) -> None:
    repository = harness.back_end.repository
    image = repository.get_image(image_id)
    repository.origin.swap_ref(layout.image_ref(image_id), image.token, change(image.record))


def signed_by(harness: DriverHarness, image_id: str, number: int) -> Callable[[ImageRecord], bytes]:
    records = SignedRecords(private(number), trusted())
    return lambda record: records.encode(harness.back_end.repository, image_id, record, None)


def test_signed_image_is_cloned_and_others_are_copied(
    harness: DriverHarness, keys: pathlib.Path
) -> None:
    image_id = harness.image(CONTENT)
    assert not is_cloned(harness, image_id), "it is not signed"
    rewritten(harness, image_id, signed_by(harness, image_id, 0))
    assert is_cloned(harness, image_id)
    install(keys, 1)
    assert not is_cloned(harness, image_id), "its key was taken out"
    install(keys, 0, 1)
    assert is_cloned(harness, image_id)
    rewritten(harness, image_id, signed_by(harness, image_id, 7))
    assert not is_cloned(harness, image_id)


@pytest.mark.parametrize(
    ("own", "of_conf", "expected"),
    [
        (None, "", ("/etc/acstor/image-keys", False)),
        (None, "require_signatures = true\npublic_keys = /k\n", ("/k", True)),
        (False, "require_signatures = true\n", ("/etc/acstor/image-keys", False)),
        (True, "", ("/etc/acstor/image-keys", True)),
    ],
)
def test_what_is_required_is_said_by_the_back_end_or_acstor_conf(
    tmp_path: pathlib.Path, own: bool | None, of_conf: str, expected: tuple[str, bool]
) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[origin]\nurl = posix:///srv/x\n[repository]\n{of_conf}")
    configuration = mock.Mock()
    options: dict[str, object] = {"acstor_conf": str(path), "acstor_require_signatures": own}
    configuration.safe_get = options.get
    found = origin_settings(configuration)
    assert (found.public_keys, found.require_signatures) == expected
    options |= {"acstor_origin_url": "posix:///srv/y", "acstor_origin_timeout": 1.0}
    options |= {"acstor_public_keys": "/own"}
    found = origin_settings(configuration)
    assert (found.public_keys, found.require_signatures) == ("/own", bool(own))

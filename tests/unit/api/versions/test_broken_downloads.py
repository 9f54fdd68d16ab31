"""Downloads that end early: clients that go, an origin that is slow, a full temporary directory."""

import contextlib
from collections.abc import Iterator
from typing import Any

import falcon.testing
import pytest

from acstor import exception
from acstor.api.version_browsing import FileStream
from acstor.repository.reading import image_files
from acstor.repository.reading.disk_reader import DiskReader
from testbed.fixtures.api_callers import first_error
from tests.unit.api.setting import Setting
from tests.unit.repository.images import image_id, register
from tests.unit.repository.volumes import log_objects

FILES = ("files/content?path=/etc/deep/large", "files/archive?path=/etc")
LONG = (*FILES, "data?format=raw")


@pytest.fixture
def version(api: Setting, ext4_disk: bytes) -> str:
    """Return the path of a version whose disk has a few files."""
    return add_version(api, ext4_disk)


def add_version(api: Setting, disk: bytes, **fields: Any) -> str:
    """Return the path of a version of a disk."""
    register(api.versions.repository, 0, disk)
    manifest = api.versions.repository.get_image(image_id(0)).record.manifest
    return f"/v1/versions/{api.add_version(manifest=manifest, size_bytes=len(disk), **fields)}"


def begun(api: Setting, path: str) -> Any:
    """Return the body of an answer as a WSGI server gets it, with its first part taken."""
    path, _, query = path.partition("?")
    environ = falcon.testing.create_environ(
        path=path, query_string=query, headers=api.member.headers
    )
    environ["openstack.request_id"] = "req-11111111-2222-4333-8444-555555555555"
    said: list[str] = []
    body: Any = api.app(environ, lambda status, headers, error=None: said.append(status))
    assert said == ["200 OK"]
    assert next(body)
    return body


def is_free(api: Setting, version: str) -> bool:
    """Return whether the project may begin a download: of its places one is taken at most."""
    status = api.member.get(f"{version}/{FILES[0]}").status_code
    assert status in (200, 503)
    return status == 200


@contextlib.contextmanager
def watched(body: Any) -> Iterator[None]:
    """Have the process that reads the files, where there is one, be gone at the end."""
    process = body._opened._session._process if isinstance(body, FileStream) else None
    assert process is None or process.poll() is None
    yield
    assert process is None or process.returncode is not None


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a disk be sent in many pieces."""
    monkeypatch.setattr(image_files, "PIECE_SIZE", 1 << 16)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("path", LONG)
def test_client_that_goes_gives_its_place_back(api: Setting, version: str, path: str) -> None:
    body = begun(api, f"{version}/{path}")
    with watched(body):
        assert not is_free(api, version)
        body.close()
    assert is_free(api, version)
    body.close()
    assert is_free(api, version)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("path", LONG)
def test_origin_that_is_late_breaks_off_and_gives_the_place_back(
    api: Setting, version: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = begun(api, f"{version}/{path}")

    def late(*_: object) -> bytes:
        raise exception.DeadlineError("the origin does not answer")

    with watched(body), monkeypatch.context() as patch:
        patch.setattr(DiskReader, "read", late)
        with pytest.raises(exception.DeadlineError, match="the origin does not answer"):
            list(body)
    assert is_free(api, version)


@pytest.mark.parametrize("path", FILES)
def test_download_that_takes_too_long_in_all_gives_the_place_back(
    api: Setting, version: str, path: str
) -> None:
    body = begun(api, f"{version}/{path}")
    with watched(body):
        body._opened._session._frames._until = 0.0
        with pytest.raises(exception.DeadlineError, match="took too long"):
            list(body)
    assert is_free(api, version)


def test_full_temporary_directory_is_told_and_gives_the_places_back(
    api: Setting, ext4_disk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = add_version(api, ext4_disk, logs=log_objects.pushed(api.origin))
    with monkeypatch.context() as patch:
        log_objects.fill_temporary_directory(patch)
        for path in ("partitions", "files?path=/", *LONG):
            answer = api.member.get(f"{version}/{path}")
            assert answer.status_code == 507, path
            assert "temporary directory" in first_error(answer)["hint"]
    assert api.member.get(f"{version}/partitions").status_code == 200
    assert api.member.get(f"{version}/data?format=raw").status_code == 200

"""Images that Glance has in RBD: read from there where that can be, downloaded where not."""

import logging
import pathlib
import random
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.origin.rados import binding
from acstor.origin.rados.connection import Connection
from acstor.registrar import assembly
from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.image_service.faulty import FaultyImageService, Operation
from acstor.registrar.image_service.memory import MemoryImageService
from acstor.registrar.registration import child_messages
from acstor.registrar.registration.child_messages import Order
from acstor.registrar.registration.download import DownloadSettings
from acstor.registrar.registration.file_registration import (
    FileSettings,
    ImageFile,
    InProcess,
    NotInRbdError,
)
from acstor.registrar.registration.job import ImageJob, JobSettings, Outcome, OutcomeKind
from acstor.repository.images import registration
from acstor.repository.repository import Repository
from acstor.repository.source.rbd import faulty
from acstor.repository.source.rbd.base import BlockSnapshot
from acstor.repository.source.rbd.location import RbdLocation
from acstor.repository.source.rbd.memory import MemorySnapshot
from testbed.doubles.registrar_cloud import CHUNK_SIZE, Cloud, describe

IMAGE_ID = "00000000-0000-4000-8000-000000000001"
FSID = "11111111-0000-4000-8000-000000000000"
URL = f"rbd://{FSID}/images/{IMAGE_ID}/snap"
LOCATION = RbdLocation(FSID, "images", IMAGE_ID, "snap")
CLIENT = Connection("/etc/ceph/ceph.conf", "glance", 10.0)
SIZE = 1 << 20
DATA = 2 * CHUNK_SIZE
CONTENT = random.Random(1).randbytes(DATA) + bytes(SIZE - DATA)

Open = Callable[[Connection, RbdLocation], BlockSnapshot]


class Rbd:
    """Opens one snapshot in memory, or fails."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.snapshot = faulty.FaultySnapshot(MemorySnapshot(content, [(0, DATA)]))
        self.opened: list[tuple[Connection, RbdLocation]] = []
        self.error: exception.AcstorError | None = None

    def __call__(self, connection: Connection, location: RbdLocation) -> BlockSnapshot:
        self.opened.append((connection, location))
        if self.error is not None:
            raise self.error
        return self.snapshot


@pytest.fixture
def service() -> FaultyImageService:
    inner = MemoryImageService()
    inner.put(describe(IMAGE_ID, CONTENT), CONTENT)
    return FaultyImageService(inner)


@pytest.fixture
def rbd() -> Rbd:
    return Rbd()


@pytest.fixture
def run(
    service: FaultyImageService, tmp_path: pathlib.Path
) -> Callable[[ServiceImage, Rbd], Outcome]:
    repository = Repository.init(MemoryOrigin(), CHUNK_SIZE)
    (tmp_path / "store").mkdir()

    def run_job(image: ServiceImage, rbd: Rbd) -> Outcome:
        settings = JobSettings(
            download=DownloadSettings(str(tmp_path / "spool"), attempts_max=1),
            file=FileSettings(registration.Settings(pack_size=1 << 20, workers=0), rbd=CLIENT),
            file_registrar=InProcess(open_snapshot=rbd),
            datadir=str(tmp_path / "store"),
            rbd_pools=("images",),
        )
        return ImageJob(service, repository, image, settings).run()

    return run_job


Run = Callable[[ServiceImage, Rbd], Outcome]


def in_rbd(**fields: object) -> ServiceImage:
    return describe(IMAGE_ID, CONTENT, **{"locations": (URL,), **fields})


def test_raw_image_is_read_from_rbd(run: Run, rbd: Rbd, service: FaultyImageService) -> None:
    outcome = run(in_rbd(), rbd)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REGISTERED, "")
    assert outcome.downloaded_bytes == 0
    assert service.calls[Operation.OPEN] == 0
    assert rbd.opened == [(CLIENT, LOCATION)]
    # Its beginning for the inspection, and its data.
    assert rbd.snapshot.bytes_read <= (1 << 20) + (64 << 10)
    assert rbd.snapshot.is_closed


def test_image_of_other_content_in_rbd_is_corrupt(run: Run) -> None:
    other = Rbd(random.Random(2).randbytes(DATA) + bytes(SIZE - DATA))
    assert run(in_rbd(), other).kind is OutcomeKind.CORRUPT


def test_file_of_the_store_comes_first(run: Run, rbd: Rbd, tmp_path: pathlib.Path) -> None:
    (tmp_path / "store" / IMAGE_ID).write_bytes(CONTENT)
    outcome = run(in_rbd(), rbd)
    assert (outcome.kind, outcome.downloaded_bytes) == (OutcomeKind.REGISTERED, 0)
    assert rbd.opened == []


@pytest.mark.parametrize(
    "fields",
    [
        {"locations": ()},
        {"locations": (URL.replace("images", "volumes"),)},
        {"locations": (URL.replace("0001/", "0002/"),)},
        {"disk_format": "qcow2"},
    ],
)
def test_image_elsewhere_is_downloaded(run: Run, rbd: Rbd, fields: dict[str, object]) -> None:
    outcome = run(in_rbd(**fields), rbd)
    assert outcome.downloaded_bytes == SIZE
    assert rbd.opened == []


@pytest.mark.parametrize(
    "error",
    [
        exception.UnavailableError("no cluster"),
        exception.InvalidError("no key"),
        exception.NotFoundError("no image"),
        exception.UnsupportedError("no binding"),
    ],
)
def test_image_that_cannot_be_opened_in_rbd_is_downloaded(
    run: Run, rbd: Rbd, error: exception.AcstorError, caplog: pytest.LogCaptureFixture
) -> None:
    rbd.error = error
    with caplog.at_level(logging.WARNING):
        outcome = run(in_rbd(), rbd)
    assert (outcome.kind, outcome.downloaded_bytes) == (OutcomeKind.REGISTERED, SIZE)
    assert error.message in caplog.text
    assert error.hint in caplog.text


def test_snapshot_of_another_size_is_not_taken(run: Run) -> None:
    other = Rbd(CONTENT + bytes(CHUNK_SIZE))
    outcome = run(in_rbd(), other)
    assert (outcome.kind, outcome.downloaded_bytes) == (OutcomeKind.REGISTERED, SIZE)
    assert other.snapshot.is_closed


def test_failing_read_is_tried_again_later(run: Run, rbd: Rbd) -> None:
    rbd.snapshot.faults = [faulty.Fault(faulty.Operation.LIST, faulty.Effect.ERROR)]
    outcome = run(in_rbd(), rbd)
    assert (outcome.kind, outcome.downloaded_bytes) == (OutcomeKind.FAILED, 0)


def test_order_takes_the_location_to_the_child() -> None:
    file = ImageFile(IMAGE_ID, "name", "", "raw", rbd=LOCATION, size_bytes=SIZE)
    order = Order(
        "posix:///x", 1.0, "id", 1, file, FileSettings(registration.Settings(), rbd=CLIENT)
    )
    assert Order.parse(order.encode()) == order
    plain = Order(
        "posix:///x", 1.0, "id", 1, ImageFile(IMAGE_ID, "name", "/p", "raw"),
        FileSettings(registration.Settings()),
    )  # fmt: skip
    assert Order.parse(plain.encode()) == plain


def test_error_of_the_child_keeps_its_kind() -> None:
    line = child_messages.encode_error(NotInRbdError("text", hint="hint"))
    found = child_messages.error_of(child_messages.decode(line)["error"])
    assert isinstance(found, NotInRbdError)


def test_client_is_configured(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "load", lambda name: None)
    assert assembly.job_settings(cloud.conf, InProcess()).rbd_pools == ()
    cloud.conf.set_override("rbd_user", "glance", "registrar")
    settings = assembly.job_settings(cloud.conf, InProcess())
    assert settings.rbd_pools == ("images",)
    assert settings.file.rbd == CLIENT


def test_missing_binding_turns_it_off_and_says_so(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def absent(name: str) -> None:
        raise exception.UnsupportedError("no librbd", hint="install the package python3-rbd")

    monkeypatch.setattr(binding, "load", absent)
    cloud.conf.set_override("rbd_user", "glance", "registrar")
    settings = assembly.job_settings(cloud.conf, InProcess())
    assert (settings.rbd_pools, settings.file.rbd) == ((), None)
    assert "install the package python3-rbd" in caplog.text

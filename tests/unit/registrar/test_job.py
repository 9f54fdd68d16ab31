"""One registration: from the file store or the image service to an outcome."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Protocol

import pytest

from acstor import exception
from acstor.origin import faulty as faulty_origin
from acstor.origin.faulty import FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.image_service.faulty import Effect, Fault, FaultyImageService, Operation
from acstor.registrar.image_service.memory import MemoryImageService
from acstor.registrar.registration.download import DownloadSettings
from acstor.registrar.registration.file_registration import FileSettings, InProcess
from acstor.registrar.registration.job import ImageJob, JobSettings, Outcome, OutcomeKind
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.images import registration
from acstor.repository.repository import Repository
from testbed.doubles.registrar_cloud import CHUNK_SIZE, content_of, describe

IMAGE_ID = "00000000-0000-4000-8000-000000000001"
CONTENT = content_of(1)

Run = Callable[[ServiceImage], Outcome]


class Make(Protocol):
    """Makes the job of an image."""

    def __call__(self, image: ServiceImage, scope: DedupScope = DedupScope.CLOUD) -> ImageJob: ...


@pytest.fixture
def service() -> FaultyImageService:
    inner = MemoryImageService()
    inner.put(describe(IMAGE_ID, CONTENT), CONTENT)
    return FaultyImageService(inner)


@pytest.fixture
def origin() -> FaultyOrigin:
    return FaultyOrigin(MemoryOrigin())


@pytest.fixture
def repository(origin: FaultyOrigin) -> Repository:
    return Repository.init(origin, CHUNK_SIZE)


@pytest.fixture
def make(service: FaultyImageService, repository: Repository, tmp_path: pathlib.Path) -> Make:
    settings = JobSettings(
        download=DownloadSettings(str(tmp_path / "spool"), attempts_max=1),
        file=FileSettings(registration.Settings(pack_size=1 << 20, workers=0)),
        file_registrar=InProcess(),
        datadir=str(tmp_path / "store"),
    )
    (tmp_path / "store").mkdir()

    def make_job(image: ServiceImage, scope: DedupScope = DedupScope.CLOUD) -> ImageJob:
        return ImageJob(
            service, repository, image, dataclasses.replace(settings, dedup_scope=scope)
        )

    return make_job


@pytest.fixture
def run(make: Make) -> Run:
    return lambda image: make(image).run()


def test_image_is_downloaded_where_the_store_does_not_have_it(run: Run) -> None:
    outcome = run(describe(IMAGE_ID, CONTENT))
    assert (outcome.kind, outcome.downloaded_bytes) == (OutcomeKind.REGISTERED, len(CONTENT))
    assert outcome.report is not None
    assert outcome.report.size_bytes == len(CONTENT)


def test_image_is_read_from_the_store_and_verified(
    run: Run, service: FaultyImageService, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "store" / IMAGE_ID).write_bytes(CONTENT)
    outcome = run(describe(IMAGE_ID, CONTENT))
    assert (outcome.kind, outcome.downloaded_bytes) == (OutcomeKind.REGISTERED, 0)
    assert service.calls[Operation.OPEN] == 0


def test_wrong_file_in_the_store_is_corrupt(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "store" / IMAGE_ID).write_bytes(content_of(2))
    outcome = run(describe(IMAGE_ID, CONTENT))
    assert outcome.kind is OutcomeKind.CORRUPT
    assert "the file has sha512" in outcome.reason


def test_md5_is_verified_where_that_is_all_there_is(run: Run) -> None:
    image = describe(IMAGE_ID, CONTENT, hash_algorithm=None, hash_value=None)
    assert run(image).kind is OutcomeKind.REGISTERED
    assert run(describe(IMAGE_ID, CONTENT, hash_algorithm=None, md5="0" * 32)).kind is (
        OutcomeKind.CORRUPT
    )


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (Fault(Operation.OPEN, Effect.ERROR), OutcomeKind.FAILED, "failed on purpose"),
        (
            Fault(Operation.OPEN, Effect.ERROR, error=exception.InvalidError),
            OutcomeKind.FAILED,
            "failed on purpose",
        ),
        (Fault(Operation.READ, Effect.END), OutcomeKind.FAILED, "end after 0 of"),
        (Fault(Operation.READ, Effect.CORRUPTION, call=1), OutcomeKind.CORRUPT, "sha512"),
    ],
)
def test_failure_has_its_kind_and_reason(
    run: Run, service: FaultyImageService, fault: Fault, kind: OutcomeKind, reason: str
) -> None:
    service.faults = [fault]
    outcome = run(describe(IMAGE_ID, CONTENT))
    assert outcome.kind is kind
    assert reason in outcome.reason


def test_programming_error_is_an_outcome_too(run: Run, service: FaultyImageService) -> None:
    def break_down() -> None:
        raise ZeroDivisionError("a fault of the program")

    service.faults = [Fault(Operation.OPEN, Effect.ACTION, action=break_down)]
    outcome = run(describe(IMAGE_ID, CONTENT))
    assert (outcome.kind, outcome.reason) == (
        OutcomeKind.FAILED, "ZeroDivisionError: a fault of the program",
    )  # fmt: skip


def test_image_that_is_gone_cancels_itself(run: Run) -> None:
    missing = describe("00000000-0000-4000-8000-000000000002", CONTENT)
    assert run(missing).kind is OutcomeKind.CANCELLED


def test_origin_away_is_a_failure_that_may_pass(run: Run, origin: FaultyOrigin) -> None:
    origin.faults = [faulty_origin.Fault(faulty_origin.Operation.PUT, faulty_origin.Effect.ERROR)]
    outcome = run(describe(IMAGE_ID, CONTENT))
    assert outcome.kind is OutcomeKind.FAILED


def test_registrar_that_does_not_lead_any_more_goes_no_further(
    service: FaultyImageService, repository: Repository, tmp_path: pathlib.Path
) -> None:
    settings = JobSettings(
        DownloadSettings(str(tmp_path / "spool")),
        FileSettings(registration.Settings(workers=0)),
        InProcess(),
    )
    image = describe(IMAGE_ID, CONTENT)
    outcome = ImageJob(service, repository, image, settings, is_wanted=lambda: False).run()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.CANCELLED, "another registrar leads")
    assert service.calls[Operation.OPEN] == 0


def test_cancelled_before_it_publishes_leaves_no_image(
    make: Make, origin: FaultyOrigin, repository: Repository
) -> None:
    """The last moment: all chunks are stored, the manifest too."""
    job = make(describe(IMAGE_ID, CONTENT))
    put = origin.put_if_absent

    def put_and_cancel(key: str, buffers: object) -> bool:
        if key.startswith("manifests/"):
            job.cancel("deleted in Glance")
        return put(key, buffers)  # type: ignore[arg-type]

    origin.put_if_absent = put_and_cancel  # type: ignore[method-assign]
    outcome = job.run()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.CANCELLED, "deleted in Glance")
    assert list(repository.list_image_ids()) == []


def test_qcow2_is_registered_as_the_disk_in_it(
    run: Run, service: FaultyImageService, repository: Repository, tmp_path: pathlib.Path
) -> None:
    import subprocess

    raw, qcow2 = tmp_path / "raw", tmp_path / "qcow2"
    raw.write_bytes(content_of(5, 1 << 20))
    subprocess.run(
        ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(qcow2)],
        check=True, timeout=60,
    )  # fmt: skip
    content = qcow2.read_bytes()
    image = describe(IMAGE_ID, content, disk_format="qcow2")
    service._inner.put(image, content)  # type: ignore[attr-defined]
    assert run(image).kind is OutcomeKind.REGISTERED
    assert repository.get_image(IMAGE_ID).record.size_bytes == 1 << 20


def test_backing_file_is_left_to_nova(
    run: Run, service: FaultyImageService, tmp_path: pathlib.Path
) -> None:
    import subprocess

    raw, qcow2 = tmp_path / "raw", tmp_path / "qcow2"
    raw.write_bytes(bytes(1 << 20))
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(raw), str(qcow2)],
        check=True, timeout=60,
    )  # fmt: skip
    content = qcow2.read_bytes()
    image = describe(IMAGE_ID, content, disk_format="qcow2")
    service._inner.put(image, content)  # type: ignore[attr-defined]
    outcome = run(image)
    assert outcome.kind is OutcomeKind.LEFT
    assert "backing_file" in outcome.reason
    assert str(tmp_path) not in outcome.reason


def test_disk_that_is_too_large_is_left_to_nova(
    run: Run, service: FaultyImageService, tmp_path: pathlib.Path
) -> None:
    """Of chunks of 4 KiB a manifest has at most as many as 4 TiB have."""
    import subprocess

    qcow2 = tmp_path / "qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", str(qcow2), "5T"], check=True, timeout=60
    )
    content = qcow2.read_bytes()
    image = describe(IMAGE_ID, content, disk_format="qcow2")
    service._inner.put(image, content)  # type: ignore[attr-defined]
    outcome = run(image)
    assert outcome.kind is OutcomeKind.LEFT
    assert f"more than the {4 << 40} that a manifest can have" in outcome.reason
    assert str(tmp_path) not in outcome.reason


ONE, OTHER = "0f9d8c7b6a594837a6b5c4d3e2f10918", "e2b5a1c07f3d4c9a8b6e5d4c3b2a1908"


@pytest.mark.parametrize(
    ("fields", "scope"),
    [
        ({"owner": ONE}, ONE),
        ({"owner": ONE, "visibility": "shared"}, ONE),
        ({"owner": ONE, "visibility": "community"}, ONE),
        ({"owner": ONE, "visibility": "public"}, None),
        ({"owner": ""}, f"none:{IMAGE_ID}"),
        ({"owner": "", "visibility": "public"}, None),
    ],
)
def test_chunks_have_the_scope_of_the_owner_unless_public(
    make: Make, repository: Repository, fields: dict[str, str], scope: str | None
) -> None:
    image = describe(IMAGE_ID, CONTENT, **fields)
    assert make(image, DedupScope.PROJECT).run().kind is OutcomeKind.REGISTERED
    assert repository.get_image(IMAGE_ID).record.dedup_scope == scope


def test_chunks_are_everybodys_where_the_scope_is_the_cloud(
    make: Make, repository: Repository
) -> None:
    assert make(describe(IMAGE_ID, CONTENT, owner=ONE)).run().kind is OutcomeKind.REGISTERED
    assert repository.get_image(IMAGE_ID).record.dedup_scope is None


@pytest.mark.parametrize(("before", "after"), [("public", "private"), ("private", "public")])
def test_image_whose_visibility_changes_keeps_its_names(
    make: Make, repository: Repository, before: str, after: str
) -> None:
    image = describe(IMAGE_ID, CONTENT, owner=ONE, visibility=before)
    make(image, DedupScope.PROJECT).run()
    record = repository.get_image(IMAGE_ID).record
    outcome = make(dataclasses.replace(image, visibility=after), DedupScope.PROJECT).run()
    assert outcome.kind is OutcomeKind.REGISTERED
    assert outcome.report is not None
    assert outcome.report.status == "already registered"
    assert repository.get_image(IMAGE_ID).record == record


def test_scope_that_the_repository_cannot_have_fails_before_anything_is_read(
    make: Make, repository: Repository, service: FaultyImageService
) -> None:
    repository.format = dataclasses.replace(repository.format, version=3)
    outcome = make(describe(IMAGE_ID, CONTENT, owner=ONE), DedupScope.PROJECT).run()
    assert outcome.kind is OutcomeKind.FAILED
    assert "acstor repository upgrade" in outcome.reason
    assert service.calls[Operation.OPEN] == 0
    public = describe(IMAGE_ID, CONTENT, owner=ONE, visibility="public")
    assert make(public, DedupScope.PROJECT).run().kind is OutcomeKind.REGISTERED

"""Getting an image's file into the spool, whatever the image service does."""

import os
import pathlib
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.rate_limit import BURST_SECONDS, RateLimit
from acstor.registrar.image_service.faulty import Effect, Fault, FaultyImageService, Operation
from acstor.registrar.image_service.memory import MemoryImageService
from acstor.registrar.registration import download
from acstor.registrar.registration.download import Downloader, DownloadSettings
from acstor.registrar.registration.file_registration import CancelledError
from acstor.registrar.registration.file_store import find_file
from testbed.doubles.registrar_cloud import Space, content_of, describe

IMAGE_ID = "00000000-0000-4000-8000-000000000001"
PART = download.PART_SIZE
CONTENT = content_of(1, 2 * PART) + bytes(PART) + content_of(2, PART + 700)
IMAGE = describe(IMAGE_ID, CONTENT)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def glance() -> MemoryImageService:
    service = MemoryImageService()
    service.put(IMAGE, CONTENT)
    return service


@pytest.fixture
def service(glance: MemoryImageService) -> FaultyImageService:
    return FaultyImageService(glance)


@pytest.fixture
def make(
    service: FaultyImageService, clock: Clock, tmp_path: pathlib.Path
) -> Callable[..., Downloader]:
    def make(**options: object) -> Downloader:
        settings = DownloadSettings(str(tmp_path / "spool"), deadline_seconds=100.0, attempts_max=3)
        return Downloader(
            service,
            IMAGE,
            settings,
            wait=clock.wait,
            clock=clock,
            **options,  # type: ignore[arg-type]
        )

    return make


def fetch(downloader: Downloader) -> bytes:
    with downloader.downloaded() as path:
        return pathlib.Path(path).read_bytes()


def test_file_is_complete_and_removed_afterwards(
    make: Callable[..., Downloader], tmp_path: pathlib.Path
) -> None:
    with make().downloaded() as path:
        assert pathlib.Path(path).read_bytes() == CONTENT
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert os.stat(path).st_blocks * 512 < len(CONTENT), "zeros are a hole"
    assert os.listdir(tmp_path / "spool") == []


def test_file_is_removed_after_an_error_of_its_user(
    make: Callable[..., Downloader], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ZeroDivisionError), make().downloaded():
        raise ZeroDivisionError
    assert os.listdir(tmp_path / "spool") == []


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.END])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_interrupted_download_goes_on(
    make: Callable[..., Downloader],
    service: FaultyImageService,
    glance: MemoryImageService,
    effect: Effect,
    has_ranges: bool,
) -> None:
    glance.has_ranges = has_ranges
    service.faults = [Fault(Operation.READ, effect, call=3)]
    assert fetch(make()) == CONTENT
    assert service.calls[Operation.OPEN] == 2
    # Two parts, the fault, then the rest or all of it again, with the end where it is asked for.
    rest = 3 if has_ranges else 5
    assert service.calls[Operation.READ] == 3 + rest + 1


def test_attempts_without_progress_are_bounded(
    make: Callable[..., Downloader],
    service: FaultyImageService,
    clock: Clock,
    tmp_path: pathlib.Path,
) -> None:
    service.faults = [Fault(Operation.OPEN, Effect.ERROR)]
    with pytest.raises(exception.UnavailableError, match="on purpose"):
        fetch(make())
    assert service.calls[Operation.OPEN] == 3
    assert len(clock.waits) == 2
    assert os.listdir(tmp_path / "spool") == []


def test_download_that_gets_on_slowly_ends_at_its_deadline(
    make: Callable[..., Downloader], service: FaultyImageService, clock: Clock
) -> None:
    service._sleep = clock.wait
    service.faults = [Fault(Operation.READ, Effect.DELAY, delay_seconds=40.0)]
    with pytest.raises(exception.DeadlineError, match="not downloaded within 100 s"):
        fetch(make())
    assert clock.now < 200


def test_what_is_not_transient_is_not_repeated(
    make: Callable[..., Downloader], service: FaultyImageService
) -> None:
    service.faults = [Fault(Operation.OPEN, Effect.ERROR, error=exception.NotFoundError)]
    with pytest.raises(exception.NotFoundError):
        fetch(make())
    assert service.calls[Operation.OPEN] == 1


def test_more_data_than_the_image_has_are_refused(
    make: Callable[..., Downloader], glance: MemoryImageService
) -> None:
    glance.put(IMAGE, CONTENT + b"x")
    with pytest.raises(exception.ImageRefusedError, match="sent more than"):
        fetch(make())


def test_cancelled_download_ends_at_the_next_part(
    make: Callable[..., Downloader], service: FaultyImageService, tmp_path: pathlib.Path
) -> None:
    def check() -> None:
        if service.calls[Operation.READ] >= 2:
            raise CancelledError("deleted")

    with pytest.raises(CancelledError):
        fetch(make(check=check))
    assert service.calls[Operation.READ] == 2
    assert os.listdir(tmp_path / "spool") == []


def test_space_is_checked_before_and_while_it_is_used(
    make: Callable[..., Downloader],
    service: FaultyImageService,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    monkeypatch.setattr(download, "SPACE_CHECK_SIZE", PART)
    answers = [Space(len(CONTENT) - 1, 1)]
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: answers.pop(0))
    with pytest.raises(exception.ExhaustedError, match="no room for image"):
        fetch(make())
    assert service.calls[Operation.OPEN] == 0
    answers[:] = [Space(len(CONTENT), 1), Space(len(CONTENT) - PART, 1), Space(100, 1)]
    with pytest.raises(exception.ExhaustedError):
        fetch(make())
    assert service.calls[Operation.READ] == 3
    assert os.listdir(tmp_path / "spool") == []


def test_really_full_file_system_is_no_room(
    make: Callable[..., Downloader], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, content: memoryview, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(exception.ExhaustedError, match="no room"):
        fetch(make())


def test_leftovers_of_killed_processes_are_removed(tmp_path: pathlib.Path) -> None:
    spool = tmp_path / "spool"
    assert download.empty_spool(str(spool)) == 0
    (spool / f"{IMAGE_ID}.download").write_bytes(b"x")
    (spool / "precious").write_bytes(b"x")
    assert download.empty_spool(str(spool)) == 1
    assert os.listdir(spool) == ["precious"]


def test_rate_is_kept(make: Callable[..., Downloader], clock: Clock) -> None:
    limit = RateLimit(PART, clock)
    assert fetch(make(on_bytes=limit.take)) == CONTENT
    seconds = len(CONTENT) / PART
    assert seconds - BURST_SECONDS <= clock.now <= seconds + 0.1


def test_no_limit_never_waits(clock: Clock) -> None:
    assert RateLimit(0, clock).take(1 << 40) == 0.0


def test_file_of_the_store_is_taken_only_as_it_should_be(tmp_path: pathlib.Path) -> None:
    store = str(tmp_path)
    path = tmp_path / IMAGE_ID
    assert find_file("", IMAGE) is None
    assert find_file(store, IMAGE) is None
    path.write_bytes(CONTENT[:-1])
    assert find_file(store, IMAGE) is None
    path.write_bytes(CONTENT)
    assert find_file(store, IMAGE) == str(path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert find_file(store, IMAGE) is None
    assert find_file(str(tmp_path / "elsewhere"), IMAGE) is None

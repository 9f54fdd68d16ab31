"""Registrations in child processes: the same outcomes, and whatever a child does ends with it."""

import contextlib
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin.posix import PosixOrigin
from acstor.rate_limit import RateLimit
from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.image_service.memory import MemoryImageService
from acstor.registrar.registration import child_registration
from acstor.registrar.registration.child_messages import OutOfMemoryError
from acstor.registrar.registration.child_registration import InChild
from acstor.registrar.registration.download import DownloadSettings
from acstor.registrar.registration.file_registration import (
    CancelledError,
    FileRegistrar,
    FileSettings,
    ImageFile,
)
from acstor.registrar.registration.job import ImageJob, JobSettings, Outcome, OutcomeKind
from acstor.repository.images import registration
from acstor.repository.repository import (
    COMPRESSED_VERSION,
    FORMAT_VERSION,
    INDEX_VERSION,
    Repository,
)
from testbed.doubles.registrar_cloud import CHUNK_SIZE, Cloud, content_of, describe
from testbed.fixtures.conditions import wait_for

IMAGE_ID = "00000000-0000-4000-8000-000000000001"
CONTENT = content_of(1)
MEMORY = 4 << 30
PROGRAMS = str(pathlib.Path(__file__).with_name("child_programs.py"))
SETTINGS = FileSettings(registration.Settings(pack_size=1 << 20, workers=1))


def misbehaving(name: str, origin: str = "posix:///nowhere") -> InChild:
    """Return what registers by a child that does as one of the programs."""
    return InChild(origin, 10.0, MEMORY, (PROGRAMS, name))


@pytest.fixture
def repository(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Repository:
    """A new repository, of the version that is the fixture's parameter."""
    (tmp_path / "origin").mkdir()
    version = getattr(request, "param", FORMAT_VERSION)
    return Repository.init(PosixOrigin(str(tmp_path / "origin")), CHUNK_SIZE, version)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A folder of temporary files, in which nothing is to be left; its path is short."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)  # nobody, as whom tools run, has to find its way
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield pathlib.Path(folder)


@pytest.fixture
def in_child(tmp_path: pathlib.Path, temporary: pathlib.Path) -> InChild:
    return InChild(f"posix://{tmp_path / 'origin'}", 10.0, MEMORY)


def register(
    registrar: InChild,
    repository: Repository,
    path: pathlib.Path,
    settings: FileSettings = SETTINGS,
    check: Callable[[], None] = lambda: None,
    advance: Callable[[int], None] = lambda size: None,
) -> registration.Report:
    file = ImageFile(IMAGE_ID, "name", str(path), "raw")
    return registrar.register(repository, file, settings, check, advance)


def run(
    registrar: InChild, repository: Repository, tmp_path: pathlib.Path, image: ServiceImage,
    content: bytes, settings: FileSettings = SETTINGS,
) -> Outcome:  # fmt: skip
    """Return what becomes of an image of Glance."""
    service = MemoryImageService()
    service.put(image, content)
    job_settings = JobSettings(DownloadSettings(str(tmp_path / "spool")), settings, registrar)
    return ImageJob(service, repository, image, job_settings).run()


@pytest.mark.parametrize("repository", [INDEX_VERSION, COMPRESSED_VERSION], indirect=True)
def test_image_is_registered(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    image = describe(IMAGE_ID, CONTENT)
    outcome = run(in_child, repository, tmp_path, image, CONTENT)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REGISTERED, "")
    report = outcome.report
    assert report is not None
    assert (report.image_id, report.status, report.chunks, report.new) == (
        IMAGE_ID, "registered", 5, 5,
    )  # fmt: skip
    record = repository.get_image(IMAGE_ID).record
    assert (record.manifest, record.checksum) == (report.manifest, str(image.checksum))
    again = run(in_child, repository, tmp_path, image, CONTENT)
    assert again.report is not None
    assert again.report.status == "already registered"
    assert os.listdir(temporary) == []


def test_qcow2_is_registered_and_leaves_nothing(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    raw, qcow2 = tmp_path / "raw", tmp_path / "qcow2"
    raw.write_bytes(content_of(5, 1 << 20))
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(qcow2)]
    subprocess.run(command, check=True, timeout=60)
    content = qcow2.read_bytes()
    image = describe(IMAGE_ID, content, disk_format="qcow2")
    outcome = run(in_child, repository, tmp_path, image, content)
    assert outcome.kind is OutcomeKind.REGISTERED, outcome.reason
    assert repository.get_image(IMAGE_ID).record.size_bytes == 1 << 20
    assert os.listdir(temporary) == []
    assert os.listdir(tmp_path / "spool") == []


@pytest.mark.parametrize(
    ("content", "changes", "settings", "kind", "reason"),
    [
        (CONTENT, {"hash_value": "0" * 128}, SETTINGS, OutcomeKind.CORRUPT, "the file has sha512"),
        (
            b"QFI\xfb\x00\x00\x00\x03" + bytes(504) + CONTENT,
            {}, SETTINGS, OutcomeKind.MISMATCHED, "the file is declared as raw, but its content",
        ),
        (
            b"LUKS\xba\xbe\x00\x01" + bytes(584) + CONTENT,
            {}, SETTINGS, OutcomeKind.LEFT, "content is luks",
        ),
        (
            CONTENT, {}, FileSettings(SETTINGS.registration, disk_size_max=512),
            OutcomeKind.LEFT, "the file has 20480 bytes, more than disk_size_max = 512",
        ),
        (
            CONTENT, {}, FileSettings(registration.Settings(cache_path="/proc/none")),
            OutcomeKind.FAILED, "/proc/none",
        ),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_child(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path, content: bytes,
    changes: dict[str, object], settings: FileSettings, kind: OutcomeKind, reason: str,
) -> None:  # fmt: skip
    image = describe(IMAGE_ID, content, **changes)
    outcome = run(in_child, repository, tmp_path, image, content, settings)
    assert outcome.kind is kind
    assert reason in outcome.reason
    assert str(tmp_path) not in outcome.reason


def test_child_of_another_repository_registers_nothing(
    repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    (tmp_path / "image").write_bytes(CONTENT)
    (tmp_path / "other").mkdir()
    Repository.init(PosixOrigin(str(tmp_path / "other")), CHUNK_SIZE)
    other = InChild(f"posix://{tmp_path / 'other'}", 10.0, MEMORY)
    with pytest.raises(exception.UnavailableError, match="holds another repository"):
        register(other, repository, tmp_path / "image")


def test_registration_that_wants_too_much_memory_fails(
    repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    """Really: the buffer of a pack does not fit."""
    (tmp_path / "image").write_bytes(CONTENT)
    small = InChild(f"posix://{tmp_path / 'origin'}", 10.0, 256 << 20)
    settings = FileSettings(registration.Settings(pack_size=1 << 30, workers=1))
    with pytest.raises(OutOfMemoryError) as failure:
        register(small, repository, tmp_path / "image", settings)
    assert "raise [registrar] job_memory" in failure.value.hint
    assert list(repository.list_image_ids()) == []
    assert os.listdir(temporary) == []


@pytest.mark.parametrize(
    ("program", "kind", "text"),
    [
        ("allocate", OutOfMemoryError, "needs more memory than it may have"),
        ("abort", OutOfMemoryError, "memory allocation of 68719476736 bytes failed"),
        ("crash", exception.InternalError, "was killed by SIGSEGV"),
        ("killed", exception.ExhaustedError, "was killed"),
        ("silent", exception.InternalError, "ended: 3: it ends so"),
        ("nonsense", exception.InternalError, "cannot be understood"),
        ("endless", exception.InternalError, "a line is too long"),
        ("wrong_report", exception.InternalError, "cannot be understood"),
        ("mute", exception.ExhaustedError, "was killed"),
    ],
)
def test_child_that_goes_wrong_is_an_error(
    repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path, program: str,
    kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # One that dies may take its time between the last of its pipes and its end.
    monkeypatch.setattr(child_registration, "CANCEL_GRACE", 1.0 if program == "mute" else 240.0)
    with pytest.raises(kind, match=re.escape(text)):
        register(misbehaving(program), repository, tmp_path / "image")
    assert os.listdir(temporary) == []


def test_child_that_hangs_does_not_keep_its_worker(
    repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    """One that waits for ever would stop the queue of a registrar with one worker."""
    origin = f"posix://{tmp_path / 'origin'}"
    hung = InChild(origin, 10.0, MEMORY, (PROGRAMS, "hung"), silence_max=0.5)
    with pytest.raises(exception.DeadlineError, match=r"has said nothing for 0\.5 s"):
        register(hung, repository, tmp_path / "x")
    assert os.listdir(temporary) == []


def test_child_has_no_credentials(
    repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("OS_KEYSTONE__PASSWORD", "secret")
    with pytest.raises(exception.InternalError, match=r"ValueError: \[\]"):
        register(misbehaving("environment"), repository, tmp_path / "image")


def test_cancelled_child_publishes_nothing(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "image").write_bytes(content_of(1, 4 << 20))
    stored: list[int] = []

    def check() -> None:
        if stored:
            raise CancelledError("deleted in Glance")

    with pytest.raises(CancelledError, match="deleted in Glance"):
        register(in_child, repository, tmp_path / "image", check=check, advance=stored.append)
    assert list(repository.list_image_ids()) == []


def test_progress_is_what_the_disk_has(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "image").write_bytes(content_of(1, 4 << 20))
    stored: list[int] = []
    register(in_child, repository, tmp_path / "image", advance=stored.append)
    assert sum(stored) == 4 << 20


def test_rate_limit_holds_the_child_up(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path
) -> None:
    """All registrations share it, whichever process each has."""
    (tmp_path / "image").write_bytes(content_of(1, 4 << 20))
    limit = RateLimit(1 << 20, clock=lambda: 0.0)
    waited: list[float] = []
    register(
        in_child, repository, tmp_path / "image",
        advance=lambda size: waited.append(limit.take(size)),
    )  # fmt: skip
    assert waited[-1] == pytest.approx(4.0)


def deaf_process(caplog: pytest.LogCaptureFixture) -> int | None:
    """Return the process that said that it is deaf; its log is this process's."""
    found = re.search(r"process (\d+) is deaf", caplog.text)
    return int(found[1]) if found else None


def is_gone(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes() == b""
    return True


def test_child_that_does_not_listen_is_killed_when_it_is_not_wanted(
    repository: Repository, tmp_path: pathlib.Path, temporary: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(child_registration, "CANCEL_GRACE", 0.5)
    caplog.set_level(logging.WARNING)
    cancelled = threading.Event()
    caught: list[Exception] = []

    def check() -> None:
        if cancelled.is_set():
            raise CancelledError("the registrar stops")

    def work() -> None:
        try:
            register(misbehaving("deaf"), repository, tmp_path / "image", check=check)
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for("the child is at work", lambda: deaf_process(caplog) is not None)
    process = deaf_process(caplog)
    assert process is not None
    assert not is_gone(process)
    cancelled.set()
    thread.join(60)
    assert not thread.is_alive()
    assert [str(error) for error in caught] == ["the registrar stops"]
    assert is_gone(process)
    assert os.listdir(temporary) == []


def test_child_ends_with_its_registrar(tmp_path: pathlib.Path) -> None:
    script = (
        "import logging, sys;"
        "logging.basicConfig(stream=sys.stdout);"
        "from types import SimpleNamespace as N;"
        "from tests.unit.registrar.test_child_registration import misbehaving, register;"
        "register(misbehaving('deaf'), N(format=N(id='')), 'image')"
    )
    registrar = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
        cwd=pathlib.Path(__file__).parents[3], env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert registrar.stdout is not None
    found = re.search(r"process (\d+) is deaf", registrar.stdout.readline())
    assert found is not None
    process = int(found[1])
    assert not is_gone(process)
    registrar.send_signal(signal.SIGKILL)
    registrar.wait(60)
    registrar.stdout.close()
    wait_for("the child is gone", lambda: is_gone(process))


class _Poisoned(FileRegistrar):
    """Kills the child of one image, and no other."""

    def __init__(self, inner: InChild, image_id: str) -> None:
        self._inner = inner
        self._image_id = image_id

    def register(
        self, repository: Repository, file: ImageFile, settings: FileSettings,
        check: Callable[[], None], advance: Callable[[int], None],
    ) -> registration.Report:  # fmt: skip
        is_poison = file.image_id == self._image_id
        registrar = misbehaving("killed") if is_poison else self._inner
        return registrar.register(repository, file, settings, check, advance)


def test_poison_is_one_failed_image_and_delays_no_other(
    in_child: InChild, repository: Repository, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "store").mkdir()
    cloud = Cloud(
        tmp_path, origin=repository.origin, file_registrar=_Poisoned(in_child, IMAGE_ID),
        retry_delay="30",
    )  # fmt: skip
    poison, *good = (cloud.upload(number) for number in (1, 2, 3))
    assert poison == IMAGE_ID
    try:
        registrar = cloud.start()
        for image in good:
            cloud.wait_for_state(image, "registered")
            assert cloud.is_published(image)
        entry = cloud.wait_for_state(poison, "failed")
        assert entry is not None
        assert entry.attempts == 1
        assert "the process of the registration was killed" in entry.reason
        assert entry.retry_at is not None
        assert registrar.is_leader
        cloud.clock.now += 31
        registrar.reconcile_soon()
        cloud.wait_for(
            poison,
            lambda found: found is not None and (found.attempts, found.state) == (2, "failed"),
        )
        assert not cloud.is_published(poison)
    finally:
        cloud.stop()

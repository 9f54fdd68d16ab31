"""Registration against b3sum: ``python bench/registration.py [--size 2G] [--folder DIR]``.

Registers an image of unique chunks into a POSIX origin, with the source in the page cache and
not, beside ``b3sum`` on the same file and cores; then what the parts cost (digesting only;
digesting and writing without fsync; the whole), a second registration, one of a 1 %-changed
image, one for another project, verification, and qcow2 (through qemu-nbd against converting to a
temporary raw file). Prints a table and, with --json FILE, writes all values. Medians of --runs
runs.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from unittest import mock

from acstor import native
from acstor.conf import types
from acstor.origin import posix
from acstor.repository.images import inspection, registration
from acstor.repository.repository import Repository
from acstor.repository.source import base, raw
from acstor.repository.verification import Verifier

CHUNK_SIZE = 64 << 10
PROJECT = "0f9d8c7b6a594837a6b5c4d3e2f10918"
WINDOW = 8 << 20


def drop_cache(path: pathlib.Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm_cache(path: pathlib.Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(WINDOW)
        while file.readinto(buffer):
            pass


def make_image(path: pathlib.Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(0, size, WINDOW):
            file.write(os.urandom(WINDOW))


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def b3sum(path: pathlib.Path) -> None:
    subprocess.run(["b3sum", str(path)], check=True, stdout=subprocess.DEVNULL)


def digest_only(path: pathlib.Path, scope: str | None = None) -> None:
    source = raw.RawSource(base.SourceFile(str(path)))
    with mmap.mmap(-1, WINDOW) as buffer, memoryview(buffer) as view:
        for offset in range(0, source.size_bytes, WINDOW):
            source.scan(offset, view, CHUNK_SIZE, scope)
    source.close()


@contextlib.contextmanager
def new_repository(folder: pathlib.Path) -> Iterator[Repository]:
    root = pathlib.Path(tempfile.mkdtemp(prefix="origin-", dir=folder))
    try:
        yield Repository.init(posix.PosixOrigin(str(root)), CHUNK_SIZE)
    finally:
        shutil.rmtree(root)
        os.sync()


def register(
    repository: Repository, path: pathlib.Path, declared: str = "raw", scope: str | None = None
) -> None:
    source: base.ImageSource = inspection.open_source(str(path), declared, 60.0)
    request = registration.Request(
        str(uuid.uuid4()), path.name, source, declared, dedup_scope=scope
    )
    try:
        registration.Registrar(repository, registration.Settings()).register(request)
    finally:
        source.close()


def measure_register(folder: pathlib.Path, path: pathlib.Path, *, is_synced: bool = True) -> float:
    with new_repository(folder) as repository, contextlib.ExitStack() as stack:
        if not is_synced:
            stack.enter_context(mock.patch("acstor.origin.posix_write.os.fsync"))
        return seconds(lambda: register(repository, path))


def disk_write(folder: pathlib.Path, size: int) -> float:
    """Return the time that the disk needs to take the same bytes: 64 MiB writes, then fsync."""
    path = folder / "written"
    block = memoryview(mmap.mmap(-1, 64 << 20))
    block[:] = os.urandom(1 << 20) * 64

    def write() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for _ in range(0, size, len(block)):
            os.write(descriptor, block)
        os.fsync(descriptor)
        os.close(descriptor)

    taken = seconds(write)
    path.unlink()
    return taken


def changed_copy(path: pathlib.Path, size: int) -> pathlib.Path:
    """Return a copy with one chunk in a hundred changed."""
    copy = path.with_suffix(".changed")
    shutil.copyfile(path, copy)
    with copy.open("r+b") as file:
        for offset in range(0, size, 100 * CHUNK_SIZE):
            file.seek(offset)
            file.write(os.urandom(16))
    return copy


def second_runs(folder: pathlib.Path, path: pathlib.Path, size: int) -> dict[str, float]:
    changed = changed_copy(path, size)
    with new_repository(folder) as repository:
        register(repository, path)
        results = {
            "same content, new id": seconds(lambda: register(repository, path)),
            "1 % changed": seconds(lambda: register(repository, changed)),
            "same content, for a project": seconds(
                lambda: register(repository, path, scope=PROJECT)
            ),
        }
        verifier = Verifier(repository)
        results["verify, origin in the page cache"] = seconds(verifier.verify)
    changed.unlink()
    return results


def qcow2_runs(folder: pathlib.Path, path: pathlib.Path) -> dict[str, float]:
    results = {}
    for name, options in (("qcow2", []), ("qcow2 compressed", ["-c"])):
        image, converted = folder / "image.qcow2", folder / "converted.raw"
        convert(path, image, "qcow2", *options)
        with new_repository(folder) as repository:
            action = functools.partial(register, repository, image, "qcow2")
            results[f"{name}, through qemu-nbd"] = seconds(action)
        with new_repository(folder) as repository:
            action = functools.partial(convert_then_register, repository, image, converted)
            results[f"{name}, through a temporary file"] = seconds(action)
        converted.unlink()
        image.unlink()
    return results


def convert(source: pathlib.Path, target: pathlib.Path, form: str, *options: str) -> None:
    command = ["qemu-img", "convert", "-O", form, *options, str(source), str(target)]
    subprocess.run(command, check=True)


def convert_then_register(
    repository: Repository, image: pathlib.Path, converted: pathlib.Path
) -> None:
    convert(image, converted, "raw")
    register(repository, converted)


def measure(folder: pathlib.Path, size: int, runs: int) -> dict[str, list[float]]:
    path = folder / "image.raw"
    make_image(path, size)
    results: dict[str, list[float]] = {}

    def add(name: str, taken: float) -> None:
        results.setdefault(name, []).append(taken)

    for _ in range(runs):
        warm_cache(path)
        add("b3sum, warm", seconds(lambda: b3sum(path)))
        add("digest only, warm", seconds(lambda: digest_only(path)))
        add("digest only in a scope, warm", seconds(lambda: digest_only(path, PROJECT)))
        add("register without fsync, warm", measure_register(folder, path, is_synced=False))
        warm_cache(path)
        add("register, warm", measure_register(folder, path))
        add("disk: write and fsync", disk_write(folder, size))
        drop_cache(path)
        add("b3sum, cold", seconds(lambda: b3sum(path)))
        drop_cache(path)
        add("digest only, cold", seconds(lambda: digest_only(path)))
        drop_cache(path)
        add("register, cold", measure_register(folder, path))
        warm_cache(path)
        for name, taken in second_runs(folder, path, size).items():
            add(name, taken)
    for name, taken in qcow2_runs(folder, path).items():
        add(name, taken)
    return results


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; seconds are a median, the reference is b3sum in the same state."""

    what: str
    seconds: float
    seconds_min: float
    seconds_max: float
    mb_per_s: int
    share_of_b3sum: float


def table(results: dict[str, list[float]], size: int) -> list[Row]:
    rows = []
    for name, values in results.items():
        reference = results["b3sum, cold" if "cold" in name else "b3sum, warm"]
        median = statistics.median(values)
        rows.append(
            Row(
                what=name,
                seconds=round(median, 3),
                seconds_min=round(min(values), 3),
                seconds_max=round(max(values), 3),
                mb_per_s=round(size / 1e6 / median),
                share_of_b3sum=round(statistics.median(reference) / median, 2),
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=types.ByteSize(64 << 20), default=1 << 30)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    native.digest(b"")
    with tempfile.TemporaryDirectory(prefix="acstor-bench-", dir=options.folder) as folder:
        results = measure(pathlib.Path(folder), options.size, options.runs)
    rows = table(results, options.size)
    print(f"{'':42} {'s':>7} {'min':>7} {'max':>7} {'MB/s':>7} {'b3sum':>6}")
    for row in rows:
        print(
            f"{row.what:42} {row.seconds:7} {row.seconds_min:7} {row.seconds_max:7} "
            f"{row.mb_per_s:7} {row.share_of_b3sum:6}"
        )
    if options.json:
        report = {
            "size_bytes": options.size,
            "cpus": os.cpu_count(),
            "rows": [dataclasses.asdict(row) for row in rows],
            "seconds": results,
        }
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

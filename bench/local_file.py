"""Reads of a local file through its link: ``python -m bench.local_file [--runs 7]``.

A real host keeps an image whole and makes a local file of it. fio then reads at random, in turns, a
plain copy beside it, the same through Nova's link to the local file, and through the mount: 4 KiB
reads that the page cache answers, and direct ones that reach the disk. Ratios of pairs of the same
run, their median and spread; the target is 0.95 of the plain copy. Needs root, FUSE and fio.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from acstor.drivers.nova.image_links.local_directory import local_path
from acstor.origin.opening import open_origin
from acstor.repository.images.image_registry import Entry, EntryState, ImageRegistry
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Image, cloud_in
from testbed.fixtures.nova_host import NovaHost

TIMEOUT = 120
TARGET = 0.95
"""Share of a plain file's reads that a local file is to have."""
KINDS: Mapping[str, Sequence[str]] = {
    "page-cached": ("--direct=0", "--invalidate=0"),
    "cold": ("--direct=1", "--invalidate=1"),
}


@dataclasses.dataclass
class Result:
    """Ratios of one kind of read."""

    kind: str
    plain_iops: list[float] = dataclasses.field(default_factory=list)
    local_ratio: list[float] = dataclasses.field(default_factory=list)
    mount_ratio: list[float] = dataclasses.field(default_factory=list)

    def line(self) -> str:
        """Return the result for people."""
        parts = [f"{self.kind:12} plain {statistics.median(self.plain_iops):9.0f} reads/s"]
        for name, ratios in (("local file", self.local_ratio), ("mount", self.mount_ratio)):
            parts.append(
                f"{name} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            )
        return ", ".join(parts)


def iops(path: pathlib.Path, seconds: int, options: Sequence[str]) -> float:
    """Read a file at random and return the reads a second."""
    command = ["fio", "--name=read", "--readonly", "--output-format=json", f"--filename={path}"]
    load = ["--rw=randread", "--bs=4k", "--time_based", f"--runtime={seconds}", *options]
    done = subprocess.run([*command, *load], check=True, capture_output=True, timeout=TIMEOUT)
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])


def measure(
    plain: pathlib.Path, link: pathlib.Path, mount: pathlib.Path, runs: int, seconds: int
) -> list[Result]:
    """Read the three in turns, each time in another order."""
    results = {kind: Result(kind) for kind in KINDS}
    paths = [("plain", plain), ("local", link), ("mount", mount)]
    for run in range(runs):
        for kind, options in KINDS.items():
            order = paths[run % 3 :] + paths[: run % 3]
            found = {name: iops(path, seconds, options) for name, path in order}
            result = results[kind]
            result.plain_iops.append(found["plain"])
            result.local_ratio.append(found["local"] / found["plain"])
            result.mount_ratio.append(found["mount"] / found["plain"])
    return list(results.values())


def prepared(folder: pathlib.Path, size: int, runs: int, seconds: int) -> list[Result]:
    """Make a host with a local file, and measure."""
    with cloud_in(folder) as cloud:
        nova = NovaHost(cloud.path / "nova")
        os.chown(nova.instances, 0, 0)
        host = cloud.add_host(
            store={"capacity": f"{8 * size // MIB}MiB"},
            image_links={"enabled": True, "nova_config_file": nova.config, "scan_interval": 0.2},
            local_files={"enabled": True, "reserve_percent": 1},
        )
        image: Image = cloud.register(size)
        registry = ImageRegistry(open_origin(f"posix://{cloud.origin}", 5))
        registry.replace(image.id, None, Entry(EntryState.REGISTERED, pin=True))
        local, link = local_path(str(nova.base), image.id), nova.link(image.id)
        wait_for(
            "a local file",
            lambda: link.is_symlink() and os.readlink(link) == local,
            timeout=TIMEOUT,
        )
        plain = nova.base / "plain"
        with plain.open("wb") as file:
            file.write(image.content)
            os.fsync(file.fileno())
        for path in (plain, link, host.file(image)):
            path.read_bytes()
        return measure(plain, link, host.file(image), runs, seconds)


def main() -> int:
    """Measure and print; return 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--size", type=int, default=256, help="MiB of the image")
    parser.add_argument("--directory", help="on the disk to measure")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("fio"):
        raise SystemExit("needs root and fio")
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        results = prepared(pathlib.Path(folder), options.size * MIB, options.runs, options.seconds)
    for result in results:
        print(result.line())
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(each) for each in results]))
    return int(any(statistics.median(each.local_ratio) < TARGET for each in results))


if __name__ == "__main__":
    raise SystemExit(main())

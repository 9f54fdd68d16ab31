"""A guest whose only purpose is to exercise its disks: fio, fsx, stress-ng, ext4, xfs.

Debian's kernel and packages, without an init system: ``acstor-exerciser-init`` runs what the
testbed asks for, :mod:`testbed.guest.exerciser_machine` asks. The root file system is
read-only, so that any number of guests share the built disk.

fsx is Alan Somers' rewrite in Rust of the file system exerciser (crate ``fsx``, APSL-2.0): Debian
has none. It is built by cargo, statically, and becomes part of the guest, never of ACStor.
"""

import dataclasses
import hashlib
import json
import pathlib
import platform
import shlex

from testbed import processes
from testbed.guest import build
from testbed.guest.recipe import FILES, GuestRecipe

EXERCISER_FILES = pathlib.Path(__file__).parent / "exerciser_files"
INIT = "/usr/local/sbin/acstor-exerciser-init"
#: Raise it when the way of building changes in a way that files and fields do not show.
EXERCISER_VERSION = 1
FSX_VERSION = "0.3.2"
FSX_BUILD_TIMEOUT_S = 600.0
#: Where the guest has the configurations of fsx.
SETTINGS = "/usr/local/share/acstor"


@dataclasses.dataclass(frozen=True)
class ExerciserRecipe(GuestRecipe):
    """A Debian guest with exercisers of disks and file systems, and an init of our own."""

    packages: tuple[str, ...] = (
        "linux-image-cloud-amd64",
        "initramfs-tools",
        "zstd",
        "kmod",
        "fio",
        "stress-ng",
        "e2fsprogs",
        "xfsprogs",
        "python3-minimal",
    )
    disk_size_bytes: int = 2 << 30
    hostname: str = "acstor-exerciser"
    file_system_uuid: str = "61637374-6f72-4775-8573-740000000002"
    fsx_version: str = FSX_VERSION
    fsx: pathlib.Path = pathlib.Path("fsx")  #: the program that is installed

    def key(self) -> str:
        """Return 16 hex digits that differ where the built image may differ."""
        fields = {**dataclasses.asdict(self), "fsx": ""}  # wherever it was built
        digest = hashlib.sha256(json.dumps([EXERCISER_VERSION, fields], sort_keys=True).encode())
        for path in sorted([*FILES.iterdir(), *EXERCISER_FILES.iterdir()]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    def customize_hooks(self) -> list[str]:
        """Return what is done in the root (``"$1"``) after the packages, as lines of sh."""
        programs = f"{EXERCISER_FILES}/acstor-exerciser-init {EXERCISER_FILES}/acstor-durable-files"
        return [
            f'install -m 755 {programs} "$1/usr/local/sbin/"',
            f'install -m 755 {shlex.quote(str(self.fsx))} "$1/usr/local/bin/fsx"',
            f'mkdir -p "$1{SETTINGS}"',
            f'install -m 644 {EXERCISER_FILES}/*.toml "$1{SETTINGS}/"',
        ]


def build_exerciser(cache: pathlib.Path) -> build.GuestImage:
    """Return the exerciser, built where the cache does not hold it.

    :raises ToolMissingError: when cargo, mmdebstrap or mkfs.ext4 is not installed.
    :raises ToolFailedError: when one of them fails.
    """
    recipe = ExerciserRecipe()
    if (cache / recipe.key() / "guest.json").is_file():
        return build.load_guest(cache / recipe.key())
    fsx = build_fsx(cache / f"fsx-{FSX_VERSION}")
    return build.build_guest(dataclasses.replace(recipe, fsx=fsx), cache)


def build_fsx(directory: pathlib.Path) -> pathlib.Path:
    """Return fsx, built into a directory where it is not there; it needs no library."""
    triple = f"{platform.machine()}-unknown-linux-gnu"
    # Compiled three times as fast without optimisation; the disks are what it waits for.
    command = ["cargo", "install", "--quiet", "--locked", "--debug", f"--version={FSX_VERSION}"]
    command += [f"--target={triple}", f"--root={directory}", "fsx"]
    # Of the C library too: the guest's may be older than that of this machine. With --target the
    # flags are not those of build scripts, which could not load then.
    # Nor are lints of ours what it has to pass.
    flags = {"RUSTFLAGS": "-C target-feature=+crt-static", "RUSTC_WORKSPACE_WRAPPER": ""}
    processes.run(command, timeout_s=FSX_BUILD_TIMEOUT_S, env=flags)
    return directory / "bin" / "fsx"

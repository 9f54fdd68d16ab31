"""Build a guest image out of Debian packages: a raw ext4 disk, its kernel, its ramdisk.

mmdebstrap installs the packages into a directory, ``mkfs.ext4 -d`` makes the disk of it: no loop
device, no boot loader (QEMU loads the kernel). About 40 s on two cores; the result is kept under
the recipe's hash and found there the next time.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from testbed import exception, processes
from testbed.guest import recipe as guest_recipe

LOG = logging.getLogger(__name__)

GUEST_VERSION = 1
BUILD_TIMEOUT_S = 600.0
DISK_TIMEOUT_S = 120.0


@dataclasses.dataclass(frozen=True)
class GuestImage:
    """A built guest."""

    directory: pathlib.Path
    disk_size_bytes: int
    content_tree: str
    content_digest: str  #: SHA-256 over the ``sha256sum`` lines of the tree's files, hex
    login_prompt: str

    @property
    def disk(self) -> pathlib.Path:
        """Return the raw disk."""
        return self.directory / "disk.raw"

    @property
    def kernel(self) -> pathlib.Path:
        """Return the kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> pathlib.Path:
        """Return the ramdisk."""
        return self.directory / "initrd.img"


def build_guest(recipe: guest_recipe.GuestRecipe, cache: pathlib.Path) -> GuestImage:
    """Return the guest of a recipe, built where the cache does not hold it.

    :param cache: directory of built guests; made where it is missing.
    :raises ToolMissingError: when mmdebstrap or mkfs.ext4 is not installed.
    :raises ToolFailedError: when one of them fails.
    """
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory = cache / recipe.key()
    # Whoever needs another guest waits for no build.
    if not _is_built(directory):
        with _only_builder(directory):
            if not _is_built(directory):
                _build_into(directory, recipe)
    return load_guest(directory)


def _is_built(directory: pathlib.Path) -> bool:
    return (directory / "guest.json").is_file()


def _build_into(directory: pathlib.Path, recipe: guest_recipe.GuestRecipe) -> None:
    LOG.info("building the guest %s", directory.name)
    with tempfile.TemporaryDirectory(prefix="build-", dir=directory.parent) as work:
        built = _build(recipe, pathlib.Path(work))
        shutil.rmtree(directory, ignore_errors=True)
        built.rename(directory)


@contextlib.contextmanager
def _only_builder(directory: pathlib.Path) -> Iterator[None]:
    """Wait until nobody else builds a guest, and have others wait within the block."""
    lock = directory.with_name(f"{directory.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def load_guest(directory: pathlib.Path) -> GuestImage:
    """Return a guest that was built before.

    :raises TestbedError: when there is none, or of another version.
    """
    try:
        description = json.loads((directory / "guest.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise exception.TestbedError(f"{directory} holds no built guest: {error}") from error
    if description.pop("version") != GUEST_VERSION:
        raise exception.TestbedError(
            f"{directory} was built by another release; remove it to build it anew"
        )
    return GuestImage(directory=directory, **description)


def _build(recipe: guest_recipe.GuestRecipe, work: pathlib.Path) -> pathlib.Path:
    root = work / "root"
    processes.run(_mmdebstrap_command(recipe, root), timeout_s=BUILD_TIMEOUT_S)
    built = work / "guest"
    built.mkdir()
    _take_boot_file(root, "vmlinuz", built / "vmlinuz")
    _take_boot_file(root, "initrd.img", built / "initrd.img")
    _make_disk(recipe, root, built / "disk.raw")
    description = {
        "version": GUEST_VERSION,
        "disk_size_bytes": recipe.disk_size_bytes,
        "content_tree": recipe.content_tree,
        "content_digest": tree_digest(root, recipe.content_tree),
        "login_prompt": f"{recipe.hostname} login:",
    }
    (built / "guest.json").write_text(json.dumps(description, indent=2) + "\n")
    return built


def _mmdebstrap_command(recipe: guest_recipe.GuestRecipe, root: pathlib.Path) -> list[str]:
    files = guest_recipe.FILES
    # The hooks' "$1" is the root; they run under sh with the paths as written here.
    ramdisk = [
        'mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/initramfs-tools/hooks"',
        f'install -m 755 {files}/initramfs-modules "$1/etc/initramfs-tools/hooks/acstor"',
        'printf "MODULES=list\\nCOMPRESS=zstd\\n" >"$1/etc/initramfs-tools/conf.d/acstor"',
    ]
    customize = [f'echo {recipe.hostname} >"$1/etc/hostname"', *recipe.customize_hooks()]
    command = ["mmdebstrap", "--variant=minbase", "--mode=root", "--format=directory"]
    command += [f"--include={','.join(recipe.packages)}"]
    command += ["--dpkgopt=path-exclude=/usr/share/man/*"]
    command += ["--dpkgopt=path-exclude=/usr/share/locale/*"]
    command += ['--aptopt=Acquire::Languages "none"']
    command += [f"--essential-hook={hook}" for hook in ramdisk]
    command += [f"--customize-hook={hook}" for hook in customize]
    return [*command, recipe.suite, str(root), recipe.mirror]


def _take_boot_file(root: pathlib.Path, name: str, target: pathlib.Path) -> None:
    candidates = sorted((root / "boot").glob(f"{name}-*"))
    if len(candidates) != 1:
        raise exception.TestbedError(f"expected one /boot/{name}-* in the guest: {candidates}")
    shutil.copyfile(candidates[0], target)


def _make_disk(recipe: guest_recipe.GuestRecipe, root: pathlib.Path, disk: pathlib.Path) -> None:
    uuid = recipe.file_system_uuid
    command = ["mkfs.ext4", "-q", "-F", "-U", uuid, "-L", "acstor-root"]
    # Whatever is initialised lazily, the guest would write in its first minutes.
    options = f"hash_seed={uuid},lazy_itable_init=0,lazy_journal_init=0"
    command += ["-E", options, "-d", str(root), str(disk), f"{recipe.disk_size_bytes // 1024}k"]
    processes.run(command, timeout_s=DISK_TIMEOUT_S)


def tree_digest(root: pathlib.Path, tree: str) -> str:
    """Return what the guest's content check prints for a tree, computed without the guest.

    :param root: directory that is the guest's root.
    :param tree: absolute path in the guest; may lead through the guest's symbolic links.
    :returns: SHA-256, hex, over one line per regular file as ``sha256sum`` prints it, in the
        order of the bytes of the paths.
    """
    top = root / tree.lstrip("/")
    paths = sorted(
        (path for path in top.rglob("*") if path.is_file() and not path.is_symlink()),
        key=lambda path: str(path).encode(),
    )
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        name = f"{tree}/{path.relative_to(top)}"
        digest.update(f"{content}  {name}\n".encode())
    return digest.hexdigest()

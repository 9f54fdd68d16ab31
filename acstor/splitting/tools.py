"""Running e2fsprogs, sfdisk and qemu-img on a disk that nobody has reason to trust.

They run confined (:mod:`acstor.repository.source.confinement`): without rights and network, in
limits, and writing nothing but what is in the folder of the work. Nothing is mounted.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from acstor import exception
from acstor.repository.source import confinement
from acstor.repository.source.confinement import Limits
from acstor.splitting.work_disk import WorkDisk, cannot_write

ADDRESS_SPACE_MAX = 4 << 30
"""Bytes of address space of a tool: e2fsck has lists of all inodes and blocks."""
SECONDS_MIN = 300
"""Seconds that a tool may take at least, of time and of processor time."""
BYTES_PER_SECOND = 4 << 20
"""Slowest work on a disk that is allowed, bytes per second."""
OUTPUT_MAX = 64 << 10
"""Bytes that are kept of what a tool says; the last ones."""
ERROR_LENGTH_MAX = 500
LINE_MAX = 4096
"""Bytes of a command of debugfs: what is beyond 8,191 it takes for the next command."""
_PART_SIZE = 64 << 10
_SCRIPT = "script"
_NOT_FOUND = 127
_SYSTEM_PATH = ":/usr/sbin:/sbin"
"""Folders of programs of administrators, which users do not have in their PATH."""
_BANNER = re.compile(r"^(debugfs|mke2fs|e2fsck|resize2fs) \d[^\n]*\n", re.MULTILINE)
_PACKAGES = {"sfdisk": "fdisk", "qemu-img": "qemu-utils"}
_PERCENT = re.compile(rb"\((\d+)\.\d+/100%\)")


class Tools:
    """Tools that work on one disk. A context, which holds the folder open.

    :param folder: in which they may write; the disk is in it.
    """

    def __init__(self, folder: str, disk: WorkDisk) -> None:
        self._folder = folder
        self._disk = disk
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        """Use them."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the folder."""
        os.close(self._opened)

    def write(self, name: str, parts: Iterable[tuple[int, bytes]], size: int) -> bytes:
        """Write a file for the tools, with holes; return the path by which they find it.

        It goes by the descriptor of the folder: they may not go where that is.

        :param parts: of it, each with its offset.
        :raises ExhaustedError: when there is no room.
        """
        # A tool that was taken over may have put a link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(name, flags, 0o600, dir_fd=self._opened), "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                for offset, part in parts:
                    file.seek(offset)
                    file.write(part)
                file.truncate(size)
        except OSError as error:
            raise cannot_write(name, error) from error
        return f"/dev/fd/{self._opened}/{name}".encode()

    def remove(self, name: str) -> None:
        """Remove such a file."""
        os.unlink(name, dir_fd=self._opened)

    def place(self, start: int) -> str:
        """Return the name of a file system on the disk, as e2fsprogs take it."""
        return f"/dev/fd/{self._disk.descriptor}?offset={start}"

    @property
    def disk_path(self) -> str:
        """Name of the disk for tools."""
        return f"/dev/fd/{self._disk.descriptor}"

    def check(self, start: int, *, repair: bool = False) -> None:
        """Check a file system with e2fsck.

        :param repair: whether to replay its journal, and to correct what is safe to.
        :raises ImageRefusedError: when it is damaged.
        """
        self.check_place(self.place(start), start, repair=repair)

    def check_place(
        self, place: str, start: int, *, repair: bool, descriptors: tuple[int, ...] = ()
    ) -> None:
        """Check a file system that is at a place of its own; see :meth:`check`."""
        command = ["e2fsck", "-f", "-p" if repair else "-n", place]
        status, said = self.run(command, descriptors=descriptors)
        if status not in ((0, 1) if repair else (0,)):
            raise exception.ImageRefusedError(
                f"e2fsck finds the file system at byte {start} damaged: {_reason(status, said)}",
                hint="repair a copy of the image (e2fsck -f), or take one that was shut down",
            )

    def make_file_system(
        self, start: int, blocks: int, block_size: int, options: Sequence[str]
    ) -> None:
        """Make an ext file system.

        :raises ImageRefusedError: when mke2fs cannot.
        """
        extended = f"offset={start},lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0"
        command = ["mke2fs", "-q", "-F", "-b", str(block_size), "-E", extended, *options]
        self.must([*command, self.disk_path, str(blocks)])

    def edit(self, start: int, script: bytes) -> None:
        """Have debugfs run a script, a command a line.

        :raises ImageRefusedError: when a command failed.
        :raises UnsupportedError: when a command is too long.
        """
        if max(map(len, script.split(b"\n"))) > LINE_MAX:
            raise exception.UnsupportedError(
                "a path of the image is too long to be moved", hint="move or remove it"
            )
        path = self.write(_SCRIPT, [(0, script)], len(script)).decode()
        status, said = self.run(
            ["debugfs", "-w", "-f", path, self.place(start)], keeps_output=False
        )
        self.remove(_SCRIPT)
        # It ends with 0 whatever became of its commands; what failed, it says.
        if status != 0 or said:
            raise exception.ImageRefusedError(
                f"debugfs cannot change the file system at byte {start}: {_reason(status, said)}",
                hint="look whether the partition is large enough (size), and the image sound",
            )

    def must(self, command: Sequence[str], **options: object) -> None:
        """Run a tool that has to succeed.

        :raises ImageRefusedError: when it does not.
        """
        status, said = self.run(command, **options)  # type: ignore[arg-type]
        if status != 0:
            raise exception.ImageRefusedError(
                f"{command[0]} failed: {_reason(status, said)}",
                hint="look whether the image is sound, and whether there is room beside the output",
            )

    def convert(self, descriptor: int, output_format: str, advance: Callable[[int], None]) -> None:
        """Write the disk to an empty file as qemu-img does: holes stay holes.

        :param advance: told how many per cent more are done.
        :raises ImageRefusedError: when it fails.
        """
        done = 0

        def take(part: bytes) -> None:
            nonlocal done
            for found in _PERCENT.findall(part):
                advance(max(0, int(found) - done))
                done = max(done, int(found))

        command = ["qemu-img", "convert", "-p", "-f", "raw", "-O", output_format, "-S", "4096"]
        command += [self.disk_path, f"/dev/fd/{descriptor}"]
        self.must(command, descriptors=(descriptor,), take=take)

    def run(
        self,
        command: Sequence[str],
        *,
        content: bytes = b"",
        descriptors: tuple[int, ...] = (),
        keeps_output: bool = True,
        take: Callable[[bytes], None] | None = None,
    ) -> tuple[int, str]:
        """Run a tool; return its exit status and what it said of errors.

        :param content: that it reads.
        :param descriptors: that it opens again, beside that of the disk.
        :param keeps_output: whether what it prints counts, too.
        :raises UnavailableError: when it is not there, or takes too long.
        """
        seconds = SECONDS_MIN + self._disk.size_bytes // BYTES_PER_SECOND
        environment = confinement.environment()
        environment["PATH"] += _SYSTEM_PATH
        confined = confinement.confine(
            list(command), Limits(ADDRESS_SPACE_MAX, seconds), writes_in=self._folder
        )
        with subprocess.Popen(
            confined,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._disk.descriptor, self._opened, *descriptors),
            env=environment,
        ) as process:
            try:
                assert process.stdin is not None
                process.stdin.write(content)
                process.stdin.close()
                said = _outputs(process, time.monotonic() + seconds, take, keeps_output)
                status = process.wait(seconds)
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                raise exception.DeadlineError(
                    f"{command[0]} took longer than {seconds} s",
                    hint="look at the load of this machine, and whether the image is sound",
                ) from error
            finally:
                process.kill()
        if status == _NOT_FOUND:
            package = _PACKAGES.get(command[0], "e2fsprogs")
            raise exception.UnavailableError(
                f"{command[0]} cannot be run: {_reason(status, said)}", hint=f"install {package}"
            )
        return status, said


def _outputs(
    process: "subprocess.Popen[bytes]",
    until: float,
    take: Callable[[bytes], None] | None,
    keeps_output: bool,
) -> str:
    """Return the last of what a tool says.

    :raises TimeoutError: when it does not end in time.
    """
    kept = bytearray()
    with selectors.DefaultSelector() as outputs:
        keeps_output = keeps_output and take is None
        for stream, is_kept in ((process.stdout, keeps_output), (process.stderr, True)):
            outputs.register(stream, selectors.EVENT_READ, is_kept)  # type: ignore[arg-type]
        while outputs.get_map():
            left = until - time.monotonic()
            ready = outputs.select(left) if left > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, _PART_SIZE)
                if not part:
                    outputs.unregister(key.fileobj)
                elif key.data:
                    kept += part
                    del kept[:-OUTPUT_MAX]
                elif take and key.fileobj is process.stdout:
                    take(part)
    return _BANNER.sub("", kept.decode(errors="replace")).strip()


def _reason(status: int, said: str) -> str:
    if status < 0:
        return f"it was killed by {signal.Signals(-status).name}"
    lines = said.splitlines()
    return lines[-1][:ERROR_LENGTH_MAX] if lines else f"status {status}"

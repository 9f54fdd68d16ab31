"""Programs like filebench's personalities: web server, web proxy, video server.

Operations per loop, file sizes and the shares of reads and writes are those of filebench 1.4.9's
``webserver.f``, ``webproxy.f`` and ``videoserver.f``, with one thread per virtual machine:

=============  ===========================================================  =============
mix            one loop                                                     read : write
=============  ===========================================================  =============
web server     10 whole files of 16 KiB on average, 16 KiB to a log          10 : 1
web proxy      1 new file, 5 whole files of 16 KiB on average, 16 KiB log    5 : 2
video server   1 MiB pieces of videos; as many are written as are read       1 : 1 (writes paced)
=============  ===========================================================  =============

Writes stay on the host's own disk in every approach (copy on write) and take its time. What was
written is read from there. As the paper says of its own run (section 5.5), a web server reads what
the image holds, a web proxy partly what it has just stored, a video server mostly what it has just
stored: ``own_share`` of each mix is an assumption that the paper does not give a figure for. Sizes
are gamma distributed with shape 1.5, as filebench's are.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.programs import Catalogue, ImageLayout, Programs, ProgramWriter

_KIB = 1024
_SHAPE = 1.5
LOOPS = 400
"""Loops of a program before it repeats itself."""


@dataclass(frozen=True)
class Mix:
    """One personality."""

    reads: int
    """Files read per loop."""
    read_bytes: int
    """Mean size of a read."""
    write_bytes: int
    """Bytes written per loop."""
    own_share: float
    """Of the reads, those of what the machine wrote itself."""
    is_sequential: bool
    """True if reads go on where the last one of the same file ended."""
    file_bytes: int
    """Mean size of a file."""


MIXES = {
    "web-server": Mix(10, 16 * _KIB, 16 * _KIB, 0.0, False, 16 * _KIB),
    "web-proxy": Mix(5, 16 * _KIB, 32 * _KIB, 0.3, False, 16 * _KIB),
    "video-server": Mix(4, 1024 * _KIB, 4096 * _KIB, 0.8, True, 64 * 1024 * _KIB),
}


def programs(
    name: str,
    layout: ImageLayout,
    machines_per_image: int,
    image_bytes: int,
    disk_rate: float,
    seed: int,
) -> Programs:
    """Return ``images * machines_per_image`` programs; program i is of image i modulo images.

    :param image_bytes: size of the part of an image that files are in.
    :param disk_rate: of the host's own disk, bytes per second.
    """
    mix = MIXES[name]
    random = np.random.default_rng(seed)
    writer = ProgramWriter(Catalogue(layout, seed), layout.chunk_size)
    for number in range(layout.images * machines_per_image):
        for _ in range(LOOPS if not mix.is_sequential else LOOPS // 8):
            write_loop(writer, mix, number % layout.images, image_bytes, disk_rate, random)
        writer.end_program()
    return writer.programs(is_loop=True)


class Writer(Protocol):
    """Takes the operations of a program, as :class:`sim.programs.ProgramWriter` does."""

    def read(self, image: int, think: float, offset: int, length: int, served: float) -> None:
        """Add an operation that reads bytes of an image."""

    def pause(self, think: float, served: float) -> None:
        """Add an operation that reads nothing over the network."""


def write_loop(
    writer: Writer,
    mix: Mix,
    image: int,
    image_bytes: int,
    disk_rate: float,
    random: np.random.Generator,
) -> None:
    """Write one loop of a mix.

    :param image_bytes: size of the part of an image that files are in.
    :param disk_rate: of the host's own disk, bytes per second.
    """
    position = int(random.integers(0, max(1, image_bytes - mix.file_bytes)))
    for _ in range(mix.reads):
        size = mix.read_bytes
        if not mix.is_sequential:
            size = max(512, int(random.gamma(_SHAPE, mix.read_bytes / _SHAPE)))
            position = int(random.integers(0, max(1, image_bytes - size)))
        if random.random() < mix.own_share:
            writer.pause(size / disk_rate, size)
        else:
            writer.read(image, 0.0, position, size, size)
            position = (position + size) % max(1, image_bytes - size)
    writer.pause(mix.write_bytes / disk_rate, mix.write_bytes)

"""Figure 9's guests: web server, web proxy and video server as reads that are replayed.

The programs are those of :mod:`sim.mixes`, which says what they take from filebench and what is
assumed. What a guest reads of its image is read; what it writes, and what it reads of that again,
stays on its host's own disk in every approach and takes that disk's time as a think time. Reads
begin and end at blocks of 4 KiB, as file systems make them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bench.acstor.settings import PAPER_RATE, EvaluationSettings
from sim import mixes
from testbed.boot_trace import BootTrace, TraceRead

BLOCK = 4096
PROGRAMS_PER_IMAGE = 8
"""Different programs of the guests of one image, as in the simulator: not all read the same."""
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class MixProgram:
    """Program of one guest: reads of one image, and the bytes that it is served."""

    trace: BootTrace
    """Reads of one image, without digests."""
    served_bytes: int
    """Bytes that the guest reads and writes until its last read of the image."""


class _Recorder:
    """Writes a program down as the reads of a trace."""

    def __init__(self, disk_bytes: int) -> None:
        self._disk_bytes = disk_bytes
        self._think = 0.0
        self._waiting = 0.0
        self.served = 0.0
        self.reads: list[TraceRead] = []

    def read(self, image: int, think: float, offset: int, length: int, served: float) -> None:
        """Add a read, widened to whole blocks."""
        begin = offset // BLOCK * BLOCK
        end = min(self._disk_bytes, -(-(offset + length) // BLOCK) * BLOCK)
        self.reads.append(TraceRead(begin, end - begin, round((self._think + think) * 1e6), ""))
        self.served += self._waiting + served
        self._think = self._waiting = 0.0

    def pause(self, think: float, served: float) -> None:
        """Let the own disk's time go by before the next read; nothing comes after the last."""
        self._think += think
        self._waiting += served


def programs(
    name: str, images: int, loops: int, image_bytes: int, disk_rate: float, seed: int
) -> list[list[MixProgram]]:
    """Return the programs of a mix by image.

    :param name: of :data:`sim.mixes.MIXES`.
    :param loops: of each program; more where none of so many reads the image.
    :param image_bytes: size of an image, whole MiB.
    :param disk_rate: of a host's own disk, bytes per second.
    """
    random = np.random.default_rng(seed)
    found: list[list[MixProgram]] = []
    for image in range(images):
        own = []
        for _ in range(PROGRAMS_PER_IMAGE):
            recorder = _Recorder(image_bytes)
            written = 0
            while written < loops or not recorder.reads:  # a replay of nothing cannot be timed
                mixes.write_loop(recorder, mixes.MIXES[name], image, image_bytes, disk_rate, random)
                written += 1
            trace = BootTrace(image_bytes, f"{name}, {loops} loops", recorder.reads)
            own.append(MixProgram(trace, round(recorder.served)))
        found.append(own)
    return found


def of_settings(settings: EvaluationSettings) -> Sequence[Sequence[MixProgram]]:
    """Return the programs of a storm; a host's own disk is as fast as its link."""
    disk_rate = PAPER_RATE / 8 / settings.scale
    return programs(
        settings.workload,
        settings.images,
        settings.loops,
        settings.mix_mib * _MIB,
        disk_rate,
        settings.seed,
    )

"""Mixes of the evaluation: replayed reads that do what the simulator's programs do."""

import dataclasses
import pathlib

import pytest

from bench.acstor import images, mix_programs
from bench.acstor.figures import FIGURES
from bench.acstor.guests import GuestResult
from bench.acstor.mix_programs import BLOCK, PROGRAMS_PER_IMAGE
from bench.acstor.settings import EvaluationSettings
from sim.mixes import MIXES
from testbed import boot_trace
from testbed.exception import TestbedError
from tests.unit.bench.test_acstor_report import storm

MIB = 1 << 20
DISK = 4 * MIB
DISK_RATE = 5e6


@pytest.mark.parametrize("name", sorted(MIXES))
def test_programs_read_blocks_within_the_image_and_count_all_that_is_served(name: str) -> None:
    mix, loops = MIXES[name], 30
    for own in mix_programs.programs(name, 2, loops, DISK, DISK_RATE, 1):
        assert len(own) == PROGRAMS_PER_IMAGE
        for program in own:
            for read in program.trace.reads:
                assert read.offset % BLOCK == 0
                assert 0 < read.length <= DISK - read.offset
            remote = len(program.trace.reads)
            assert remote == pytest.approx(loops * mix.reads * (1 - mix.own_share), rel=0.5)
            # What is on the own disk takes its time: nothing is served for nothing.
            local = program.served_bytes - program.trace.bytes_read
            paused = sum(read.think_us for read in program.trace.reads) * 1e-6
            assert local <= paused * DISK_RATE * 1.001 + 1
            assert local >= paused * DISK_RATE * 0.9 - remote * 2 * BLOCK


def test_every_read_of_every_program_returns_what_its_trace_says(tmp_path: pathlib.Path) -> None:
    programs = mix_programs.programs("web-proxy", 2, 3, DISK, DISK_RATE, 1)
    made = images.make_mixes(tmp_path, programs)
    assert made.image.disk_size_bytes == 2 * DISK
    assert len(made.traces) == len(made.served_bytes) == 2 * PROGRAMS_PER_IMAGE
    seen: list[set[str]] = [set(), set()]
    with made.image.disk.open("rb") as file:
        for number, path in enumerate(made.traces):
            image = number // PROGRAMS_PER_IMAGE
            for read in boot_trace.load(path).reads:
                assert read.offset // DISK == image
                file.seek(read.offset)
                content = file.read(read.length)
                assert any(content), "no hole is read"
                assert boot_trace.content_digest(content) == read.digest
                seen[image].add(read.digest)
    assert not seen[0] & seen[1]


def test_every_program_reads_its_image() -> None:
    found = mix_programs.programs("video-server", 16, 1, DISK, DISK_RATE, 1)
    assert all(program.trace.reads for own in found for program in own)


def test_throughput_is_of_what_each_guest_was_served_in_its_own_time() -> None:
    guests = [
        GuestResult("a", "h0", 2.0, served_bytes=4_000_000),
        GuestResult("b", "h0", 4.0, served_bytes=4_000_000),
        GuestResult("c", "h1", None),
    ]
    found = dataclasses.replace(storm("acstor", [1.0]), guests=guests)
    assert found.throughput_bytes_per_s == pytest.approx(1.5e6)
    assert storm("acstor", [None]).throughput_bytes_per_s is None


def test_each_mix_has_a_figure_and_others_are_refused() -> None:
    for name in MIXES:
        figure = FIGURES[f"figure-9-{name}"]
        settings = EvaluationSettings(**figure.changes)
        assert settings.workload == name
        assert figure.y in figure.columns
    with pytest.raises(TestbedError, match="workload 'mail'"):
        EvaluationSettings(workload="mail")


def test_own_disk_is_as_fast_as_the_link() -> None:
    settings = EvaluationSettings(workload="video-server", loops=2, mix_mib=4, images=1)
    (own,) = mix_programs.of_settings(settings)
    assert settings.scale == 25
    writes = MIXES["video-server"].write_bytes / (1e9 / 8 / settings.scale)
    assert any(
        read.think_us * 1e-6 > writes * 0.99 for program in own for read in program.trace.reads
    )

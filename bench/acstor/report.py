"""Runs the storms of a figure, and keeps what came of them in one file."""

import dataclasses
import json
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

from acstor.cluster.ring.decision import DECISION_REF
from acstor.cluster.ring.published_ring import GENERATION_REF, RING_REF
from acstor.origin.opening import open_origin
from bench.acstor import congestion_control, images, mix_programs, result
from bench.acstor.figures import Figure, Point, settings_at
from bench.acstor.images import Images
from bench.acstor.result import FORMAT, FORMAT_VERSION, StormResult
from bench.acstor.settings import BOOT, FIRST_READ, TRACE, EvaluationSettings
from bench.acstor.storm import OnDone, OnProgress, Storm
from testbed import boot_trace, measurement
from testbed.exception import TestbedError
from testbed.testbed import Testbed, TestbedSettings

ORIGIN_TIMEOUT_S = 5.0


@dataclasses.dataclass(frozen=True)
class Entry:
    """One storm and where it belongs."""

    point: Point
    turn: int
    storm: StormResult
    build: dict[str, str]
    """The source and the extension module that it was run with."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what tells it from others of the figure."""
        return (*sorted(self.point.items()), self.turn, self.storm.approach)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "point": dict(self.point),
            "turn": self.turn,
            "build": self.build,
            **self.storm.as_json(),
        }


@dataclasses.dataclass
class Report:
    """All storms of a figure; the JSON document is made of it."""

    figure: str
    title: str
    settings: dict[str, Any]
    machine: dict[str, str | int | float]
    entries: list[Entry] = dataclasses.field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "figure": self.figure,
            "title": self.title,
            "settings": self.settings,
            "machine": self.machine,
            "storms": [entry.as_json() for entry in self.entries],
        }

    def save(self, path: pathlib.Path) -> None:
        """Write the document; it is there in whole or as it was before."""
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        temporary.rename(path)

    @classmethod
    def load(cls, path: pathlib.Path) -> "Report":
        """Read a document.

        :raises TestbedError: when it is none of this version.
        """
        try:
            fields = json.loads(path.read_text())
            if (fields["format"], fields["version"]) != (FORMAT, FORMAT_VERSION):
                raise TestbedError(f"{path} is no report of an evaluation of this release")
            entries = [
                Entry(one["point"], one["turn"], StormResult.from_json(one), one["build"])
                for one in fields["storms"]
            ]
            return cls(
                fields["figure"], fields["title"], fields["settings"], fields["machine"], entries
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TestbedError(
                f"{path} is no report of an evaluation: {error!r:.100}",
                hint="name a file that --json wrote",
            ) from error


def plain(settings: EvaluationSettings) -> dict[str, Any]:
    """Return settings as plain JSON types."""
    fields = dataclasses.asdict(settings)
    return fields | {"rate": str(settings.rate), "root": str(settings.root)}


class StormSeries:
    """Hosts and images, made once, and storms on them one after the other.

    A context manager; nothing is left behind.
    """

    def __init__(self, settings: EvaluationSettings) -> None:
        self._base = settings
        is_boot = settings.workload == BOOT
        disk = None
        if is_boot and not settings.is_content_generated:
            disk = images.recorded_disk(boot_trace.load(TRACE), settings.root)
        testbed_settings = TestbedSettings(settings.hosts, settings.rate, settings.rate)
        self.testbed = Testbed.create(testbed_settings, settings.root, keep=settings.keep)
        try:
            congestion_control.choose(
                self.testbed.network.members.values(), settings.congestion_control
            )
            directory = self.testbed.run.directory("images")
            if is_boot:
                trace = images.cut(boot_trace.load(TRACE), FIRST_READ, settings.reads)
                self.images: Images = images.make(directory, trace, settings.images, disk)
            else:
                self.images = images.make_mixes(directory, mix_programs.of_settings(settings))
        except BaseException:
            self.testbed.close()
            raise
        self.build = result.build()

    def run(
        self,
        settings: EvaluationSettings,
        approach: str,
        on_done: OnDone = lambda done, total: None,
        on_progress: OnProgress = lambda progress: None,
    ) -> StormResult:
        """Run one storm on hosts that know nothing of those before.

        :raises TestbedError: when hosts, images or links are others than this series has.
        """
        for name in ("hosts", "images", "rate", "reads", "is_content_generated", "workload",
                     "loops", "mix_mib", "congestion_control"):  # fmt: skip
            if getattr(settings, name) != getattr(self._base, name):
                raise TestbedError(f"{name} cannot change between the storms of a series")
        self._forget(approach)
        return Storm(self.testbed, self.images, settings, approach).run(on_done, on_progress)

    def _forget(self, approach: str) -> None:
        """Remove what a storm of the same approach left: stores, memberships, ring, decision."""
        kept = self.testbed.run.path / approach
        if kept.exists():
            shutil.rmtree(kept)
        repository = self.testbed.run.path / "origin" / "repository"
        if repository.exists():
            origin = open_origin(f"posix://{repository}", ORIGIN_TIMEOUT_S)
            for name in (GENERATION_REF, RING_REF, DECISION_REF):
                ref = origin.get_ref(name)
                if ref is not None:
                    origin.swap_ref(name, ref.token, None)

    def __enter__(self) -> "StormSeries":
        return self

    def __exit__(self, *_: object) -> None:
        self.testbed.close()


@dataclasses.dataclass(frozen=True)
class Step:
    """One storm that is to be run."""

    point: Point
    turn: int
    approach: str

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what :attr:`Entry.key` is."""
        return (*sorted(self.point.items()), self.turn, self.approach)


def steps(figure: Figure, approaches: Sequence[str], turns: int) -> list[Step]:
    """Return the storms of a figure: at each point the approaches in turns."""
    return [
        Step(point, turn, approach)
        for turn in range(turns)
        for point in figure.points()
        for approach in approaches
    ]


OnStep = Callable[[Step], OnDone]
"""Called before a storm; returns what is called with its progress."""


def run_figure(
    figure: Figure,
    base: EvaluationSettings,
    wanted: Sequence[Step],
    path: pathlib.Path | None,
    on_step: OnStep,
    deadline_s: float | None = None,
) -> Report:
    """Run the storms that the file does not hold yet, and keep each as soon as it is over.

    :param path: of the report; None: nothing is kept.
    :param deadline_s: seconds after which no further storm is begun; None: all are.
    """
    report = Report(figure.name, figure.title, plain(base), measurement.machine())
    if path is not None and path.exists():
        report = Report.load(path)
    done = {entry.key for entry in report.entries}
    left = [step for step in wanted if step.key not in done]
    if not left:
        return report
    began = time.monotonic()
    with StormSeries(base) as series:
        for step in left:
            if deadline_s is not None and time.monotonic() - began > deadline_s:
                break
            settings = settings_at(base, step.point, step.turn)
            storm = series.run(settings, step.approach, on_step(step))
            report.entries.append(Entry(step.point, step.turn, storm, series.build))
            if path is not None:
                report.save(path)
    return report

"""The approaches of the testbed as a storm uses them: what each host reads is a file.

Non-cache and local cache are NBD exports; nbdfuse makes files of them, so that the guests of all
approaches do the same, and each pays one FUSE between itself and its server.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from bench.acstor.control import ControlPlan
from bench.acstor.settings import ROOT, EvaluationSettings
from testbed import processes
from testbed.approaches.base import Approach
from testbed.approaches.collaborative import Acstor, Collaborative, StaticCollaborative
from testbed.approaches.local_cache import LocalCache
from testbed.approaches.non_cache import NonCache
from testbed.guest.build import GuestImage
from testbed.host_processes import METRICS_PORT, MetricSample, write_configuration
from testbed.network import Namespace
from testbed.run_directory import ResourceKind
from testbed.testbed import Testbed

FILE_TIMEOUT_S = 30.0
CONTROL_TIMEOUT_S = 20.0
COUNTED = (
    "acstor_remapped_", "acstor_hedges", "acstor_origin_", "acstor_peer_fetch", "acstor_read_",
    "acstor_bypass", "acstor_peer_compress",
)  # fmt: skip
"""Metrics of data planes that a storm's report holds, by how their names begin."""
_GROWING = ("_total", "_sum", "_count")
Counters = Mapping[str, float]


class StormApproach:
    """One approach, used once.

    :param kept: the testbed's own; started by :meth:`start`.
    """

    def __init__(self, kept: Approach) -> None:
        self.kept = kept

    def start(self) -> None:
        """Start all servers with empty caches."""
        self.kept.start()

    def file(self, host: Namespace) -> pathlib.Path:
        """Return what the guests of a host read."""
        return pathlib.Path(self.kept.disk(host).location)

    def count(self) -> Counters:
        """Return counters summed over all data planes by name and labels; none without them."""
        return {}

    def measure(self) -> None:
        """Note what ends with the servers."""
        self.kept.measure()

    def stop(self) -> None:
        """Stop all servers; also after a start that failed half-way."""
        self.kept.stop()


class NbdApproach(StormApproach):
    """Non-cache or local cache, with a file in front of each host's export."""

    def __init__(self, kept: Approach, testbed: Testbed) -> None:
        super().__init__(kept)
        self._testbed = testbed
        self._files: dict[str, processes.RunningProcess] = {}

    def start(self) -> None:
        """Start the servers, then the files."""
        super().start()
        for host in self._testbed.hosts:
            mount = self._mount(host)
            self._testbed.run.record(ResourceKind.MOUNT, str(mount))
            command = ["nbdfuse", str(mount / "disk"), self.kept.disk(host).location]
            self._files[host.name] = self._testbed.table.spawn(
                f"{self.kept.name}-file-{host.name}", command, namespace=host
            )
        for host in self._testbed.hosts:
            processes.wait_until(
                self.file(host).exists,
                f"{host.name} has the file of {self.kept.name}",
                timeout_s=FILE_TIMEOUT_S,
                processes=[self._files[host.name]],
            )

    def file(self, host: Namespace) -> pathlib.Path:
        """Return nbdfuse's file."""
        return self._mount(host) / "disk"

    def stop(self) -> None:
        """Stop the files, then the servers."""
        self._testbed.table.stop(*self._files.values())
        self._files.clear()
        super().stop()

    def _mount(self, host: Namespace) -> pathlib.Path:
        return self._testbed.run.directory(self.kept.name, host.name, "file")


class CollaborativeApproach(StormApproach):
    """Either of the approaches that are our data plane."""

    def __init__(self, kept: Collaborative) -> None:
        super().__init__(kept)
        self._collaborative = kept

    def count(self) -> Counters:
        """Return the data planes' counters."""
        counters: dict[str, float] = {}
        for host in self._collaborative.hosts.values():
            for sample in host.metrics():
                if sample.name.startswith(COUNTED) and sample.name.endswith(_GROWING):
                    name = labelled(sample)
                    counters[name] = counters.get(name, 0.0) + sample.value
        return counters


class ControlledAcstor(Acstor):
    """ACStor with its agents and a policy service in one process (:mod:`bench.acstor.control`)."""

    def __init__(self, testbed: Testbed, image: GuestImage, settings: EvaluationSettings) -> None:
        super().__init__(testbed, image, settings.host_options())
        self._settings = settings
        self._control: processes.RunningProcess | None = None

    @property
    def journal(self) -> pathlib.Path:
        """Return the policy service's journal."""
        return self._directory / "policy" / "journal.jsonl"

    @property
    def _directory(self) -> pathlib.Path:
        return self.testbed.run.directory(self.name, "controller")

    def _give_ring_and_image(self) -> None:
        plan = ControlPlan(
            {
                name: (processes_of.host.namespace, str(processes_of.config_path))
                for name, processes_of in self.hosts.items()
            },
            str(self._policy_configuration()),
        )
        path = self._directory / "control.json"
        plan.save(path)
        self._control = self.testbed.table.spawn(
            "control",
            [sys.executable, "-m", "bench.acstor.control", str(path)],
            env={"PYTHONPATH": str(ROOT)},
        )

    def _policy_configuration(self) -> pathlib.Path:
        path = self._directory / "policy.conf"
        settings = self._settings
        write_configuration(
            path,
            {
                "DEFAULT": {"host": "controller", "state_path": str(self._directory)},
                "origin": {"url": self.repository.directory_url},
                "coordination": {
                    "backend_url": f"file://{self.testbed.run.directory(self.name, 'coordination')}"
                },
                "policy": {
                    "interval": str(settings.interval),
                    "weights": settings.weights,
                    "weight_lambda": str(settings.weight_lambda),
                    "metrics_port": str(METRICS_PORT),
                },
            },
        )
        return path

    @property
    def control_pid(self) -> int | None:
        """Return the id of the control process; None: it does not run."""
        return None if self._control is None else self._control.popen.pid

    def stop_control(self) -> dict[str, Any] | None:
        """Stop agents and policy service; return what they did, None where that is not known."""
        if self._control is None:
            return None
        process, self._control = self._control, None
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(CONTROL_TIMEOUT_S)
        self.testbed.table.stop(process)
        try:
            found: dict[str, Any] = json.loads(process.log_tail(1))
        except ValueError:
            return None
        return found

    def stop(self) -> None:
        """Stop the control process, then the hosts."""
        self.stop_control()
        super().stop()


def make(
    name: str, testbed: Testbed, image: GuestImage, settings: EvaluationSettings
) -> StormApproach:
    """Return an approach by its name."""
    if name == NonCache.name:
        return NbdApproach(NonCache(testbed, image), testbed)
    if name == LocalCache.name:
        return NbdApproach(LocalCache(testbed, image), testbed)
    if name == StaticCollaborative.name:
        return CollaborativeApproach(StaticCollaborative(testbed, image, settings.host_options()))
    return CollaborativeApproach(ControlledAcstor(testbed, image, settings))


def labelled(sample: MetricSample) -> str:
    """Return a sample's name with its labels, as Prometheus writes them."""
    labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}" if labels else sample.name

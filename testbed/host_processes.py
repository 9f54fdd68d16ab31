"""ACStor on one host of the testbed: its configuration, holder, data plane and agent."""

import configparser
import dataclasses
import pathlib
import sys
from typing import Any

from prometheus_client import parser

from acstor.control.client import AdminClient
from acstor.exception import AcstorError
from testbed import processes
from testbed.network import Namespace
from testbed.run_directory import ResourceKind
from testbed.testbed import Testbed

PEER_PORT = 7420
METRICS_PORT = 9471
READY_TIMEOUT_S = 240.0
#: Data planes preallocate it, on the one disk that all hosts of a testbed share.
STORE_CAPACITY = "512MiB"

Configuration = dict[str, dict[str, str]]


@dataclasses.dataclass(frozen=True)
class MetricSample:
    """One line of the Prometheus text format."""

    name: str
    labels: dict[str, str]
    value: float


class HostProcesses:
    """The processes of one host.

    :param name: of the approach: the host's state is kept below the run's directory of that name.
    :param overrides: options by group, over those that every host of a testbed has.
    """

    def __init__(
        self,
        testbed: Testbed,
        host: Namespace,
        name: str,
        origin_url: str,
        overrides: Configuration | None = None,
    ) -> None:
        self.host = host
        self._testbed = testbed
        self._name = name
        self.directory = testbed.run.directory(name, host.name)
        self.mount_point = testbed.run.directory(name, host.name, "images")
        self.config_path = self.directory / "acstor.conf"
        self._dataplane: processes.RunningProcess | None = None
        self._agent: processes.RunningProcess | None = None
        coordination = testbed.run.directory(name, "coordination")
        self._write_configuration(origin_url, coordination, overrides or {})
        self.admin = AdminClient(str(self.directory / "dataplane.sock"))

    def start_dataplane(self) -> None:
        """Start the data plane under its holder; does not wait."""
        self._testbed.run.record(ResourceKind.MOUNT, str(self.mount_point))
        config = ["--config-file", str(self.config_path)]
        self._dataplane = self._testbed.table.spawn(
            f"{self._name}-dataplane-{self.host.name}",
            [program("acstor-holder"), *config, "--", program("acstor-dataplane"), *config],
            namespace=self.host,
        )

    def start_agent(self) -> None:
        """Start the agent; does not wait."""
        self._agent = self._testbed.table.spawn(
            f"{self._name}-agent-{self.host.name}",
            [program("acstor-agent"), "--config-file", str(self.config_path)],
            namespace=self.host,
        )

    def wait_serving(self) -> None:
        """Wait until the data plane answers.

        :raises NotReadyError: when it does not in time, or a process ends.
        """
        self._wait(lambda: self.status() is not None, "serves")

    def wait_ready(self, image: str, ring_hosts: int) -> None:
        """Wait until an image is there and the ring has so many hosts.

        :raises NotReadyError: as :meth:`wait_serving`.
        """
        self._wait(lambda: self._has_image(image), f"has image {image}")
        self._wait(lambda: self._ring_hosts() >= ring_hosts, f"has a ring of {ring_hosts} hosts")

    def status(self) -> dict[str, Any] | None:
        """Return the data plane's status, None where it does not answer."""
        try:
            status: dict[str, Any] = self.admin.call("status")
        except AcstorError:
            return None
        return status

    def disk(self, image: str) -> pathlib.Path:
        """Return the file of an image in the mount. Nothing in this process opens it."""
        return self.mount_point / f"{image}.raw"

    def metrics(self) -> list[MetricSample]:
        """Return the data plane's metrics."""
        return parse_metrics(self.admin.call("metrics"))

    def stop(self) -> None:
        """Stop agent and data plane; the mount goes with the data plane."""
        running = [process for process in (self._agent, self._dataplane) if process is not None]
        self._agent = self._dataplane = None
        self._testbed.table.stop(*running)

    def _has_image(self, image: str) -> bool:
        if self.status() is None:
            return False
        return any(entry["id"] == image for entry in self.admin.call("image.list"))

    def _ring_hosts(self) -> int:
        ring = self.admin.call("ring.show")
        return 0 if ring is None else len(ring["hosts"])

    def _wait(self, condition: processes.Condition, what: str) -> None:
        running = [process for process in (self._dataplane, self._agent) if process is not None]
        processes.wait_until(
            condition,
            f"{self._name} on {self.host.name} {what}",
            timeout_s=READY_TIMEOUT_S,
            processes=running,
        )

    def _write_configuration(
        self, origin_url: str, coordination: pathlib.Path, overrides: Configuration
    ) -> None:
        directory = self.directory
        configuration: Configuration = {
            "DEFAULT": {"host": self.host.name, "state_path": str(directory / "state")},
            "origin": {"url": origin_url},
            "store": {"capacity": STORE_CAPACITY},
            "dataplane": {
                # The guest's kernel reads ahead, and so does the data plane. What the host's
                # kernel adds is mostly not asked for: 1.12 times the chunks at 64 KiB, 1.5
                # times at 1 MiB, 1.05 times without (two guests, 2026-11-21).
                "read_ahead_kb": "0",
                "mount_point": str(self.mount_point),
                "admin_socket": str(directory / "dataplane.sock"),
                "holder_socket": str(directory / "holder.sock"),
            },
            "volumes": {"enabled": "false"},
            "peer": {
                "listen_address": self.host.address,
                "listen_port": str(PEER_PORT),
                "tls_enabled": "false",
            },
            "coordination": {"backend_url": f"file://{coordination}"},
            "agent": {
                "interval": "1",
                "ring_settle_delay": "1",
                "ring_shrink_interval": "2",
                "metrics_address": self.host.address,
                "metrics_port": str(METRICS_PORT),
            },
        }
        for group, options in overrides.items():
            configuration.setdefault(group, {}).update(options)
        self._testbed.run.directory(self._name, self.host.name, "state")
        write_configuration(self.config_path, configuration)


def write_configuration(path: pathlib.Path, configuration: Configuration) -> None:
    """Write a file that oslo.config reads."""
    parser = configparser.RawConfigParser(default_section="")
    parser.read_dict(configuration)
    with path.open("w", encoding="utf-8") as file:
        parser.write(file)


def program(name: str) -> str:
    """Return a program of ours: that of the running interpreter's environment."""
    return str(pathlib.Path(sys.executable).parent / name)


def parse_metrics(text: str) -> list[MetricSample]:
    """Return the samples of a page in the Prometheus text format.

    :raises ValueError: when it is malformed.
    """
    return [
        MetricSample(sample.name, sample.labels, sample.value)
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    ]

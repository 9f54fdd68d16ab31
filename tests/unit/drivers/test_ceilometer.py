"""Ceilometer's pollsters of the host: what they read, and what they say of it."""

import importlib.util
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from acstor.drivers.ceilometer import host_reading
from acstor.http_server.metrics import MetricsEndpoint
from acstor.telemetry.traffic import InterfaceCounters, MovedBytes

ROOT = pathlib.Path(__file__).parents[3]
COUNTERS = InterfaceCounters("eth0", 2, 100, 200, 125e6)
METRICS = (
    "# TYPE acstor_peer_fetch_bytes counter\nacstor_peer_fetch_bytes_total 30\n"
    "# TYPE acstor_origin_bytes counter\nacstor_origin_bytes_total 5\n"
    "# TYPE acstor_serve_bytes counter\nacstor_serve_bytes_total 70\n# EOF\n"
)


class Interfaces:
    """Interfaces of the test's making."""

    def __init__(self, *found: InterfaceCounters) -> None:
        self.found = list(found)

    def read(self, peer_address: str | None) -> list[InterfaceCounters]:
        assert peer_address is None
        return self.found


@pytest.fixture
def serve() -> Iterator[Callable[[str], str]]:
    running: list[MetricsEndpoint] = []

    def serve(text: str) -> str:
        endpoint = MetricsEndpoint("127.0.0.1", 0, text=lambda: text, is_healthy=lambda: True)
        endpoint.start()
        running.append(endpoint)
        return f"http://{endpoint.address}/metrics"

    yield serve
    for endpoint in running:
        endpoint.stop()


def moved(url: str) -> MovedBytes | None:
    return host_reading.moved_bytes(url, 5.0, is_origin_remote=True)


def test_reading_says_all_that_rates_need() -> None:
    reading = host_reading.read(Interfaces(COUNTERS), lambda: MovedBytes(3, 4), lambda: 17.5)
    boot = host_reading.BOOT_ID.read_text().strip()
    assert reading.metadata("h1", COUNTERS, "sent") == {
        "host": "h1", "interface": "eth0", "index": 2, "interfaces": 1, "link_bytes_per_s": 125e6,
        "read_at": 17.5, "boot_id": boot, "moved_bytes": 4,
    }  # fmt: skip


def test_what_moved_is_left_out_where_nobody_asks_and_null_where_nobody_knows() -> None:
    not_asked = host_reading.read(Interfaces(COUNTERS), None)
    assert "moved_bytes" not in not_asked.metadata("h1", COUNTERS, "sent")
    not_known = host_reading.read(Interfaces(COUNTERS), lambda: None)
    assert not_known.metadata("h1", COUNTERS, "sent")["moved_bytes"] is None


def test_host_without_interfaces_is_an_error() -> None:
    with pytest.raises(OSError, match=r"\[acstor\] interfaces"):
        host_reading.read(Interfaces(), None)


def test_what_moved_is_read_from_the_agent(serve: Callable[[str], str]) -> None:
    url = serve(METRICS)
    assert moved(url) == MovedBytes(35.0, 70.0)
    local = host_reading.moved_bytes(url, 5.0, is_origin_remote=False)
    assert local == MovedBytes(30.0, 70.0)


@pytest.mark.parametrize("text", ["# EOF\n", "acstor_agent_members 3\n# EOF\n", "{{ x y\n"])
def test_agent_without_its_data_plane_says_nothing(serve: Callable[[str], str], text: str) -> None:
    assert moved(serve(text)) is None


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1/metrics", "file:///etc/passwd", "x"])
def test_agent_that_is_not_there_says_nothing(url: str) -> None:
    assert moved(url) is None


PROGRAM = """
import json
from ceilometer import service
from acstor.drivers.ceilometer.host_network import IncomingBytes, OutgoingBytes
conf = service.prepare_service([], [])
cache = {}
pollsters = [IncomingBytes(conf), OutgoingBytes(conf)]
conf.set_override("interfaces", ["lo"], "acstor")
conf.set_override("metrics_url", "", "acstor")
conf.set_override("host", "Compute-1", "acstor")
found = [each.as_dict() for p in pollsters for each in p.get_samples(None, cache, ["x"])]
print(json.dumps([[each.default_discovery for each in pollsters], found]))
"""


@pytest.mark.skipif(importlib.util.find_spec("ceilometer") is None, reason="needs ceilometer")
def test_pollsters_in_a_real_ceilometer() -> None:
    """In a process of its own: Ceilometer changes defaults of oslo.messaging and the log."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    discoveries, samples = json.loads(done.stdout.splitlines()[-1])
    assert discoveries == ["local_node"] * 2
    assert [each["name"] for each in samples] == [
        f"acstor.host.network.{direction}.bytes" for direction in ("incoming", "outgoing")
    ]
    assert {each["resource_id"] for each in samples} == {"compute-1.lo"}
    assert len({each["resource_metadata"]["read_at"] for each in samples}) == 1, "one reading"
    assert {each["type"] for each in samples} == {"cumulative"}


def test_entry_points_name_the_pollsters() -> None:
    text = (ROOT / "setup.cfg").read_text()
    for direction, name in (("incoming", "IncomingBytes"), ("outgoing", "OutgoingBytes")):
        assert (
            f"acstor.host.network.{direction}.bytes = "
            f"acstor.drivers.ceilometer.host_network:{name}" in text
        )
    source = (ROOT / "acstor/drivers/ceilometer/host_network.py").read_text()
    for name in ("IncomingBytes", "OutgoingBytes"):
        assert f"class {name}(HostBytes)" in source

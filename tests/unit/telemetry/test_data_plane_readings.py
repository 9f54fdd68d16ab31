"""Readings of a data plane's metrics: traffic, load, disk."""

import pytest

from acstor import exception
from acstor.telemetry import data_plane_readings
from acstor.telemetry.data_plane_readings import LoadMeter, Reading
from acstor.telemetry.traffic import MovedBytes

METRICS = """\
# TYPE acstor_peer_fetch_bytes counter
acstor_peer_fetch_bytes_total 1000
# TYPE acstor_serve_bytes counter
acstor_serve_bytes_total 300
# TYPE acstor_origin_bytes counter
acstor_origin_bytes_total 50
# TYPE acstor_serves_inflight gauge
acstor_serves_inflight 5
# TYPE acstor_serves counter
acstor_serves_total{outcome="store"} 70
acstor_serves_total{outcome="overloaded"} 3
# TYPE acstor_store_read_errors counter
acstor_store_read_errors_total 1
# TYPE acstor_inserts counter
acstor_inserts_total{outcome="failed"} 2
acstor_inserts_total{outcome="new"} 9
# TYPE acstor_read_chunks counter
acstor_read_chunks_total{tier="store"} 7
acstor_read_chunks_total{tier="peer"} 1
# EOF
"""


@pytest.mark.parametrize(("is_remote", "received"), [(True, 1050.0), (False, 1000.0)])
def test_reading(is_remote: bool, received: float) -> None:
    found = data_plane_readings.read(METRICS, is_origin_remote=is_remote)
    assert found == Reading(MovedBytes(received, 300.0), 5.0, 3.0, 3.0, {"store": 7.0, "peer": 1.0})


def test_what_compression_saved_was_not_moved() -> None:
    saved = """\
# TYPE acstor_peer_client_saved_bytes counter
acstor_peer_client_saved_bytes_total 400
# TYPE acstor_peer_server_saved_bytes counter
acstor_peer_server_saved_bytes_total 100
# EOF
"""
    found = data_plane_readings.read(METRICS.replace("# EOF\n", saved), is_origin_remote=True)
    assert found is not None
    assert found.moved == MovedBytes(650.0, 200.0)


def test_metrics_of_others_are_no_reading() -> None:
    text = "# TYPE acstor_agent_members gauge\nacstor_agent_members 3\n# EOF\n"
    assert data_plane_readings.read(text, is_origin_remote=True) is None


@pytest.mark.parametrize("text", ["acstor_serve_bytes_total x y z{{\n", "acstor_serves_total 4\n"])
def test_malformed_metrics_are_an_error(text: str) -> None:
    with pytest.raises(exception.InvalidError, match="metrics of the data plane"):
        data_plane_readings.read(text, is_origin_remote=True)


def test_load_is_the_part_of_the_requests_that_are_answered_at_a_time() -> None:
    meter = LoadMeter(100)
    assert meter.sample(Reading(inflight=25)).load == 0.25
    assert meter.sample(Reading(inflight=250)).load == 1.0


def test_load_is_full_where_requests_are_refused() -> None:
    meter = LoadMeter(100)
    meter.sample(Reading(refused=5))
    assert meter.sample(Reading(refused=5)).load == 0.0
    assert meter.sample(Reading(refused=6)).load == 1.0
    assert meter.sample(Reading(refused=0)).load == 0.0  # it was restarted
    assert meter.sample(Reading(refused=1)).load == 1.0


def test_disk_is_well_while_nothing_fails() -> None:
    meter = LoadMeter(100)
    assert not meter.sample(Reading(disk_errors=4)).disk.is_healthy
    assert meter.sample(Reading(disk_errors=4)).disk.is_healthy
    assert not meter.sample(Reading(disk_errors=5)).disk.is_healthy


def test_hits_are_those_since_the_last_reading() -> None:
    meter = LoadMeter(100)
    meter.sample(Reading(chunks={"store": 100, "origin": 100}))
    assert meter.sample(Reading(chunks={"store": 103, "origin": 101})).hits == {
        "store": 0.75,
        "origin": 0.25,
    }
    assert meter.sample(Reading(chunks={"store": 103, "origin": 101})).hits == {}

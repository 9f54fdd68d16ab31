import prometheus_client
from prometheus_client.openmetrics import exposition

from acstor.telemetry.dependency_gauge import DependencyGauge


def test_value_has_the_label_by_both_names() -> None:
    registry = prometheus_client.CollectorRegistry()
    gauge = DependencyGauge("acstor_test_up", "A test", registry)
    gauge.set("origin", True)
    gauge.set("broker", False)
    text: bytes = exposition.generate_latest(registry)  # type: ignore[no-untyped-call]
    lines = text.decode().splitlines()
    assert 'acstor_test_up{dependency="origin",neighbour="origin"} 1.0' in lines
    assert 'acstor_test_up{dependency="broker",neighbour="broker"} 0.0' in lines

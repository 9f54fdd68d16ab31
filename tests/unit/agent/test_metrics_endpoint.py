import pathlib
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from acstor import metrics_endpoint
from acstor.agent import metrics
from acstor.agent.metrics import AgentMetrics
from acstor.agent.states import AgentState
from acstor.metrics_endpoint import MetricsEndpoint

PAGE = pathlib.Path(__file__).parents[3] / "doc" / "source" / "admin" / "metrics-agent.rst"


class Answers:
    """What the endpoint is told to say."""

    def __init__(self) -> None:
        self.is_healthy = True
        self.text: Callable[[], str] = lambda: AgentMetrics().text()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def endpoint(answers: Answers) -> Iterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint(
        "127.0.0.1", 0, text=lambda: answers.text(), is_healthy=lambda: answers.is_healthy
    )
    endpoint.start()
    yield endpoint
    endpoint.stop()


def get(endpoint: MetricsEndpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{endpoint.address}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def families_of(text: str) -> list[Any]:
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def test_metrics_of_agent_and_data_plane_are_one_openmetrics_text() -> None:
    agent = AgentMetrics()
    agent.set_state(AgentState.ACTIVE)
    agent.set_images(registered=3)
    data_plane = "# TYPE acstor_reads counter\nacstor_reads_total 5\n# EOF\n"
    text = agent.text(data_plane)
    assert text.count("# EOF") == 1
    families = {family.name: family for family in families_of(text)}
    assert families["acstor_reads"].samples[0].value == 5
    states = {s.labels["state"]: s.value for s in families[metrics.STATE].samples}
    assert states == {state.value: float(state is AgentState.ACTIVE) for state in AgentState}


def test_absent_data_plane_leaves_the_agents_metrics() -> None:
    text = AgentMetrics().text()
    assert text.endswith("# EOF\n")
    assert families_of(text)


def test_metrics_are_served(endpoint: MetricsEndpoint) -> None:
    status, text = get(endpoint, "/metrics")
    assert status == 200
    assert metrics.MEMBERS in text


@pytest.mark.parametrize(("healthy", "status"), [(True, 200), (False, 503)])
def test_health_is_a_status(
    endpoint: MetricsEndpoint, answers: Answers, healthy: bool, status: int
) -> None:
    answers.is_healthy = healthy
    assert get(endpoint, "/healthz")[0] == status


def test_other_paths_are_not_found(endpoint: MetricsEndpoint) -> None:
    assert get(endpoint, "/../etc/passwd")[0] == 404


def test_one_request_too_many_is_refused(endpoint: MetricsEndpoint, answers: Answers) -> None:
    entered, opened = threading.Semaphore(0), threading.Event()

    def wait() -> str:
        entered.release()
        assert opened.wait(20)
        return ""

    answers.text = wait
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(get(endpoint, "/metrics")[0]))
        for _ in range(metrics_endpoint.REQUESTS_MAX)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=20)
    assert get(endpoint, "/metrics")[0] == 503
    opened.set()
    for thread in threads:
        thread.join(20)
    assert results == [200] * metrics_endpoint.REQUESTS_MAX


def test_page_lists_every_metric() -> None:
    page = PAGE.read_text()
    assert not [name for name in metrics.ALL if f"``{name}``" not in page]

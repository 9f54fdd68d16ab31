import contextlib
import pathlib
import selectors
import socket
import socketserver
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg
from prometheus_client.openmetrics import parser

from acstor import exception
from acstor.agent import metrics
from acstor.agent.metrics import AgentMetrics
from acstor.agent.states import AgentState
from acstor.cli import metrics_tls, samples
from acstor.conf import metrics as conf_metrics
from acstor.http_server import metrics as metrics_endpoint
from acstor.http_server.metrics import MetricsEndpoint
from testbed.fixtures.conditions import wait_for

PAGE = pathlib.Path(__file__).parents[3] / "doc" / "source" / "admin" / "metrics-agent.rst"

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
ConfiguredEnd = tuple[cfg.ConfigOpts, MetricsEndpoint]


class Answers:
    """Answers that the endpoint is told to give."""

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


def test_endpoint_that_nobody_asks_does_nothing_until_it_is_stopped(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked twice a second whether it was to stop: a twentieth of what an idle agent used."""
    waits: list[float | None] = []

    class Waits(selectors.PollSelector):
        def select(self, timeout: float | None = None) -> Any:
            waits.append(timeout)
            return super().select(timeout)

    monkeypatch.setattr(socketserver, "_ServerSelector", Waits)
    endpoint = MetricsEndpoint("127.0.0.1", 0, text=lambda: "", is_healthy=lambda: True)
    endpoint.start()
    wait_for("it waits", lambda: waits)
    assert get(endpoint, "/healthz")[0] == 200
    endpoint.stop()
    endpoint._thread.join(20)
    assert not endpoint._thread.is_alive()
    assert all(wait is not None and wait >= 60 for wait in waits)


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
    with pytest.raises(OSError, match=r"closed|reset|Remote end"):
        get(endpoint, "/metrics")
    opened.set()
    for thread in threads:
        thread.join(20)
    assert results == [200] * metrics_endpoint.REQUESTS_MAX


def address_of(endpoint: MetricsEndpoint) -> tuple[str, int]:
    host, _, port = endpoint.address.rpartition(":")
    return host, int(port)


def test_silent_connections_keep_nobody_out_and_have_no_threads(endpoint: MetricsEndpoint) -> None:
    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(address_of(endpoint), timeout=20))
        assert get(endpoint, "/metrics")[0] == 200
        made = [one for one in set(threading.enumerate()) - before if "request" in one.name]
        assert len(made) <= metrics_endpoint.REQUESTS_MAX


def test_request_that_dribbles_is_cut_off(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, the whole does not."""
    monkeypatch.setattr(metrics_endpoint, "REQUEST_TIMEOUT", 0.3)
    endpoint = MetricsEndpoint(
        "127.0.0.1", 0, text=lambda: answers.text(), is_healthy=lambda: answers.is_healthy
    )
    endpoint.start()
    with socket.create_connection(address_of(endpoint), timeout=0.05) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")

        def is_closed() -> bool:
            connection.sendall(b"x")
            try:
                return connection.recv(1) == b""
            except TimeoutError:
                return False

        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wait_for("it is cut off", is_closed, 10)
    endpoint.stop()


class Certificates:
    """An authority, and certificates of it and of another one, as files."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.authority = self._self_signed("ca")
        self.server = self._signed("server")
        self.client = self._signed("client")
        self.stranger = self._self_signed("stranger")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], check=True, capture_output=True, timeout=60, cwd=self.directory
        )

    def _self_signed(self, name: str) -> str:
        self._openssl(
            "req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2",
            "-subj", f"/CN={name}",
        )  # fmt: skip
        return self._joined(name)

    def _signed(self, name: str) -> str:
        self._openssl(
            "req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
            "-addext", "subjectAltName=IP:127.0.0.1",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-copy_extensions", "copy", "-days", "2", "-out", f"{name}.pem",
        )  # fmt: skip
        return self._joined(name)

    def renew_server(self) -> None:
        """Put another certificate in the place of the server's."""
        self._signed("server")

    def _joined(self, name: str) -> str:
        """Write certificate and key into one file, in one step."""
        path, fresh = self.directory / f"{name}-both.pem", self.directory / f"{name}.new"
        parts = [self.directory / f"{name}.pem", self.directory / f"{name}.key"]
        fresh.write_text("".join(part.read_text() for part in parts))
        fresh.rename(path)
        return str(path)

    def trusting(self, own: str | None = None) -> ssl.SSLContext:
        """Return the context of a client that shows a certificate."""
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        if own is not None:
            context.load_cert_chain(own)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secured(answers: Answers, certificates: Certificates) -> Iterator[Callable[..., ConfiguredEnd]]:
    with contextlib.ExitStack() as stack:

        def secured(**options: str | None) -> ConfiguredEnd:
            conf = cfg.ConfigOpts()
            conf.register_opts(conf_metrics.options(0), group="agent")
            conf([])
            for name, value in options.items():
                conf.set_override(name, value, group="agent")
            endpoint = metrics_endpoint.of_options(
                conf, "agent", text=lambda: answers.text(), is_healthy=lambda: True
            )
            endpoint.start()
            stack.callback(endpoint.stop)
            return conf, endpoint

        yield secured


def get_by_tls(endpoint: MetricsEndpoint, context: ssl.SSLContext) -> int:
    with urllib.request.urlopen(endpoint.url, timeout=20, context=context) as answer:
        return int(answer.status)


def test_metrics_by_tls(secured: Callable[..., ConfiguredEnd], certificates: Certificates) -> None:
    _, endpoint = secured(metrics_cert_file=certificates.server)
    assert endpoint.url.startswith("https://127.0.0.1:")
    assert get_by_tls(endpoint, certificates.trusting()) == 200
    with pytest.raises(OSError, match=r"."):
        get(endpoint, "/metrics")  # in the clear
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(address_of(endpoint), timeout=20))
        assert get_by_tls(endpoint, certificates.trusting()) == 200


def test_metrics_for_clients_of_an_authority_only(
    secured: Callable[..., ConfiguredEnd], certificates: Certificates
) -> None:
    authority = str(certificates.directory / "ca.pem")
    conf, endpoint = secured(metrics_cert_file=certificates.server, metrics_ca_file=authority)
    assert get_by_tls(endpoint, certificates.trusting(certificates.client)) == 200
    for other in (None, certificates.stranger):
        with pytest.raises(OSError, match=r"."):
            get_by_tls(endpoint, certificates.trusting(other))
    # As the commands of ACStor on a host with the same options do.
    sample = samples.fetch(endpoint.address, metrics_tls.client_context(conf))
    assert (sample.problem, bool(sample.values)) == (None, True)
    assert samples.fetch(endpoint.address).problem is not None


def test_renewed_certificate_is_shown_without_a_restart(
    secured: Callable[..., ConfiguredEnd], certificates: Certificates
) -> None:
    _, endpoint = secured(metrics_cert_file=certificates.server)

    def shown() -> str:
        return ssl.get_server_certificate(address_of(endpoint), timeout=20)

    first = shown()
    certificates.renew_server()
    second = shown()
    assert second != first
    pathlib.Path(certificates.server).write_text("no certificate")
    assert shown() == second
    certificates.renew_server()
    assert shown() not in {first, second}


def test_unusable_files_are_named(
    secured: Callable[..., ConfiguredEnd], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(exception.ConfigurationError, match=r"absent\.pem"):
        secured(metrics_cert_file=str(tmp_path / "absent.pem"))


def test_page_lists_every_metric() -> None:
    page = PAGE.read_text()
    assert not [name for name in metrics.ALL if f"``{name}``" not in page]

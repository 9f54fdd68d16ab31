"""One suite that every source of the power budget passes, see power/budgets/base.py."""

import contextlib
import http.server
import json
import os
import pathlib
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin.replicated.power.budgets.base import BUDGET_MAX, TEXT_SIZE_MAX, BudgetSource
from acstor.origin.replicated.power.budgets.faulty import FaultyBudget
from acstor.origin.replicated.power.budgets.file import FileBudget
from acstor.origin.replicated.power.budgets.http import HttpAccess, HttpBudget
from acstor.origin.replicated.power.budgets.memory import MemoryBudget
from acstor.origin.replicated.power.budgets.prometheus import PrometheusBudget
from testbed.fixtures.conditions import PATIENCE

HASTY_SECONDS = 0.3
PATIENT_SECONDS = 60.0
ANSWERS_SECONDS = 20.0 * PATIENCE
"""Longest time of a call whose deadline is hasty, however busy the machine is."""
QUERY = "sum(power_watts_free)"


class Server(http.server.ThreadingHTTPServer):
    """A web server that says what it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = b""
        self.status = 200
        self.is_dribbling = False
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ended = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def end(self) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        self.send_response(self.server.status)
        if 300 <= self.server.status < 400:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.server.is_dribbling and not self.server.ended.wait(0.02):
                self.wfile.write(b" ")
            self.wfile.write(self.server.body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Place:
    """A source, and what it reads.

    :param say: has the place say a text.
    """

    def __init__(self, source: BudgetSource, say: Callable[[str], None]) -> None:
        self.source = source
        self.say = say


def _memory(folder: pathlib.Path, server: Server) -> Place:
    source = MemoryBudget(0.0)
    return Place(source, lambda text: setattr(source, "value", text))


def _faulty(folder: pathlib.Path, server: Server) -> Place:
    inner = MemoryBudget(0.0)
    return Place(FaultyBudget(inner), lambda text: setattr(inner, "value", text))


def _file(folder: pathlib.Path, server: Server) -> Place:
    path = folder / "budget"
    return Place(FileBudget(str(path), PATIENT_SECONDS), lambda text: void(path.write_text(text)))


def _http(folder: pathlib.Path, server: Server) -> Place:
    source = HttpBudget(server.url + "/budget?of=row-7", HttpAccess(PATIENT_SECONDS))
    return Place(source, lambda text: setattr(server, "body", text.encode()))


def _vector(folder: pathlib.Path, server: Server) -> Place:
    def say(text: str) -> None:
        data = {"resultType": "vector", "result": [{"metric": {}, "value": [1.5, text]}]}
        server.body = json.dumps({"status": "success", "data": data}).encode()

    return Place(PrometheusBudget(server.url + "/", QUERY, HttpAccess(PATIENT_SECONDS)), say)


def _scalar(folder: pathlib.Path, server: Server) -> Place:
    def say(text: str) -> None:
        data = {"resultType": "scalar", "result": [1.5, text]}
        server.body = json.dumps({"status": "success", "data": data}).encode()

    return Place(PrometheusBudget(server.url, QUERY, HttpAccess(PATIENT_SECONDS)), say)


FACTORIES = {
    "memory": _memory, "faulty": _faulty, "file": _file, "http": _http,
    "prometheus vector": _vector, "prometheus scalar": _scalar,
}  # fmt: skip


def void(result: object) -> None:
    """Return nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.end()


@pytest.fixture(params=sorted(FACTORIES))
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path, server: Server) -> Place:
    return FACTORIES[request.param](tmp_path, server)


@pytest.mark.parametrize("text", ["0", "350", " 350.5\n", "3.5e2", str(BUDGET_MAX)])
def test_number_is_the_budget(place: Place, text: str) -> None:
    place.say(text)
    assert place.source.read() == float(text)
    place.say("7")
    assert place.source.read() == 7.0


@pytest.mark.parametrize("text", ["", "much", "-1", "nan", "inf", "1e300", "350 watts", "\0"])
def test_anything_else_is_no_budget(place: Place, text: str) -> None:
    place.say(text)
    with pytest.raises(exception.CorruptError) as found:
        place.source.read()
    assert not found.value.is_transient


def test_place_is_told(place: Place) -> None:
    assert place.source.description
    assert "row-7" not in place.source.description, "a query may have a secret"


@pytest.mark.parametrize("name", ["file", "http", "prometheus scalar"])
def test_too_long_answer_is_refused(name: str, tmp_path: pathlib.Path, server: Server) -> None:
    place = FACTORIES[name](tmp_path, server)
    place.say("7" + " " * (TEXT_SIZE_MAX + 1))
    with pytest.raises(exception.CorruptError):
        place.source.read()


@pytest.mark.parametrize("status", [204, 301, 401, 404, 500, 503])
@pytest.mark.parametrize("name", ["http", "prometheus vector"])
def test_other_answers_of_a_server_are_no_budget(
    name: str, status: int, tmp_path: pathlib.Path, server: Server
) -> None:
    place = FACTORIES[name](tmp_path, server)
    place.say("350")
    server.status = status
    with pytest.raises(exception.UnavailableError, match=str(status)):
        place.source.read()
    assert len(server.requests) == 1, "redirections are not followed"


def test_source_that_is_not_there_is_unavailable(tmp_path: pathlib.Path) -> None:
    gone = Server()
    url = gone.url
    gone.end()
    access = HttpAccess(PATIENT_SECONDS)
    sources: list[BudgetSource] = [
        FileBudget(str(tmp_path / "none"), PATIENT_SECONDS),
        HttpBudget(url, access),
        PrometheusBudget(url, QUERY, access),
    ]
    for source in sources:
        with pytest.raises(exception.UnavailableError):
            source.read()


@pytest.mark.parametrize("kind", ["http", "prometheus"])
def test_server_that_dribbles_ends_by_the_deadline(kind: str, server: Server) -> None:
    server.is_dribbling = True
    access = HttpAccess(HASTY_SECONDS)
    source: BudgetSource = HttpBudget(server.url, access)
    if kind == "prometheus":
        source = PrometheusBudget(server.url, QUERY, access)
    begun = time.monotonic()
    with pytest.raises(exception.DeadlineError):
        source.read()
    assert time.monotonic() - begun < ANSWERS_SECONDS


def test_file_that_hangs_ends_by_the_deadline(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)  # nobody writes: opening it waits
    begun = time.monotonic()
    with pytest.raises(exception.DeadlineError):
        FileBudget(str(path), HASTY_SECONDS).read()
    assert time.monotonic() - begun < ANSWERS_SECONDS
    with open(path, "wb"):
        pass  # lets the abandoned thread go


def test_query_and_token_are_sent(tmp_path: pathlib.Path, server: Server) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    server.body = b'{"data": {"resultType": "scalar", "result": [1, "5"]}}'
    access = HttpAccess(PATIENT_SECONDS, token_file=str(token))
    assert PrometheusBudget(server.url, QUERY, access).read() == 5.0
    path, headers = server.requests[0]
    parts = urllib.parse.urlsplit(path)
    assert parts.path == "/api/v1/query"
    assert urllib.parse.parse_qs(parts.query) == {"query": [QUERY]}
    assert headers["Authorization"] == "Bearer s3cret"
    token.chmod(0o644)
    with pytest.raises(exception.ConfigurationError, match="others may read it"):
        HttpBudget(server.url, access).read()


@pytest.mark.parametrize(
    ("url", "query", "token"),
    [
        ("http://user:secret@prometheus", QUERY, None),
        ("http://prometheus", QUERY, "/etc/token"),
        ("https://prometheus", "", None),
    ],
)
def test_what_would_show_secrets_or_ask_nothing_is_refused(
    url: str, query: str, token: str | None
) -> None:
    with pytest.raises(exception.ConfigurationError) as found:
        PrometheusBudget(url, query, HttpAccess(1.0, token_file=token))
    assert "secret" not in str(found.value)


@pytest.mark.parametrize(
    "data",
    [
        {"resultType": "vector", "result": []},
        {"resultType": "vector", "result": [{"value": [1, "1"]}, {"value": [1, "2"]}]},
        {"resultType": "matrix", "result": []},
        {"resultType": "scalar", "result": "1"},
        {"resultType": "scalar"},
        [],
    ],
)
def test_other_results_of_prometheus_are_no_budget(data: object, server: Server) -> None:
    server.body = json.dumps({"status": "success", "data": data}).encode()
    with pytest.raises(exception.CorruptError):
        PrometheusBudget(server.url, QUERY, HttpAccess(PATIENT_SECONDS)).read()
    server.body = b"<html>"
    with pytest.raises(exception.CorruptError, match="no JSON"):
        PrometheusBudget(server.url, QUERY, HttpAccess(PATIENT_SECONDS)).read()

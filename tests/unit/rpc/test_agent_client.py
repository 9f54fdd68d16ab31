"""Calls between hosts over oslo.messaging's in-process transport."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import RING_VERSION, VERSION, as_response, make_target
from tests.unit.rpc.conftest import Listen


class _Endpoint:
    """Answers as the test wants."""

    def __init__(self, version: str = VERSION) -> None:
        self.target = make_target(version)
        self.released = threading.Event()
        self.calls = 0

    def greet(self, context: dict[str, Any], name: str) -> dict[str, object]:
        self.calls += 1
        return {"result": f"hello {name}"}

    def refuse(self, context: dict[str, Any]) -> dict[str, object]:
        self.calls += 1

        def refuse() -> object:
            raise exception.ExhaustedError("no room", hint="make some")

        return as_response("h1", refuse)

    def fail(self, context: dict[str, Any]) -> dict[str, object]:

        def fail() -> object:
            raise ValueError("a fault")

        return as_response("h1", fail)

    def babble(self, context: dict[str, Any]) -> object:
        return ["what"]

    def wait(self, context: dict[str, Any]) -> dict[str, object]:
        self.calls += 1
        self.released.wait(20)
        return {"result": None}

    def _secret(self, context: dict[str, Any]) -> dict[str, object]:
        return {"result": "told"}


@pytest.fixture
def client(conf: cfg.ConfigOpts) -> Iterator[AgentClient]:
    with transport.opened(conf) as opened:
        yield AgentClient(opened, timeout=60.0)


def test_answers_and_refusals_keep_their_meaning(client: AgentClient, listen: Listen) -> None:
    endpoint = _Endpoint()
    listen("h1", endpoint)
    assert client.call("h1", "greet", name="you") == "hello you"
    with pytest.raises(exception.ExhaustedError) as caught:
        client.call("h1", "refuse")
    assert (caught.value.message, caught.value.hint) == ("no room", "make some")
    assert endpoint.calls == 2, "what a host refuses is not asked again"


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("fail", exception.InternalError),
        ("babble", exception.InternalError),
        ("unknown", exception.UnsupportedError),
        ("_secret", exception.UnsupportedError),
    ],
)
def test_what_a_host_cannot_do_is_an_error(
    client: AgentClient, listen: Listen, method: str, expected: type[exception.AcstorError]
) -> None:
    listen("h1", _Endpoint())
    with pytest.raises(expected):
        client.call("h1", method)


def test_older_agent_is_told_from_a_silent_one(client: AgentClient, listen: Listen) -> None:
    listen("h1", _Endpoint(RING_VERSION))
    with pytest.raises(exception.UnsupportedError, match="does not know greet"):
        client.call("h1", "greet", name="you")


def test_silent_host_is_listed_and_holds_up_nobody(
    client: AgentClient, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = client._client.prepare

    def prepared(server: str, **how: Any) -> Any:
        # The silent one only: nothing says how soon the other has its turn to answer.
        return prepare(server=server, timeout=0.2 if server == "h2" else 60.0, **how)

    monkeypatch.setattr(client._client, "prepare", prepared)
    quick, silent = _Endpoint(), _Endpoint()
    listen("h1", quick)
    listen("h2", silent)
    threading.Timer(0.5, quick.released.set).start()
    try:
        answers = client.call_all(["h2", "h1"], "wait", {})
    finally:
        silent.released.set()
    assert list(answers) == ["h2", "h1"]
    assert answers["h1"].error is None
    assert isinstance(answers["h2"].error, exception.DeadlineError)
    assert silent.calls == 1, "a silent host is not asked twice"


def test_caller_with_another_exchange_is_answered(conf: cfg.ConfigOpts, listen: Listen) -> None:
    """As cinder-volume with ``control_exchange = cinder``."""
    listen("h1", _Endpoint())
    with transport.opened(conf) as opened:
        settings = opened.conf
    settings.set_override("control_exchange", "cinder")
    try:
        with transport.opened(conf) as opened:
            assert opened._driver._default_exchange == "cinder"
            client = AgentClient(opened, timeout=10.0)
            assert client.call("h1", "greet", name="you") == "hello you"
    finally:
        settings.clear_override("control_exchange")

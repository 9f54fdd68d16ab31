"""Authentication of calls to an agent that has a secret."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent import assembly
from acstor.conf import loading
from acstor.rpc import signature, transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import VERSION, as_response, make_target
from acstor.rpc.signature import CONTEXT_KEY, WINDOW_SECONDS, SignedEndpoint, Signer, Verifier
from tests.unit.rpc.conftest import Listen

OLD, NEW = "an old secret 123456", "a new secret 1234567"
ARGUMENTS: dict[str, object] = {"volume": "v", "timeout_s": 1.5, "regions": {"a": [1, None]}}


@dataclasses.dataclass
class Clock:
    """Seconds since the epoch, moved by the test."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(clock: Clock) -> Verifier:
    return Verifier("h1", (OLD, NEW), clock)


def signed(clock: Clock, secret: str | None = NEW, **other: Any) -> dict[str, Any]:
    call = {"host": "h1", "method": "volume_freeze", "arguments": ARGUMENTS, **other}
    return Signer(secret, clock).context(call["host"], call["method"], call["arguments"])


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_call_signed_with_any_secret_is_taken(
    verifier: Verifier, clock: Clock, secret: str
) -> None:
    carried = json.loads(json.dumps([signed(clock, secret), ARGUMENTS]))
    verifier.check(carried[0], "volume_freeze", carried[1])


def test_arguments_are_signed_as_they_arrive(verifier: Verifier, clock: Clock) -> None:
    arguments: dict[str, object] = {"x": (1, 2), "y": {"ö": "ä", "a": 1e300}}
    context = signed(clock, arguments=arguments)
    verifier.check(context, "volume_freeze", json.loads(json.dumps(arguments)))


@pytest.mark.parametrize(
    "other",
    [
        {"secret": "another secret 12345"},
        {"host": "h2"},
        {"method": "volume_thaw"},
        {"arguments": {**ARGUMENTS, "timeout_s": 2}},
        {"arguments": {}},
    ],
    ids=str,
)
def test_call_that_is_another_than_what_was_signed_is_refused(
    verifier: Verifier, clock: Clock, other: dict[str, Any]
) -> None:
    with pytest.raises(exception.InvalidError, match="signed with another secret"):
        verifier.check(signed(clock, **other), "volume_freeze", ARGUMENTS)


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"version": True},
        {"signed_at": -1},
        {"signed_at": 1.5},
        {"signed_at": "1"},
        {"signed_at": None},
        {"nonce": ""},
        {"nonce": "g" * 32},
        {"nonce": ["0"] * 32},
        {"mac": None},
        {"mac": "é" * 64},
        {"mac": "0" * 63},
    ],
    ids=str,
)
def test_malformed_signature_is_refused(
    verifier: Verifier, clock: Clock, changed: dict[str, object]
) -> None:
    context = signed(clock)
    context[CONTEXT_KEY].update(changed)
    with pytest.raises(exception.InvalidError, match="malformed"):
        verifier.check(context, "volume_freeze", ARGUMENTS)


@pytest.mark.parametrize("context", [{}, {CONTEXT_KEY: None}, {CONTEXT_KEY: "x"}], ids=str)
def test_unsigned_call_is_refused(verifier: Verifier, context: dict[str, object]) -> None:
    with pytest.raises(exception.InvalidError, match="is not signed") as caught:
        verifier.check(context, "volume_freeze", ARGUMENTS)
    assert "[rpc] secrets" in caught.value.hint


def test_agent_without_secrets_takes_every_call(clock: Clock) -> None:
    Verifier("h1", (), clock).check({}, "volume_freeze", ARGUMENTS)


def test_call_is_taken_once(verifier: Verifier, clock: Clock) -> None:
    context = signed(clock)
    verifier.check(context, "volume_freeze", ARGUMENTS)
    with pytest.raises(exception.InvalidError, match="made before"):
        verifier.check(context, "volume_freeze", ARGUMENTS)
    verifier.check(signed(clock), "volume_freeze", ARGUMENTS)


@pytest.mark.parametrize("late", [WINDOW_SECONDS + 1, -WINDOW_SECONDS - 1])
def test_call_of_another_time_is_refused(verifier: Verifier, clock: Clock, late: float) -> None:
    clock.now += 1000
    context = signed(clock)
    clock.now += late
    with pytest.raises(exception.InvalidError, match="the call was signed"):
        verifier.check(context, "volume_freeze", ARGUMENTS)


def test_call_from_before_the_agents_start_is_refused(verifier: Verifier, clock: Clock) -> None:
    """The process before may have taken it."""
    context = signed(clock)
    verifier.check(context, "volume_freeze", ARGUMENTS)
    clock.now += 1
    with pytest.raises(exception.InvalidError, match="before the agent was started"):
        Verifier("h1", (NEW,), clock).check(context, "volume_freeze", ARGUMENTS)


def test_no_more_is_remembered_than_a_bound(
    verifier: Verifier, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signature, "NONCES_MAX", 3)
    for _ in range(3):
        verifier.check(signed(clock), "volume_freeze", ARGUMENTS)
    with pytest.raises(exception.OverloadedError):
        verifier.check(signed(clock), "volume_freeze", ARGUMENTS)
    clock.now += WINDOW_SECONDS + 1
    verifier.check(signed(clock), "volume_freeze", ARGUMENTS)


def test_what_json_cannot_carry_is_not_signed(clock: Clock) -> None:
    with pytest.raises(exception.InvalidError, match="cannot be signed"):
        signed(clock, arguments={"rate": float("nan")})


def test_short_secret_is_refused_and_not_told() -> None:
    with pytest.raises(exception.ConfigurationError) as caught:
        signature.checked_secrets(["long enough 123456", "short-one"])
    assert "short-one" not in f"{caught.value}{caught.value.hint}"


def test_agent_answers_signed_calls_only(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[DEFAULT]\nhost = h1\nstate_path = {tmp_path}\n[rpc]\nsecrets = {OLD}\n")
    conf = loading.load("test", ["--config-file", str(path)])
    (volumes,) = assembly.endpoints(conf, ())
    arguments = {"volume": "no id"}
    refused = volumes.volume_status({}, **arguments)  # type: ignore[attr-defined]
    assert "is not signed" in refused["error"]["message"]
    context = Signer(OLD).context("h1", "volume_status", arguments)
    taken = volumes.volume_status(context, **arguments)  # type: ignore[attr-defined]
    assert "signed" not in taken["error"]["message"], "its arguments are looked at"


class _Endpoint:
    def __init__(self) -> None:
        self.target = make_target(VERSION)
        self.calls = 0

    def greet(self, context: dict[str, Any], name: str) -> dict[str, object]:
        self.calls += 1
        return as_response("h1", lambda: f"hello {name}")


@pytest.mark.parametrize(
    ("caller", "agent", "is_taken"),
    [
        (OLD, (OLD,), True),
        (OLD, (NEW, OLD), True),
        (OLD, (), True),
        (None, (), True),
        (None, (OLD,), False),
        (OLD, (NEW,), False),
    ],
)
def test_calls_over_a_bus(
    conf: cfg.ConfigOpts,
    listen: Listen,
    caller: str | None,
    agent: tuple[str, ...],
    is_taken: bool,
) -> None:
    endpoint = _Endpoint()
    listen("h1", SignedEndpoint(endpoint, "h1", Verifier("h1", agent)))
    with transport.opened(conf) as opened:
        client = AgentClient(opened, 10.0, Signer(caller))
        if is_taken:
            assert client.call("h1", "greet", name="you") == "hello you"
        else:
            with pytest.raises(exception.InvalidError, match="signed"):
                client.call("h1", "greet", name="you")
        with pytest.raises(exception.UnsupportedError, match="does not know"):
            client.call("h1", "missing")
    assert endpoint.calls == is_taken


def test_clock_that_is_set_back_after_the_start_refuses_nobody_for_long(clock: Clock) -> None:
    """As that of a machine which boots with a wrong one, before NTP has set it."""
    running = Clock(0.0)
    verifier = Verifier("h1", (NEW,), clock, running)
    clock.now -= 3600
    with pytest.raises(exception.InvalidError, match="before the agent was started"):
        verifier.check(signed(clock), "volume_freeze", ARGUMENTS)
    running.now += WINDOW_SECONDS + 1
    verifier.check(signed(clock), "volume_freeze", ARGUMENTS)

"""Moves of servers as Nova tells of them, and the calls of agents that follow."""

import pathlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.control.hand_over import HandOverRequest, MoveKind
from acstor.registrar import moves
from acstor.registrar.moves import FAILURES, FailedMove, MoveFollower, StartedMove, move_of
from acstor.rpc import transport
from testbed.fixtures.conditions import wait_for

SERVER, IMAGE, VOLUME = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


def payload(**data: object) -> dict[str, Any]:
    """Return the payload of a versioned notification, as Nova's samples have it."""
    return {
        "nova_object.name": "InstanceActionPayload",
        "nova_object.data": {"uuid": SERVER, "host": "h1", "image_uuid": IMAGE, **data},
    }


def device(volume: object) -> dict[str, object]:
    return {"nova_object.name": "BlockDevicePayload", "nova_object.data": {"volume_id": volume}}


@pytest.mark.parametrize(
    ("publisher", "event", "kind"),
    [
        ("nova-compute:h2", "instance.live_migration_pre.start", MoveKind.LIVE),
        ("nova-compute:H2", "instance.resize_prep.start", MoveKind.COLD),
        ("nova-conductor:h2", "instance.rebuild_scheduled", MoveKind.EVACUATION),
    ],
)
def test_move_is_told_with_both_hosts(publisher: str, event: str, kind: MoveKind) -> None:
    found = move_of(publisher, event, payload(block_devices=[device(VOLUME), device(VOLUME)]))
    assert found == StartedMove("h2", HandOverRequest(SERVER, kind, "h1", (IMAGE,), (VOLUME,)))


def test_server_of_volumes_only_has_no_image() -> None:
    found = move_of(
        "nova-compute:h2",
        "instance.live_migration_pre.start",
        payload(image_uuid="", block_devices=[device(VOLUME)]),
    )
    assert isinstance(found, StartedMove)
    assert (found.request.images, found.request.volumes) == ((), (VOLUME,))


@pytest.mark.parametrize("event", FAILURES)
def test_failure_names_the_server(event: str) -> None:
    assert move_of("nova-compute:h1", event, payload()) == FailedMove(SERVER, "h1")


@pytest.mark.parametrize(
    ("publisher", "event", "content"),
    [
        ("nova-compute:h1", "instance.resize_prep.start", payload()),
        ("nova-conductor:h1", "instance.rebuild_scheduled", payload()),
        ("nova-compute:h2", "instance.live_migration_pre.end", payload()),
        ("nova-compute:h2", "instance.create.start", payload()),
        ("nova-compute:h2", "instance.resize_prep.start", payload(host=None)),
        ("nova-compute:h2", "instance.resize_prep.start", payload(uuid="x")),
        ("nova-compute:h2", "instance.resize_prep.start", payload(image_uuid=None)),
        ("nova-compute:h2", "instance.resize_prep.start", {"nova_object.data": 7}),
        ("nova-compute:h2", "instance.resize_prep.start", "text"),
        ("nova-compute", "instance.resize_prep.start", payload()),
        ("nova-compute:../h2", "instance.resize_prep.start", payload()),
        (None, None, None),
    ],
)
def test_what_is_no_move_is_ignored(publisher: object, event: object, content: object) -> None:
    assert move_of(publisher, event, content) is None


def test_devices_that_are_nonsense_are_left_out() -> None:
    devices = [7, {}, device(None), device("x"), device(VOLUME), {"nova_object.data": []}]
    for nonsense in ("text", 7, None):
        found = move_of("c:h2", "instance.resize_prep.start", payload(block_devices=nonsense))
        assert isinstance(found, StartedMove)
        assert found.request.volumes == ()
    found = move_of("c:h2", "instance.resize_prep.start", payload(block_devices=devices))
    assert isinstance(found, StartedMove)
    assert found.request.volumes == (VOLUME,)


class Agents:
    """Agents that keep what they are asked; the test lets them answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Mapping[str, object]]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    def call(self, host: str, method: str, arguments: Mapping[str, object]) -> object:
        assert self.may_answer.wait(30)
        if self.error is not None:
            raise self.error
        self.calls.append((host, method, arguments))
        return {}


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text(
        "[DEFAULT]\ntransport_url = fake://\n"
        "[registrar]\nnova_notification_topics = versioned_notifications\n"
    )
    return loading.load("test", ["--config-file", str(path)])


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def follower(conf: cfg.ConfigOpts, agents: Agents, heard: list[str]) -> Iterator[MoveFollower]:
    follower = MoveFollower(conf, heard.append, agents.call)
    follower.start()
    yield follower
    agents.may_answer.set()
    follower.stop(10)


def test_host_that_a_server_goes_to_is_told_and_told_of_its_failure(
    follower: MoveFollower, agents: Agents, heard: list[str]
) -> None:
    follower.hear("nova-compute:h2", "instance.live_migration_pre.start", payload())
    # The host that it stays at says so.
    follower.hear("nova-compute:h1", "instance.live_migration_rollback.start", payload())
    wait_for("both calls", lambda: len(agents.calls) == 2)
    request = HandOverRequest(SERVER, MoveKind.LIVE, "h1", (IMAGE,))
    assert agents.calls == [
        ("h2", "hand_over_start", request.to_arguments()),
        ("h2", "hand_over_stop", {"instance": SERVER}),
    ]
    wait_for("the counts", lambda: heard.count("told") == 2)


def test_failure_of_a_move_that_another_registrar_heard_goes_to_who_says_so(
    follower: MoveFollower, agents: Agents
) -> None:
    follower.hear("nova-compute:h2", "instance.resize.error", payload())
    wait_for("the call", lambda: agents.calls)
    assert agents.calls == [("h2", "hand_over_stop", {"instance": SERVER})]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (exception.DeadlineError("silent"), "silent"),
        (exception.UnsupportedError("an older release"), "refused"),
    ],
)
def test_agent_that_does_not_answer_holds_up_nobody(
    follower: MoveFollower, agents: Agents, heard: list[str], error: Exception, what: str
) -> None:
    agents.error = error
    follower.hear("nova-compute:h2", "instance.resize_prep.start", payload())
    wait_for("the failure", lambda: what in heard)
    agents.error = None
    follower.hear("nova-compute:h3", "instance.resize_prep.start", payload())
    wait_for("the next call", lambda: agents.calls)


def test_calls_that_wait_are_bounded_and_the_oldest_go(
    follower: MoveFollower, agents: Agents, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "CALLS_MAX", 2)
    agents.may_answer.clear()
    for number in range(1, 6):
        follower.hear(
            "nova-compute:h2",
            "instance.resize_prep.start",
            payload(uuid=str(uuid.UUID(int=number))),
        )
    assert heard.count("dropped") >= 2
    agents.may_answer.set()
    wait_for("the newest", lambda: len(agents.calls) + heard.count("dropped") == 5)
    assert agents.calls[-1][2]["instance"] == str(uuid.UUID(int=5))


def test_moves_that_are_remembered_are_bounded(
    follower: MoveFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "TARGETS_MAX", 2)
    for number in range(1, 6):
        follower.hear(
            "nova-compute:h2",
            "instance.resize_prep.start",
            payload(uuid=str(uuid.UUID(int=number))),
        )
    assert list(follower._targets) == [str(uuid.UUID(int=number)) for number in (4, 5)]


def test_notifications_arrive_as_nova_sends_them(
    conf: cfg.ConfigOpts, follower: MoveFollower, agents: Agents
) -> None:
    options = transport.open_notification_transport(conf).conf
    options.set_override("control_exchange", "nova")
    try:
        notifier = oslo_messaging.Notifier(
            transport.open_notification_transport(conf),
            driver="messagingv2",
            publisher_id="nova-compute:h2",
            topics=["versioned_notifications"],
        )
        wait_for("the listener", follower._server.is_listening.is_set)
        notifier.info({}, "instance.create.start", payload())
        notifier.info({}, "instance.live_migration_pre.start", payload())
        wait_for("the call", lambda: agents.calls)
        notifier.error({}, "instance.resize.error", payload())
        wait_for("both calls", lambda: len(agents.calls) == 2)
    finally:
        options.clear_override("control_exchange")
    assert [method for _, method, _ in agents.calls] == ["hand_over_start", "hand_over_stop"]
    assert {host for host, _, _ in agents.calls} == {"h2"}

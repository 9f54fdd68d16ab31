"""A host that follows revocations: in its passes, when it comes back, and when it is asked."""

import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.agent import Agent
from acstor.agent.metrics import AgentMetrics
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers.revocations import BUDGET, INTERVAL, Revocations
from acstor.agent.revocation_endpoint import RevocationEndpoint
from acstor.cluster.membership import View
from acstor.control.client import AdminClient
from acstor.origin.base import Origin
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import revocation
from acstor.repository.images.revocation import PAGES_MAX, Revocation
from acstor.repository.repository import Repository
from acstor.revocation.answers import PageAnswer
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import MemoryRuntime, make_manifest
from tests.unit.agent.conftest import Clock
from tests.unit.repository import images

IMAGE = str(uuid.UUID(int=1))
OTHER = str(uuid.UUID(int=2))
OWN = [bytes([number]) * 32 for number in range(1, 6)]
SHARED = bytes([9]) * 32


class RevokingHost:
    """A host whose looks at revocations the test makes; pages have two chunks."""

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self.conf = conf
        self.clock = clock
        self.origin: Origin = MemoryOrigin()
        Repository.init(self.origin, images.CHUNK_SIZE)
        self.path = pathlib.Path(conf.state_path)
        self.data_plane = MemoryDataPlane(conf)
        self.client = AdminClient(conf.dataplane.admin_socket)
        self.discarded: list[int] = []
        self.reconciler = self.new_reconciler()

    def new_reconciler(self) -> Revocations:
        return Revocations(
            str(self.path / "agent"),
            self.client,
            on_discarded=self.discarded.append,
            clock=self.clock,
        )

    @property
    def held(self) -> set[bytes]:
        assert self.data_plane.runtime is not None
        return self.data_plane.runtime.preloads.held

    def start(self) -> MemoryRuntime:
        runtime = self.data_plane.start()
        runtime.preloads.held = {*OWN, SHARED}
        self.show(self.origin)
        return runtime

    def show(self, origin: Origin | None) -> None:
        self.reconciler.reconcile(
            HostSnapshot(
                host="h1",
                data_plane=self.client,
                status={},
                origin=origin,
                generation=1,
                is_draining=False,
                view=View(),
            )
        )

    def revoke(self, image: str = IMAGE, digests: list[bytes] = OWN) -> Revocation:
        return revocation.write(self.origin, Revocation(image, "leaked", "", 1), digests)

    def attach(self) -> None:
        (self.path / "manifest").write_bytes(make_manifest(IMAGE, content=3).to_bytes())
        self.client.call("image.attach", path=str(self.path / "manifest"))

    def look(self, origin: Origin | None = None) -> None:
        self.reconciler.prepare(origin or self.origin, self.client.call("status"))


@pytest.fixture
def host(
    make_conf: Callable[..., cfg.ConfigOpts], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RevokingHost]:
    MemoryRuntime.locked_stores.clear()
    monkeypatch.setattr(revocation, "PAGE_DIGESTS_MAX", 2)
    host = RevokingHost(make_conf(), clock)
    yield host
    host.data_plane.stop()


def test_host_that_comes_back_discards_what_was_revoked_meanwhile(host: RevokingHost) -> None:
    host.revoke()
    host.start()
    host.look()
    assert host.held == {SHARED}
    assert sum(host.discarded) == 5
    assert list((host.path / "agent" / "revocations").iterdir()) == []


def test_looks_are_far_apart_and_ask_for_nothing_twice(host: RevokingHost) -> None:
    host.start()
    host.look()
    host.revoke()
    host.look()
    assert len(host.held) == 6
    host.clock.now += INTERVAL
    host.look()
    assert host.held == {SHARED}
    host.held.update(OWN)
    host.clock.now += INTERVAL
    host.look()
    assert len(host.held) == 6, "it is done, and asked for by the command"


def test_new_process_of_the_data_plane_or_agent_does_it_again(host: RevokingHost) -> None:
    host.start()
    host.revoke()
    host.look()
    host.data_plane.stop()
    host.start()
    host.look()
    assert host.held == {SHARED}
    host.held.update(OWN)
    host.reconciler = host.new_reconciler()
    host.look()
    assert host.held == {SHARED}


def test_local_file_of_the_image_is_no_absence(host: RevokingHost) -> None:
    host.start()
    host.revoke()
    states: dict[str, str] = {IMAGE: "unlinking"}
    host.reconciler.follow_local_files(states.get)
    assert host.reconciler.drop(IMAGE, 0).attached
    assert host.reconciler.check(IMAGE, None).attached
    states.clear()
    assert not host.reconciler.check(IMAGE, 0).attached


def test_image_that_is_attached_is_done_when_it_is_attached_no_more(host: RevokingHost) -> None:
    host.start()
    host.attach()
    host.revoke()
    host.look()
    assert host.held == {SHARED}
    host.held.add(OWN[0])
    host.look()
    assert OWN[0] in host.held, "its instances would bring them back"
    host.client.call("image.detach", image=IMAGE)
    host.look()
    assert host.held == {SHARED}


def test_pass_spends_a_while_and_the_next_goes_on(host: RevokingHost) -> None:
    host.start()
    host.revoke()
    call = host.client.call

    def slow(method: str, **arguments: Any) -> object:
        if method == "chunks.discard":
            host.clock.now += BUDGET
        return call(method, **arguments)

    host.client.call = slow  # type: ignore[method-assign,assignment]
    for left in (4, 2, 1):
        host.look()
        assert len(host.held) == left
    host.look()
    assert len(host.discarded) == 3


def test_damaged_revocation_is_told_and_holds_up_no_other(host: RevokingHost) -> None:
    host.start()
    host.revoke(OTHER, OWN[:1])
    host.origin.swap_ref(revocation.record_ref(IMAGE), None, b"no record")
    host.look()
    assert OWN[0] not in host.held
    problems = host.reconciler.reconcile(
        HostSnapshot("h1", host.client, {}, host.origin, 1, False, View())
    )
    assert list(problems) == [f"revocation of image {IMAGE}"]


def test_origin_that_is_away_is_asked_at_the_next_pass(host: RevokingHost) -> None:
    host.start()
    host.revoke()
    faulty = FaultyOrigin(host.origin, [Fault(Operation.LIST_REFS, Effect.ERROR, call=1)])
    with pytest.raises(exception.UnavailableError):
        host.look(faulty)
    host.look(faulty)
    assert host.held == {SHARED}


# Calls of commands


def test_command_has_pages_discarded_and_counted(host: RevokingHost) -> None:
    runtime = host.start()
    host.revoke()
    runtime.preloads.busy = {OWN[0]}
    assert host.reconciler.check(IMAGE, 0) == PageAnswer(2, 2, 2, False)
    assert host.reconciler.drop(IMAGE, 0) == PageAnswer(2, 2, 1, False)
    runtime.preloads.busy = set()
    assert host.reconciler.drop(IMAGE, 0) == PageAnswer(2, 1, 0, False)
    assert host.reconciler.check(IMAGE, 0) == PageAnswer(2, 0, 0, False)
    assert host.reconciler.drop(IMAGE, 2) == PageAnswer(1, 1, 0, False)
    host.attach()
    assert host.reconciler.check(IMAGE, None) == PageAnswer(0, 0, 0, True)
    assert host.reconciler.drop(IMAGE, None) == PageAnswer(0, 0, 0, True)
    assert host.held == {SHARED, OWN[2], OWN[3]}


def test_what_is_not_revoked_is_not_discarded(host: RevokingHost) -> None:
    host.start()
    with pytest.raises(exception.NotFoundError, match="not revoked"):
        host.reconciler.drop(IMAGE, 0)
    host.revoke()
    with pytest.raises(exception.NotFoundError, match="no page 3"):
        host.reconciler.drop(IMAGE, 3)
    assert len(host.held) == 6


def test_host_without_its_origin_or_data_plane_says_so(host: RevokingHost) -> None:
    host.start()
    host.revoke()
    host.show(None)
    with pytest.raises(exception.UnavailableError, match="origin"):
        host.reconciler.check(IMAGE, 0)
    host.show(host.origin)
    host.data_plane.stop()
    with pytest.raises(exception.UnavailableError, match="data plane"):
        host.reconciler.check(IMAGE, 0)


@pytest.mark.parametrize("method", ["revocation_drop", "revocation_check"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"image": "../x", "page": 0},
        {"image": IMAGE, "page": -1},
        {"image": IMAGE, "page": PAGES_MAX},
        {"image": IMAGE, "page": "0"},
        {"image": IMAGE, "page": True},
        {"image": IMAGE, "page": 0, "force": True},
    ],
)
def test_malformed_arguments_are_refused_and_do_nothing(
    host: RevokingHost, method: str, arguments: dict[str, object]
) -> None:
    host.start()
    host.revoke()
    endpoint = RevocationEndpoint("h1", host.reconciler)
    answer = getattr(endpoint, method)({}, **arguments)
    assert answer["error"]["kind"] == "invalid"
    assert len(answer["error"]["message"]) < 300
    assert len(host.held) == 6


def test_answers_arrive_as_they_are_meant(host: RevokingHost) -> None:
    host.start()
    host.revoke()
    endpoint = RevocationEndpoint("h1", host.reconciler)
    told = endpoint.revocation_drop({}, image=IMAGE, page=1)["result"]
    assert PageAnswer.from_answer("h1", told, 2) == PageAnswer(2, 2, 0, False)
    unknown = endpoint.revocation_check({}, image=OTHER)
    assert unknown["error"]["kind"] == "not_found"  # type: ignore[index]


# The agent


def test_agent_discards_what_is_revoked_before_it_is_a_member(
    host: RevokingHost, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.start()
    host.revoke()
    agent = Agent(
        host.conf,
        open_origin=lambda: host.origin,
        metrics=AgentMetrics(),
        metrics_address="127.0.0.1:9471",
        reconcilers=[host.reconciler],
        clock=clock,
    )
    held_when_joining: list[int] = []
    join = agent._membership.join_as

    def note(member: object) -> None:
        held_when_joining.append(len(host.held))
        join(member)  # type: ignore[arg-type]

    monkeypatch.setattr(agent._membership, "join_as", note)
    agent.reconcile()
    assert held_when_joining == [1]
    assert "revocations" not in agent.problems


def test_agent_whose_origin_is_away_is_a_member_all_the_same(
    host: RevokingHost, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.start()
    faulty = FaultyOrigin(host.origin, [Fault(Operation.LIST_REFS, Effect.ERROR)])
    agent = Agent(
        host.conf,
        open_origin=lambda: faulty,
        metrics=AgentMetrics(),
        metrics_address="127.0.0.1:9471",
        reconcilers=[host.reconciler],
        clock=clock,
    )
    joined: list[object] = []
    monkeypatch.setattr(agent._membership, "join_as", joined.append)
    agent.reconcile()
    assert len(joined) == 1
    assert "revocations" in agent.problems

"""Hosts, ring, decision, pins, live state and Prometheus' targets over the API."""

from typing import Any

import pytest
from falcon import testing

from acstor import exception
from acstor.api import metrics_targets
from acstor.api.cluster.deployment import OriginDeployment, RingView
from acstor.api.cluster.host_watch import SILENT_SECONDS, HostWatch, WatchEndpoint
from acstor.api.cluster.live_state import LiveState
from acstor.cluster.member import Member
from acstor.cluster.ring.decision import DECISION_REF, Decision
from acstor.cluster.ring.published_ring import RING_REF
from acstor.native import RingHost, build_ring
from acstor.telemetry.host_states import HostState
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import Setting


def member(name: str, **fields: Any) -> Member:
    """Return a host that is alive."""
    known = {
        "name": name,
        "peer_address": "192.0.2.1:9470",
        "metrics_address": f"{name}.example:9471",
        "capacity_bytes": 200 << 30,
        "release": "0.1.0",
        "topology": "pod-1/rack-2",
    }
    return Member(**{**known, **fields})


def state(name: str, sequence: int = 1, **fields: Any) -> Any:
    """Return what a host tells."""
    known = {"host": name, "sequence": sequence, "release": "0.1.0"}
    return HostState(**{**known, "is_up": True, "is_draining": False, **fields}).to_message()


@pytest.fixture
def admin(api: Setting) -> TestCaller:
    """Return an administrator of a cluster of two hosts."""
    api.members = {name: member(name) for name in ("cmp-1", "cmp-2")}
    hosts = [RingHost(f"cmp-{number}", f"192.0.2.{number}:1", 100) for number in (1, 2, 3)]
    api.origin.swap_ref(RING_REF, None, build_ring(hosts, 64).encode())
    return api.member.as_role("admin")


def test_hosts_are_members_and_those_that_the_ring_has(admin: TestCaller, api: Setting) -> None:
    api.watch.note(state("cmp-1"))
    found = {host["name"]: host for host in admin.get("/v1/hosts").json["hosts"]}
    assert {name: host["state"] for name, host in found.items()} == {
        "cmp-1": "serving",
        "cmp-2": "serving",
        "cmp-3": "gone",
    }
    assert found["cmp-1"]["seen_at"] == "2026-11-26T12:00:00Z"
    assert found["cmp-1"]["store"] == {"capacity_bytes": 200 << 30}
    assert (found["cmp-3"]["seen_at"], found["cmp-3"]["store"]) == (None, None)
    gone = admin.get("/v1/hosts?state=gone").json["hosts"]
    assert [host["name"] for host in gone] == ["cmp-3"]
    assert admin.get("/v1/hosts?name=cmp-2").json["hosts"] == [found["cmp-2"]]


def test_host_is_drained_and_given_back(admin: TestCaller) -> None:
    for is_drained in (True, False):
        answer = admin.ask("PATCH", "/v1/hosts/cmp-1", {"host": {"draining": is_drained}})
        assert (answer.status_code, answer.json["host"]["draining"]) == (200, is_drained)
        assert admin.get("/v1/hosts/cmp-1").json == answer.json


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/hosts/cmp-9", "acstor.host.not_found"),
        ("PATCH", "/v1/hosts/cmp-9", "acstor.host.not_found"),
        ("DELETE", "/v1/pins/cmp-9", "acstor.pin.not_found"),
    ],
)
def test_unknown_host_is_told(admin: TestCaller, method: str, path: str, code: str) -> None:
    answer = admin.ask(method, path, {"host": {"draining": True}} if method == "PATCH" else None)
    assert (answer.status_code, first_error(answer)["code"]) == (404, code)


def test_only_administrators_see_the_cluster(admin: TestCaller) -> None:
    for path in ("hosts", "hosts/cmp-1", "ring", "decisions", "pins", "cluster"):
        assert admin.as_role("manager").get(f"/v1/{path}").status_code == 403
        assert admin.get(f"/v1/{path}").status_code == 200


def test_ring_and_decision_are_those_in_force(admin: TestCaller, api: Setting) -> None:
    ring = admin.get("/v1/ring").json["ring"]
    assert (ring["generation"], ring["term"]) == (1, None)
    assert [arc["host"] for arc in ring["arcs"]] == ["cmp-1", "cmp-2", "cmp-3"]
    assert sum(arc["share"] for arc in ring["arcs"]) == pytest.approx(1.0)
    assert admin.get("/v1/decisions").json["decisions"] == []
    decision = Decision(4, 112, "ctl-1", 1_000, "headroom", {"cmp-1": 5_000}, reason="busy uplink")
    api.origin.swap_ref(DECISION_REF, None, decision.encode())
    (shown,) = admin.get("/v1/decisions").json["decisions"]
    assert (shown["id"], shown["created_at"]) == ("4-112", "1970-01-01T00:00:01Z")
    assert (shown["weights"], shown["reasons"]) == ({"cmp-1": 0.5}, ["busy uplink"])
    assert admin.get("/v1/ring").json["ring"]["term"] == 4


def test_without_ring_there_is_none(api: Setting) -> None:
    answer = api.member.as_role("admin").get("/v1/ring")
    assert (answer.status_code, first_error(answer)["code"]) == (404, "acstor.ring.not_found")


def test_weight_is_pinned_and_unpinned(admin: TestCaller) -> None:
    wanted = {"pin": {"host": "cmp-2", "weight": 0.5}}
    for _ in range(2):
        answer = admin.ask("POST", "/v1/pins", wanted)
        assert (answer.status_code, answer.json) == (201, wanted)
    assert admin.get("/v1/pins").json["pins"] == [wanted["pin"]]
    assert admin.ask("DELETE", "/v1/pins/cmp-2").status_code == 204
    assert admin.get("/v1/pins").json["pins"] == []


@pytest.mark.parametrize("weight", [0, -1, 101, "1"])
def test_weight_that_makes_no_sense_is_refused(admin: TestCaller, weight: object) -> None:
    answer = admin.ask("POST", "/v1/pins", {"pin": {"host": "cmp-2", "weight": weight}})
    assert answer.status_code == 400


def test_live_state_is_sent_once(admin: TestCaller, api: Setting) -> None:
    api.watch.note(state("cmp-1", extra_in=1048576.4, load=0.5, coverage={}))
    first = admin.get("/v1/cluster")
    found = first.json["cluster"]
    hosts = {host["name"]: host for host in found["hosts"]}
    assert hosts["cmp-1"]["extra_in_bytes_per_second"] == 1048576
    assert (hosts["cmp-1"]["load"], hosts["cmp-1"]["is_up"]) == (0.5, True)
    assert (hosts["cmp-2"]["load"], hosts["cmp-3"]["state"]) == (None, "gone")
    assert first.headers["ETag"] == f'"{found["cursor"]}"'
    same = admin.ask("GET", "/v1/cluster", headers={"If-None-Match": first.headers["ETag"]})
    assert (same.status_code, same.text) == (304, "")
    assert admin.get(f"/v1/cluster?since={found['cursor']}").status_code == 304
    api.watch.note(state("cmp-1", 2, extra_in=5.0))
    after = admin.get(f"/v1/cluster?since={found['cursor']}")
    assert after.status_code == 200
    assert after.headers["ETag"] != first.headers["ETag"]


class CountedDeployment(OriginDeployment):
    """Counts how often the ring is read; the origin may be away."""

    reads = 0
    is_away = False

    def ring(self) -> RingView | None:
        self.reads += 1
        if self.is_away:
            raise exception.UnavailableError("the origin does not answer")
        return super().ring()


def test_many_viewers_ask_the_origin_once(api: Setting) -> None:
    clock = VirtualTime()
    deployment = CountedDeployment(
        lambda: api.origin, lambda: {"cmp-1": member("cmp-1")}, api.watch, 2.0, clock
    )
    live = LiveState(deployment, clock)
    first = live.document()
    api.watch.note(state("cmp-1", load=0.5))
    assert [live.document() for _ in range(50)] == [first] * 50
    assert deployment.reads == 1
    clock.now += 2.0
    assert live.document()["cursor"] != first["cursor"]
    deployment.is_away = True
    clock.now += 2.0
    for _ in range(50):
        with pytest.raises(exception.UnavailableError):
            live.document()
    assert deployment.reads == 3, "an origin that is away is not waited for by each"
    deployment.is_away = False
    clock.now += 2.0
    assert live.document()["hosts"]


def test_newest_word_of_a_host_counts_for_a_while(api: Setting) -> None:
    api.watch.note(state("cmp-1", 5, load=0.5))
    api.watch.note(state("cmp-1", 4, load=0.1))
    assert api.watch.states()["cmp-1"].state.load == 0.5
    api.clock.advance(seconds=SILENT_SECONDS)
    assert "cmp-1" in api.watch.states()
    api.clock.advance(seconds=1)
    assert not api.watch.states()


def test_it_listens_from_the_first_look_on() -> None:
    begun: list[HostWatch] = []
    watch = HostWatch(listen=begun.append)
    watch.note(state("cmp-1"))
    assert not begun
    for _ in range(2):
        watch.states()
    assert begun == [watch]


def test_nonsense_on_the_bus_is_dropped(api: Setting) -> None:
    endpoint = WatchEndpoint(api.watch)
    for nonsense in (None, {}, {"version": 99}, {**state("cmp-1"), "load": 7}):
        endpoint.host_state({}, state=nonsense)
    assert not api.watch.states()
    endpoint.host_state({}, state=state("cmp-1"))
    assert set(api.watch.states()) == {"cmp-1"}


def test_prometheus_gets_all_targets_by_its_secret() -> None:
    app = metrics_targets.application(lambda: {"cmp-1": member("cmp-1")}, "a secret")
    answer = testing.simulate_get(
        app, metrics_targets.PATH, headers={"Authorization": "Bearer a secret"}
    )
    assert answer.json == [
        {
            "targets": ["cmp-1.example:9471"],
            "labels": {"acstor_host": "cmp-1", "acstor_topology": "pod-1/rack-2"},
        }
    ]
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer another"}):
        assert testing.simulate_get(app, metrics_targets.PATH, headers=headers).status_code == 401


def test_without_secret_there_are_no_targets() -> None:
    app = metrics_targets.application(dict, "")
    for headers in ({}, {"Authorization": "Bearer "}):
        assert testing.simulate_get(app, metrics_targets.PATH, headers=headers).status_code == 404


def test_members_that_cannot_be_read_are_an_error_not_an_empty_list() -> None:
    def away() -> dict[str, Member]:
        raise exception.UnavailableError("coordination is away")

    app = metrics_targets.application(away, "s")
    answer = testing.simulate_get(app, metrics_targets.PATH, headers={"Authorization": "Bearer s"})
    assert answer.status_code == 503

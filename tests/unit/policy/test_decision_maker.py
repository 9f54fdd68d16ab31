"""Changes of decisions: their time, their content, their limits."""

import dataclasses
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.cluster.ring.decision import Decision
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.evaluation_result import EvaluationResult, Part, Reason
from acstor.policy.load_history import LoadHistory
from acstor.policy.pins import Pins
from acstor.policy.proportions import fitted, moved_share, step_towards
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology

LINK = 125e6


class Policy:
    """A decision maker whose decisions are in force at once."""

    def __init__(self, settings: PolicySettings | None = None, topology: Topology | None = None):
        self.maker = DecisionMaker(settings or PolicySettings(), topology=topology)
        self.decision: Decision | None = None
        self.at = 0.0

    def see(
        self,
        extra: dict[str, float],
        missing: dict[str, str] | None = None,
        pins: Pins | None = None,
        **ages: int,
    ) -> EvaluationResult:
        """Show one collection; extra traffic sent, in links."""
        self.at += 10
        hosts = {
            name: HostLoad(0.0, share * LINK, link=LINK, age=ages.get(name, 0))
            for name, share in extra.items()
        }
        outcome = self.maker.decide(Collection(self.at, hosts, missing or {}), self.decision, pins)
        self.decision = outcome.decision or self.decision
        return outcome

    def weight(self, host: str) -> int:
        return self.decision.weight_of(host) if self.decision else 10_000


def hosts(count: int, **busy: float) -> dict[str, float]:
    return {**{f"h{n}": 0.1 for n in range(count)}, **busy}


def test_overload_has_to_last_for_two_collections() -> None:
    policy = Policy()
    assert policy.see(hosts(8, h0=0.9)).reason is Reason.WAITING
    outcome = policy.see(hosts(8, h0=0.9))
    assert outcome.reason is Reason.OVERLOAD
    assert outcome.decision is not None
    assert outcome.decision.sequence == 1
    assert outcome.decision.decided_at_ms == 20_000
    assert policy.weight("h0") < 2000
    assert outcome.moved_share == pytest.approx(1 / 8 - policy.weight("h0") / 80_000, abs=1e-3)
    explained = outcome.explanations["h0"]
    assert (explained.part, explained.streak, explained.is_overloaded) == (Part.GIVES, 2, True)
    assert outcome.explanations["h1"].part is Part.RECEIVES
    assert policy.see(hosts(8, h0=0.9)).reason is Reason.COOLING_DOWN


def test_row_that_a_feed_counted_has_precedence() -> None:
    """Collections may come sooner, or fall between reports; the reports tell how long it lasts."""
    maker = DecisionMaker(PolicySettings())

    def see(streak: int, share: float = 0.9) -> EvaluationResult:
        loads = {name: HostLoad(0.0, 0.1 * LINK, link=LINK, streak=0) for name in ("h1", "h2")}
        loads["h0"] = HostLoad(0.0, share * LINK, link=LINK, streak=streak)
        return maker.decide(Collection(10.0, loads), None)

    assert [see(1).reason for _ in range(4)] == [Reason.WAITING] * 4
    assert see(2, share=0.5).reason is Reason.NOT_OVERLOADED  # its link is busy no more
    assert see(2).reason is Reason.OVERLOAD


def test_hosts_whose_load_began_a_report_later_are_relieved_in_the_same_step() -> None:
    policy = Policy(PolicySettings(weights="headroom"))
    policy.see(hosts(8))
    policy.see(hosts(8, h0=0.9))
    policy.see(hosts(8, h0=0.9, h1=0.9))
    assert policy.weight("h0") == policy.weight("h1") < 2000


def test_sample_that_was_seen_before_does_not_count_again() -> None:
    policy = Policy()
    policy.see(hosts(8, h0=0.9))
    for age in (1, 2, 3):
        assert policy.see(hosts(8, h0=0.9), h0=age).decision is None
    assert policy.see(hosts(8, h0=0.9)).reason is Reason.OVERLOAD


def test_pause_between_two_overloads_begins_anew() -> None:
    policy = Policy()
    for share in (0.9, 0.1, 0.9, 0.1, 0.9):
        assert policy.see(hosts(8, h0=share)).decision is None


def test_silent_hosts_keep_their_weights() -> None:
    policy = Policy()
    for _ in range(2):
        policy.see(hosts(8, h0=0.9))
    before = policy.weight("h7")
    low = policy.weight("h0")
    extra = hosts(7, h1=0.9)
    del extra["h0"]
    for _ in range(5):
        outcome = policy.see(extra, {"h0": "silent", "h7": "draining"})
    assert outcome.explanations["h0"].part is Part.SILENT
    assert policy.weight("h1") < 2000
    assert (policy.weight("h0"), policy.weight("h7")) == (low, before)


def test_half_of_the_hosts_silent_at_once_is_not_decided_on() -> None:
    policy = Policy()
    policy.see(hosts(8, h0=0.9))
    silent = {f"h{n}": "silent" for n in range(3, 8)}
    outcome = policy.see({"h0": 0.9, "h1": 0.1, "h2": 0.1}, silent)
    assert (outcome.reason, outcome.decision) == (Reason.BLIND, None)
    assert policy.see(hosts(8, h0=0.9)).reason is Reason.WAITING  # no row over the gap
    assert policy.see({}).reason is Reason.EMPTY


def test_hosts_that_come_get_the_mean_and_those_that_leave_are_forgotten() -> None:
    policy = Policy()
    for _ in range(2):
        policy.see(hosts(8, h0=0.9))
    assert policy.weight("new") == pytest.approx(10_000, abs=2)
    extra = dict.fromkeys(("h5", "h6", "h7", "n1", "n2"), 0.1) | {"h4": 0.9}
    for _ in range(6):
        policy.see(extra)
    assert policy.decision is not None
    assert policy.decision.weights.keys() == extra.keys()
    assert sum(policy.decision.weights.values()) == pytest.approx(60_000, abs=10)


def test_lying_host_harms_itself_and_gains_no_more_than_the_ceiling() -> None:
    policy = Policy()
    for _ in range(8):
        policy.see({**{f"h{n}": 0.85 for n in range(8)}, "liar": 0.0})
    assert policy.weight("liar") <= 40_000
    assert all(policy.weight(f"h{n}") >= 500 for n in range(8))
    with pytest.raises(exception.InvalidError):
        HostLoad(float("nan"), 0.0)
    with pytest.raises(exception.InvalidError):
        HostLoad(-1.0, 0.0)


def test_pins_are_in_force_at_once_and_left_alone() -> None:
    policy = Policy()
    pins = Pins({"h0": 2500, "gone": 5000})
    outcome = policy.see(hosts(8), pins=pins)
    assert outcome.reason is Reason.PINNED
    assert policy.weight("h0") == 2500
    assert outcome.explanations["h0"].part is Part.PINNED
    for _ in range(6):
        policy.see(hosts(8, h0=0.0, h1=0.9), pins=pins)
    assert policy.weight("h0") == 2500
    assert policy.weight("h1") < 2000
    assert policy.see(hosts(8, h1=0.9), pins=Pins()).reason is Reason.PINNED
    assert policy.weight("h0") > 8000


def test_pins_need_no_feed() -> None:
    policy = Policy()
    silent = {f"h{n}": "silent" for n in range(4)}
    outcome = policy.see({}, silent, Pins({"h0": 2500}))
    assert outcome.reason is Reason.PINNED
    assert policy.weight("h0") == 2500
    assert policy.see({}, silent, Pins({"h0": 2500})).reason is Reason.BLIND
    for _ in range(2):
        policy.see(hosts(4), pins=Pins())
    assert policy.weight("h0") == 10_000


def test_frozen_decision_changes_by_pins_only() -> None:
    policy = Policy()
    for _ in range(4):
        outcome = policy.see(hosts(8, h0=0.9), pins=Pins(is_frozen=True))
    assert (outcome.reason, outcome.decision) == (Reason.FROZEN, None)
    policy.see(hosts(8, h0=0.9), pins=Pins({"h0": 5000}, is_frozen=True))
    assert policy.weight("h0") == 5000


TREE = Topology.parse(
    {"version": 1, "levels": [{"uplink": 1000}, {"capacity": 100_000}]}
).with_hosts({f"h{n}": f"r{n // 4}" for n in range(8)})


def test_threshold_follows_two_collections_and_can_be_pinned() -> None:
    policy = Policy(PolicySettings(thresholds="uplinks"), TREE)
    busy = {f"h{n}": 0.5 for n in range(8)}
    assert policy.see(busy).decision is None
    outcome = policy.see(busy)
    assert outcome.reason is Reason.THRESHOLD
    assert outcome.decision is not None
    assert outcome.decision.threshold == 3
    assert outcome.decision.weights == {}
    policy.see(busy, pins=Pins(is_threshold_pinned=True, threshold=5))
    assert policy.decision is not None
    assert policy.decision.threshold == 5
    quiet = {f"h{n}": 0.05 for n in range(8)}
    for _ in range(4):
        policy.see(quiet)
    assert policy.decision.threshold is None


@pytest.mark.parametrize("thresholds", ["algorithm2", "uplinks"])
@pytest.mark.parametrize(
    ("most", "quiet", "busy"), [(None, None, 3), (3, 3, 3), (4, 4, 3), (7, 7, 3)]
)
def test_load_never_widens_the_plain_threshold(
    thresholds: str, most: int | None, quiet: int | None, busy: int
) -> None:
    policy = Policy(PolicySettings(thresholds=thresholds, threshold_max=most), TREE)
    for load, threshold in ((0.05, quiet), (0.5, busy), (0.05, quiet)):
        for _ in range(4):
            policy.see({f"h{n}": load for n in range(8)})
        assert (policy.decision.threshold if policy.decision else None) == threshold


def test_wider_threshold_of_the_load_is_bounded_by_the_plain_one() -> None:
    three_levels = Topology.parse(
        {"version": 1, "levels": [{"uplink": 1000}, {"uplink": 1000}, {"capacity": 100_000}]}
    ).with_hosts({f"h{n}": f"p{n // 8}/r{n // 4}" for n in range(16)})
    load = {f"h{n}": 0.12 for n in range(16)}  # 0.96 of the pods' uplinks, 0.48 of the racks'
    for most, chosen in ((None, 5), (3, 3), (5, 5), (7, 5)):
        policy = Policy(PolicySettings(thresholds="algorithm2", threshold_max=most), three_levels)
        for _ in range(3):
            policy.see(load)
        assert policy.decision is not None
        assert policy.decision.threshold == chosen
        policy.see(load, pins=Pins(is_threshold_pinned=True, threshold=7))
        assert policy.decision.threshold == 7, "an operator may"


def test_plain_threshold_below_the_least_is_refused() -> None:
    with pytest.raises(exception.InvalidError, match="threshold_max"):
        PolicySettings(threshold_min=5, threshold_max=3)
    plain = PolicySettings(threshold_max=3)
    assert PolicySettings.from_json(plain.to_json()) == plain
    written_before = {k: v for k, v in plain.to_json().items() if k != "threshold_max"}
    assert PolicySettings.from_json(written_before) == PolicySettings()


def test_similarity_is_asked_for_those_that_give_and_those_that_receive() -> None:
    asked = []

    def similar(givers: object, receivers: object) -> tuple[tuple[str, str, float], ...]:
        asked.append((sorted(givers), sorted(receivers)))  # type: ignore[call-overload]
        return (("h0", "h2", 0.5),)

    policy = Policy()
    policy.maker = DecisionMaker(PolicySettings(), similarity=similar)
    for _ in range(2):
        policy.see(hosts(4, h0=0.9))
    assert asked == [(["h0"], ["h1", "h2", "h3"])]
    assert policy.decision is not None
    assert policy.decision.similarity == (("h0", "h2", 0.5),)


@given(st.integers(0, 1 << 32), st.sampled_from(["none", "holt"]))
def test_the_same_inputs_give_the_same_outcome_after_a_detour_through_json(
    seed: int, forecast: str
) -> None:
    chance = random.Random(seed)
    settings = PolicySettings(forecast=forecast)
    first, second = DecisionMaker(settings), DecisionMaker(settings)
    previous = None
    for number in range(8):
        loads = {f"h{n}": HostLoad(0.0, chance.choice((0.1, 0.9, 1.0)) * LINK, link=LINK)
                 for n in range(5)}  # fmt: skip
        collection = Collection(number * 10.0, loads, {"h9": "silent"})
        outcome = first.decide(collection, previous)
        again = Collection.from_json(json.loads(json.dumps(collection.to_json())))
        history = LoadHistory.from_json(json.loads(json.dumps(second.history.to_json())))
        second = DecisionMaker(
            PolicySettings.from_json(json.loads(json.dumps(settings.to_json()))), history=history
        )
        assert second.decide(again, previous) == outcome
        previous = outcome.decision or previous


@given(
    st.dictionaries(st.integers(), st.floats(1e-3, 1e9), min_size=1, max_size=20),
    st.floats(0.01, 1.0),
    st.floats(1.0, 50.0),
)
def test_fitted_weights_are_within_their_bounds_and_sum_to_the_total(
    raw: dict[int, float], floor: float, ceiling: float
) -> None:
    named = {str(name): value for name, value in raw.items()}
    found = fitted(named, float(len(named)), floor, ceiling)
    assert sum(found.values()) == pytest.approx(len(named), rel=1e-6)
    assert all(floor <= weight <= ceiling for weight in found.values())
    ordered = sorted(named, key=lambda name: named[name])
    assert [found[name] for name in ordered] == sorted(found.values())


@given(
    st.lists(st.tuples(st.floats(0.05, 4), st.floats(0.05, 4)), min_size=2, max_size=12),
    st.floats(0.0, 12.0),
    st.floats(0.0, 1.0),
    st.integers(0, 12),
)
def test_steps_are_bounded_keep_the_sum_and_overshoot_nowhere(
    pairs: list[tuple[float, float]], amount_max: float, dead_band: float, urgent: int
) -> None:
    before = {str(n): pair[0] for n, pair in enumerate(pairs)}
    scale = sum(before.values()) / sum(pair[1] for pair in pairs)
    target = {str(n): pair[1] * scale for n, pair in enumerate(pairs)}
    step = step_towards(
        before, target, urgent=[list(before)[:urgent]], dead_band=dead_band, amount_max=amount_max
    )
    total = sum(before.values())
    assert sum(step.weights.values()) == pytest.approx(total)
    assert moved_share(before, step.weights) * total <= amount_max + 1e-6
    for name, weight in step.weights.items():
        low, high = sorted((before[name], target[name]))
        assert low - 1e-6 <= weight <= high + 1e-6


@pytest.mark.parametrize(
    "change",
    [
        {"overload": 0.0}, {"overload": float("nan")}, {"weight_floor": 0}, {"successive": 0},
        {"weight_ceiling": 1e6}, {"moved_share_max": 0}, {"traffic": "up"}, {"horizon": 0},
        {"hysteresis": True},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(exception.InvalidError):
        dataclasses.replace(PolicySettings(), **change)  # type: ignore[arg-type]

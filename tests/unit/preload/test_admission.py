"""Admission of preloads by a host."""

import dataclasses

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from acstor import exception
from acstor.control.protocol import PRELOAD_RATE_MAX, PreloadWhat
from acstor.preload.admission import Estimate, Limits, Reason, judge, rate_for, suggest
from acstor.preload.request import DEADLINE_MAX, RATE_MIN, PreloadRequest

MIB = 1 << 20
GIB = 1 << 30
IMAGE = "00000000-0000-0000-0000-000000000001"

sizes = st.integers(0, 1 << 44)
rates = st.integers(RATE_MIN, PRELOAD_RATE_MAX)
estimates = st.builds(
    Estimate,
    host=st.just("h1"),
    total_bytes=sizes,
    missing_bytes=st.integers(0, 1 << 41),
    free_bytes=sizes,
    evictable_bytes=sizes,
    pinnable_bytes=sizes,
    default_rate=rates,
    most_rate=st.none() | rates,
    margin=st.floats(1, 10),
    promised_rate=st.integers(0, PRELOAD_RATE_MAX >> 3),
    promised_bytes=st.integers(0, 1 << 41),
)
requests = st.builds(
    PreloadRequest,
    image=st.just(IMAGE),
    what=st.sampled_from(PreloadWhat),
    rate_bytes_per_s=st.none() | rates,
    deadline_s=st.none() | st.floats(1, DEADLINE_MAX),
    pin=st.booleans(),
)


def estimate(**fields: object) -> Estimate:
    plain = Estimate(
        host="h1",
        total_bytes=1 * GIB,
        missing_bytes=600 * MIB,
        free_bytes=10 * GIB,
        evictable_bytes=0,
        pinnable_bytes=GIB,
        default_rate=64 * MIB,
        most_rate=100 * MIB,
        margin=1.25,
    )
    return dataclasses.replace(plain, **fields)  # type: ignore[arg-type]


def request(**fields: object) -> PreloadRequest:
    return dataclasses.replace(PreloadRequest(IMAGE, PreloadWhat.FULL), **fields)  # type: ignore[arg-type]


# Most hosts refuse what is drawn, so these draw more than they look at.
mostly_refused = settings(suppress_health_check=[HealthCheck.filter_too_much])


@mostly_refused
@given(requests, estimates)
def test_what_is_admitted_can_be_kept(request: PreloadRequest, estimate: Estimate) -> None:
    verdict = judge(request, estimate)
    assume(verdict.reason is None)
    assert estimate.missing_bytes + estimate.promised_bytes <= (
        estimate.free_bytes + estimate.evictable_bytes
    ) or (not estimate.missing_bytes)
    if request.pin:
        assert estimate.missing_bytes <= estimate.pinnable_bytes
    if estimate.most_rate is not None:
        assert verdict.rate_bytes_per_s + estimate.promised_rate <= estimate.most_rate
    if request.rate_bytes_per_s is not None:
        assert verdict.rate_bytes_per_s == request.rate_bytes_per_s
    if request.deadline_s is not None:
        assert estimate.missing_bytes <= verdict.rate_bytes_per_s * request.deadline_s * (1 + 1e-9)


@mostly_refused
@given(requests, estimates)
def test_what_is_refused_could_not_be_kept(request: PreloadRequest, estimate: Estimate) -> None:
    """Whenever there is room and the least rate that would do is there, nothing is refused."""
    room = estimate.free_bytes + estimate.evictable_bytes - estimate.promised_bytes
    assume(estimate.missing_bytes <= room)
    assume(not request.pin or estimate.missing_bytes <= estimate.pinnable_bytes)
    left = estimate.left_rate
    assume(left is None or left >= max(RATE_MIN, request.rate_bytes_per_s or 0))
    if request.deadline_s is not None:
        speed = request.rate_bytes_per_s or left
        assume(speed is None or estimate.missing_bytes <= speed * request.deadline_s * (1 - 1e-6))
        assume(
            speed is not None or estimate.missing_bytes / request.deadline_s < PRELOAD_RATE_MAX / 2
        )
    assert judge(request, estimate).reason is None


# Requests and hosts of which most cannot be had: a host has less than most requests want.
demanding = st.builds(
    PreloadRequest,
    image=st.just(IMAGE),
    what=st.sampled_from(PreloadWhat),
    rate_bytes_per_s=st.none() | st.integers(1 << 20, PRELOAD_RATE_MAX),
    deadline_s=st.floats(1, 1000),
    pin=st.booleans(),
)
slow = st.builds(
    dataclasses.replace,
    estimates,
    missing_bytes=st.integers(1 << 30, 1 << 44),
    most_rate=st.integers(RATE_MIN, 1 << 24),
)


@given(demanding | requests, st.lists(slow, min_size=1, max_size=4))
def test_what_is_suggested_would_do(request: PreloadRequest, estimates: list[Estimate]) -> None:
    roomy = [
        dataclasses.replace(
            each, free_bytes=1 << 45, promised_bytes=0, pinnable_bytes=1 << 45, promised_rate=0
        )
        for each in estimates
    ]
    verdicts = [judge(request, each) for each in roomy]
    assume(any(verdict.reason for verdict in verdicts))
    suggestion = suggest(request, verdicts)
    if suggestion.rate_bytes_per_s is not None:
        changed = dataclasses.replace(request, rate_bytes_per_s=suggestion.rate_bytes_per_s)
        assert all(judge(changed, each).reason is None for each in roomy)
    if suggestion.deadline_s is not None:
        changed = dataclasses.replace(request, deadline_s=suggestion.deadline_s)
        assert all(judge(changed, each).reason is None for each in roomy)
    if any(verdict.reason is Reason.RATE for verdict in verdicts) and request.deadline_s is None:
        assert suggestion.rate_bytes_per_s is not None


def test_deadline_alone_takes_the_rate_that_it_needs_with_a_margin() -> None:
    verdict = judge(request(deadline_s=60.0), estimate())
    assert verdict.reason is None
    assert verdict.rate_bytes_per_s == pytest.approx(1.25 * 600 * MIB / 60, abs=2)


def test_margin_is_given_up_before_the_admitted_preload_is() -> None:
    verdict = judge(request(deadline_s=6.5), estimate())
    assert (verdict.reason, verdict.rate_bytes_per_s) == (None, 100 * MIB)


def test_neither_rate_nor_deadline_takes_the_default() -> None:
    assert judge(request(), estimate()).rate_bytes_per_s == 64 * MIB


def test_deadline_that_is_too_short_is_refused_with_what_would_do() -> None:
    asked = request(deadline_s=30.0, rate_bytes_per_s=10 * MIB)
    verdict = judge(asked, estimate())
    assert verdict.reason is Reason.DEADLINE
    suggestion = suggest(asked, [verdict])
    assert suggestion.rate_bytes_per_s == pytest.approx(20 * MIB, abs=2)
    assert suggestion.deadline_s == pytest.approx(60, abs=1)


def test_deadline_that_no_rate_can_meet_gets_no_rate_suggested() -> None:
    asked = request(deadline_s=2.0)
    verdict = judge(asked, estimate())
    assert verdict.reason is Reason.DEADLINE
    suggestion = suggest(asked, [verdict])
    assert suggestion.rate_bytes_per_s is None
    assert suggestion.deadline_s == pytest.approx(6, abs=1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"is_draining": True}, Reason.DRAINING),
        ({"active": IMAGE}, Reason.ACTIVE),
        ({"free_bytes": 599 * MIB}, Reason.ROOM),
        ({"free_bytes": 600 * MIB, "promised_bytes": 1}, Reason.ROOM),
        ({"promised_rate": 100 * MIB}, Reason.RATE),
        ({"promised_rate": 200 * MIB}, Reason.RATE),
    ],
)
def test_host_that_cannot_admit_says_why(fields: dict[str, object], reason: Reason) -> None:
    verdict = judge(request(), estimate(**fields))
    assert verdict.reason is reason
    assert verdict.text
    assert suggest(request(), [verdict]).rate_bytes_per_s is None


def test_pin_needs_room_of_its_own() -> None:
    tight = estimate(pinnable_bytes=599 * MIB)
    assert judge(request(pin=True), tight).reason is Reason.PIN
    assert judge(request(pin=False), tight).reason is None


def test_nothing_missing_is_admitted_at_once() -> None:
    verdict = judge(request(deadline_s=1.0), estimate(missing_bytes=0, free_bytes=0))
    assert (verdict.reason, verdict.seconds) == (None, 0.0)


def test_rest_of_a_deadline_that_is_over_is_a_second() -> None:
    assert rate_for(10 * MIB, -100.0, 1.0) == pytest.approx(10 * MIB, abs=1)


@pytest.mark.parametrize(
    ("limits", "link", "most"),
    [
        (Limits(rate=1), None, None),
        (Limits(rate=1, rate_max=10), None, 10),
        (Limits(rate=1, link_share=0.5), 1000.0, 500),
        (Limits(rate=1, rate_max=10, link_share=0.5), 1000.0, 10),
        (Limits(rate=1, rate_max=700, link_share=0.5), 1000.0, 500),
    ],
)
def test_most_is_the_lower_of_link_share_and_maximum(
    limits: Limits, link: float | None, most: int | None
) -> None:
    assert limits.most(link) == most


def test_estimate_of_another_host_survives_the_wire() -> None:
    told = dataclasses.asdict(estimate())
    assert Estimate.from_answer("h1", told) == estimate()


@pytest.mark.parametrize(
    "change",
    [
        {"missing_bytes": -1},
        {"missing_bytes": 1 << 63},
        {"missing_bytes": "1"},
        {"missing_bytes": True},
        {"margin": float("nan")},
        {"margin": 0},
        {"is_draining": 1},
        {"most_rate": 1.5},
        {"active": 7},
    ],
)
def test_nonsense_of_another_host_is_refused(change: dict[str, object]) -> None:
    told = {**dataclasses.asdict(estimate()), **change}
    with pytest.raises(exception.InternalError, match="h1"):
        Estimate.from_answer("h1", told)
    with pytest.raises(exception.InternalError):
        Estimate.from_answer("h1", None)

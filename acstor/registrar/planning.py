"""Plan for one image: its record in Glance against the states of the image registry and hosts.

Everything here is a pure function, so that every combination can be tested.
"""

import dataclasses

from acstor.registrar.decision import Decision, Kind
from acstor.registrar.image_service.base import ServiceImage
from acstor.repository.images.image_registry import Entry, EntryEvent, EntryState, parse_time

_OTHER_CONTENT = "Glance has other content under its id"
_KILLED = "the registrar that was registering it was killed"


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """Observed situation of one image."""

    image: ServiceImage | None
    """Record of the image in Glance; None: Glance has none."""
    decision: Decision
    entry: Entry | None
    published: str | None
    """The checksum that the published image was verified with, empty where none was; None:
    hosts have no such image."""
    is_at_work: bool
    """True if this process is registering it."""
    at_work_on: str | None = None
    """Verdict key of what it is registering."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Planned steps for one image, in this order."""

    cancel: str = ""
    """Reason to stop the registration that runs; empty: none."""
    event: EntryEvent | None = None
    reason: str = ""
    is_urgent: bool = False
    """Of a withdrawal: see ``Entry.is_urgent``."""
    start: bool = False
    """Register it as soon as there is a free worker."""


def verdict_key(image: ServiceImage) -> str:
    """Return what a verdict on an image's content is about: see ``Entry.judged``."""
    return f"{image.disk_format} {image.checksum}"


def plan(situation: Situation, now: float) -> Plan:
    """Return what to do about an image.

    :param now: seconds since the epoch.
    """
    decision = situation.decision
    if decision.kind is Kind.REGISTER and situation.image is not None:
        return _plan_registration(situation, situation.image, now)
    if situation.is_at_work:
        # Looked at again as soon as the registration has ended.
        return Plan(cancel=decision.reason)
    if decision.kind is Kind.LEAVE:
        return _plan_leaving(situation)
    return _plan_withdrawal(situation)


def _plan_registration(situation: Situation, image: ServiceImage, now: float) -> Plan:
    entry = situation.entry
    if situation.is_at_work:
        is_same = situation.at_work_on == verdict_key(image)
        return Plan() if is_same else Plan(cancel=_OTHER_CONTENT)
    is_published = image.declares(situation.published)
    if entry is None or entry.state is EntryState.REGISTERING:
        if is_published:  # by hand, or by a registrar that was killed before it could say so
            return Plan(event=EntryEvent.RESTORE)
        return _accepted() if entry is None else Plan(event=EntryEvent.FAIL, reason=_KILLED)
    match entry.state:
        case EntryState.WAITING:
            return Plan(start=True)
        case EntryState.REGISTERED:
            return _plan_registered(situation, entry, image)
        case EntryState.WITHDRAWN:
            return _plan_return(situation, entry, image)
        case _:
            return _plan_retry(entry, image, now)


def _plan_registered(situation: Situation, entry: Entry, image: ServiceImage) -> Plan:
    if situation.published is None:
        return _accepted("the image was removed by hand")
    if not image.declares(entry.checksum):
        return _plan_unpublishing(entry, _OTHER_CONTENT, is_urgent=True)
    return Plan()


def _plan_return(situation: Situation, entry: Entry, image: ServiceImage) -> Plan:
    """Plan for a withdrawn image that may be used again."""
    if situation.published is None:
        return _accepted()
    if image.declares(situation.published or entry.checksum):
        return Plan(event=EntryEvent.RESTORE)
    # Until nobody uses the former content any more, the new one cannot take its id.
    return _plan_unpublishing(entry, _OTHER_CONTENT, is_urgent=True)


def _plan_retry(entry: Entry, image: ServiceImage, now: float) -> Plan:
    if entry.judged is not None and entry.judged == verdict_key(image):
        return Plan()
    if entry.state is EntryState.FAILED and entry.judged is None:
        is_due = entry.retry_at is None or parse_time(entry.retry_at) <= now
        return _accepted(entry.reason) if is_due else Plan()
    return _accepted()


def _plan_leaving(situation: Situation) -> Plan:
    entry, reason = situation.entry, situation.decision.reason
    if situation.published is None:
        if entry is not None and (entry.state, entry.reason) == (EntryState.LEFT, reason):
            return Plan()
        return Plan(event=EntryEvent.LEAVE, reason=reason)
    if entry is None:
        return Plan()  # registered by hand: the operator knows
    return _plan_unpublishing(entry, reason, is_urgent=situation.decision.is_harmful)


def _plan_withdrawal(situation: Situation) -> Plan:
    entry, decision = situation.entry, situation.decision
    if entry is None:
        return Plan()
    if situation.published is None and decision.is_gone:
        return Plan(event=EntryEvent.FORGET)
    return _plan_unpublishing(entry, decision.reason, is_urgent=False)


def _plan_unpublishing(entry: Entry, reason: str, *, is_urgent: bool) -> Plan:
    if (entry.state, entry.reason) == (EntryState.WITHDRAWN, reason):
        return Plan()
    return Plan(event=EntryEvent.WITHDRAW, reason=reason, is_urgent=is_urgent)


def _accepted(reason: str = "") -> Plan:
    return Plan(event=EntryEvent.ACCEPT, reason=reason, start=True)

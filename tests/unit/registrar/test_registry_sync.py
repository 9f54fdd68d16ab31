"""Image registry where Glance, or another registrar, cannot be trusted."""

import logging
import pathlib
from collections.abc import Iterator

import pytest

from acstor.registrar import assembly
from acstor.registrar.decision import Rules
from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.registration.file_registration import InProcess
from acstor.registrar.registration.job import ImageJob, JobSettings, Outcome, OutcomeKind
from acstor.registrar.registration.jobs import Jobs
from acstor.registrar.registry_sync import RegistrySync
from acstor.repository.images.image_registry import Entry, EntryState
from testbed.doubles.registrar_cloud import Cloud


def job_settings(cloud: Cloud) -> JobSettings:
    return assembly.job_settings(cloud.conf, InProcess())


@pytest.fixture
def sync(cloud: Cloud) -> Iterator[RegistrySync]:
    def make(image: ServiceImage) -> ImageJob:
        return ImageJob(cloud.service, cloud.repository, image, job_settings(cloud))

    jobs = Jobs(1, make, lambda: None)
    yield assembly.registry_sync(
        cloud.conf,
        cloud.service,
        cloud.repository,
        jobs,
        "me/1",
        lambda: None,
        cloud.clock,
        cloud.clock,
    )
    assert jobs.stop(10)


def register(cloud: Cloud, sync: RegistrySync, *numbers: int) -> list[str]:
    """Register images as the keeper would have it; return their ids."""
    images = [cloud.upload(number) for number in numbers]
    assert sync.reconcile(lambda: True) == {}
    for image in list(sync.due.values()):
        assert sync.start(image)
        settings = job_settings(cloud)
        sync.finish(ImageJob(cloud.service, cloud.repository, image, settings).run())
    return images


def state_of(cloud: Cloud, image_id: str) -> EntryState | None:
    entry = cloud.entry(image_id)
    return entry.state if entry else None


def test_image_that_a_listing_missed_stays(
    cloud: Cloud, sync: RegistrySync, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image,) = register(cloud, sync, 1)
    monkeypatch.setattr(cloud.service, "list_images", list)
    assert sync.reconcile(lambda: True) == {}
    assert state_of(cloud, image) is EntryState.REGISTERED
    cloud.glance.remove(image)
    sync.reconcile(lambda: True)
    assert state_of(cloud, image) is EntryState.WITHDRAWN


def test_many_images_gone_at_once_are_told_of(
    cloud: Cloud, sync: RegistrySync, caplog: pytest.LogCaptureFixture
) -> None:
    images = register(cloud, sync, *range(1, 6))
    for image in images[:4]:
        cloud.glance.remove(image)
    with caplog.at_level(logging.WARNING):
        sync.reconcile(lambda: True)
    assert "Glance lists 4 of 5 registered images no more" in caplog.text
    assert all(cloud.is_published(image) for image in images), "the grace period is not over"
    caplog.clear()
    sync.reconcile(lambda: True)
    assert "no more" not in caplog.text


def test_outcome_of_what_another_registrar_does_is_not_written(
    cloud: Cloud, sync: RegistrySync
) -> None:
    image_id = cloud.upload(1)
    image = cloud.glance.find_image(image_id)
    assert image is not None
    theirs = Entry(EntryState.REGISTERING, registrar="other/2")
    cloud.image_registry.replace(image_id, None, theirs)
    for kind in OutcomeKind:
        sync.finish(Outcome(image, kind, "reason"))
        assert cloud.entry(image_id) == theirs


def test_attempt_counts_when_it_begins_and_not_again_when_it_ends(
    cloud: Cloud, sync: RegistrySync
) -> None:
    image_id = cloud.upload(1)
    sync.reconcile(lambda: True)
    (image,) = sync.due.values()
    attempts = []
    for kind in (None, OutcomeKind.FAILED):
        if kind is not None:
            sync.finish(Outcome(image, kind, "away"))
        else:
            assert sync.start(image)
        entry = cloud.entry(image_id)
        assert entry is not None
        attempts.append(entry.attempts)
    assert attempts == [1, 1]


def test_cancelled_registration_is_no_attempt(cloud: Cloud, sync: RegistrySync) -> None:
    image_id = cloud.upload(1)
    sync.reconcile(lambda: True)
    for expected in (1, 1):
        (image,) = sync.due.values()
        assert sync.start(image)
        entry = cloud.entry(image_id)
        assert entry is not None
        assert (entry.state, entry.attempts) == (EntryState.REGISTERING, expected)
        sync.finish(Outcome(image, OutcomeKind.CANCELLED, "the registrar stops"))
        entry = cloud.entry(image_id)
        assert entry is not None
        assert (entry.state, entry.attempts) == (EntryState.WAITING, 0)
        sync.reconcile_image(image_id)


def test_start_of_what_is_not_to_be_registered_any_more_is_none(
    cloud: Cloud, sync: RegistrySync
) -> None:
    image_id = cloud.upload(1)
    sync.reconcile(lambda: True)
    (image,) = sync.due.values()
    listed = cloud.image_registry.find(image_id)
    cloud.image_registry.replace(image_id, listed, Entry(EntryState.LEFT))
    assert not sync.start(image)
    assert sync.due == {}
    cloud.image_registry.replace(image_id, cloud.image_registry.find(image_id), None)
    assert not sync.start(image)


def test_comparison_stops_when_the_lead_is_lost(cloud: Cloud, sync: RegistrySync) -> None:
    for number in range(1, 5):
        cloud.upload(number)
    asked: list[bool] = []

    def is_wanted() -> bool:
        asked.append(True)
        return len(asked) <= 2

    sync.reconcile(is_wanted)
    assert len(list(cloud.image_registry.ids())) == 2


def test_delays_between_attempts_double_up_to_their_limit(cloud: Cloud, sync: RegistrySync) -> None:
    image_id = cloud.upload(1)
    sync.reconcile(lambda: True)
    delays = []
    for _ in range(10):
        (image,) = sync.due.values()
        assert sync.start(image)
        sync.finish(Outcome(image, OutcomeKind.FAILED, "away"))
        due = sync.next_due()
        assert due is not None
        assert due[1] == image_id
        delays.append(due[0] - cloud.clock.now)
        cloud.clock.now = due[0]
        sync.reconcile_image(image_id)
    for attempt, delay in enumerate(delays):
        expected = min(3600.0, 30.0 * 2**attempt)
        assert 0.75 * expected - 1 <= delay <= expected + 1
    entry = cloud.entry(image_id)
    assert entry is not None
    assert entry.attempts == 10


def test_ignored_pin_is_told_once(
    cloud: Cloud, sync: RegistrySync, caplog: pytest.LogCaptureFixture
) -> None:
    image_id = cloud.upload(1, owner="tenant", properties={"acstor_pin": "true"})
    told = f"the pin of image {image_id} is ignored"
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            sync.reconcile(lambda: True)
            sync.reconcile_image(image_id)
        (image,) = sync.due.values()
        assert sync.start(image)
        settings = job_settings(cloud)
        sync.finish(ImageJob(cloud.service, cloud.repository, image, settings).run())
        sync.reconcile_image(image_id)
    entry = cloud.entry(image_id)
    assert entry is not None
    assert (entry.state, entry.pin, entry.pin_ignored) == (EntryState.REGISTERED, False, True)
    assert caplog.text.count(told) == 1
    cloud.glance.change(image_id, visibility="public")
    sync.reconcile_image(image_id)
    entry = cloud.entry(image_id)
    assert entry is not None
    assert (entry.pin, entry.pin_ignored) == (True, False)
    assert caplog.text.count(told) == 1
    with caplog.at_level(logging.WARNING):
        cloud.glance.change(image_id, visibility="private")
        for _ in range(2):
            sync.reconcile_image(image_id)
    assert caplog.text.count(told) == 2


def test_options_say_what_is_registered_and_pinned(tmp_path: pathlib.Path) -> None:
    cloud = Cloud(
        tmp_path,
        visibility="public, shared",
        projects="a, b",
        snapshots="register",
        pin_projects="c",
    )
    rules = assembly.rules(cloud.conf)
    assert rules.visibilities == {"public", "shared"}
    assert rules.projects == {"a", "b"}
    assert not rules.are_snapshots_left
    assert rules.pin_projects == {"c"}
    (tmp_path / "defaults").mkdir()
    rules = assembly.rules(Cloud(tmp_path / "defaults").conf)
    assert rules == Rules(size_max=1 << 40, disk_size_max=256 << 30)

"""Notifications of Nova, as its reference has them, and malformed ones."""

import uuid
from typing import Any

import pytest

from acstor.preload.image_caching.notification import EVENTS, IMAGES_MAX, PROGRESS, parse
from tests.unit.preload.image_caching.conftest import IMAGE, OTHER, START, progress


def test_progress_names_host_and_images() -> None:
    found = parse(PROGRESS, progress())
    assert found is not None
    assert (found.host, found.images, found.aggregate) == ("compute", (IMAGE,), "my-aggregate")


def test_host_is_named_as_acstor_does_and_each_image_once() -> None:
    found = parse(
        PROGRESS,
        progress(host="Compute-7", images_cached=[IMAGE, IMAGE.upper()], images_failed=[OTHER]),
    )
    assert found is not None
    assert (found.host, found.images) == ("compute-7", (IMAGE, OTHER))


def test_start_and_end_name_no_image() -> None:
    for event in EVENTS:
        if event != PROGRESS:
            assert parse(event, START) is None


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        START,
        progress(host=""),
        progress(host=7),
        progress(host="h" * 256),
        progress(host="a\nb"),
        progress(images_cached=None),
        progress(images_cached=[7]),
        progress(images_failed=["no uuid"]),
        progress(images_cached=[str(uuid.UUID(int=each)) for each in range(IMAGES_MAX + 1)]),
        progress() | {"nova_object.version": "2.0"},
        progress() | {"nova_object.version": 1},
        progress() | {"nova_object.data": []},
    ],
)
def test_malformed_notification_is_refused(payload: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(PROGRESS, payload)

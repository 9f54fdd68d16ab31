"""Glance that is slow, fails, hangs, trickles or talks nonsense."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from keystoneauth1 import adapter, noauth, session

from acstor import exception
from acstor.registrar.image_service.glance import GlanceImageService
from acstor.registrar.image_service.memory import MemoryImageService
from testbed.doubles.glance_server import GlanceServer, described
from testbed.doubles.registrar_cloud import content_of, describe

CONTENT = content_of(1, 200_000)
IMAGE = describe("00000000-0000-4000-8000-000000000001", CONTENT)
RBD_URL = f"rbd://fsid/images/{IMAGE.id}/snap"

Make = Callable[..., GlanceImageService]


@pytest.fixture
def server() -> Iterator[GlanceServer]:
    images = MemoryImageService()
    images.put(IMAGE, CONTENT)
    made = GlanceServer(images)
    yield made
    made.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Yield the event that hanging requests wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def make(server: GlanceServer) -> Make:
    def make(**options: Any) -> GlanceImageService:
        connection = session.Session(auth=noauth.NoAuth(endpoint=server.url))
        connected = adapter.Adapter(connection, service_type="image")
        return GlanceImageService(connected, **{"read_timeout": 20.0, **options})

    return make


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, exception.UnavailableError),
        (502, exception.UnavailableError),
        (503, exception.OverloadedError),
        (429, exception.OverloadedError),
        (401, exception.InvalidError),
        (403, exception.InvalidError),
        (410, exception.InvalidError),
    ],
)
def test_status_has_its_kind(
    make: Make, server: GlanceServer, status: int, kind: type[exception.AcstorError]
) -> None:
    def refuse(request: Any) -> bool:
        request.answer(status, {})
        return True

    server.before = refuse
    service = make()
    for call in (
        service.list_images,
        lambda: service.find_image(IMAGE.id),
        lambda: service.open_data(IMAGE.id),
    ):
        with pytest.raises(kind, match=str(status)) as caught:
            call()
        assert type(caught.value) is kind


def test_hanging_service_is_given_up(
    make: Make, server: GlanceServer, release: threading.Event
) -> None:
    server.before = lambda request: release.wait(60)
    service = make(read_timeout=0.2)
    with pytest.raises(exception.UnavailableError, match="cannot be reached"):
        service.find_image(IMAGE.id)


def test_service_that_hangs_in_the_middle_of_data_is_given_up(
    make: Make, server: GlanceServer, release: threading.Event
) -> None:
    def hang(request: Any) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", str(len(CONTENT)))
        request.end_headers()
        request.wfile.write(CONTENT[:1000])
        return release.wait(60)

    server.before = hang
    with make(read_timeout=60.0).open_data(IMAGE.id) as data:
        assert data.read(1 << 20) == CONTENT[:1000], "what is there comes at once"
        opened: Any = data  # only now, as nothing says when the server has its turn to send that
        opened._response.raw._fp.fp.raw._sock.settimeout(0.2)
        with pytest.raises(exception.UnavailableError, match="stopped sending"):
            data.read(1 << 20)


def test_broken_connection_is_no_end_of_the_data(make: Make, server: GlanceServer) -> None:
    def break_off(request: Any) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", str(len(CONTENT)))
        request.end_headers()
        request.wfile.write(CONTENT[:1000])
        request.close_connection = True
        return True

    server.before = break_off
    with make().open_data(IMAGE.id) as data:
        assert data.read(1 << 20) == CONTENT[:1000]
        try:
            rest = data.read(1 << 20)
        except exception.UnavailableError:
            rest = b""
        assert rest == b""


def test_trickling_answer_ends_at_its_deadline(
    make: Make, server: GlanceServer, release: threading.Event
) -> None:
    now = [0.0]

    def trickle(request: Any) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        for _ in range(1000):
            request.wfile.write(b" ")
            request.wfile.flush()
            now[0] += 1
            if release.is_set():
                break
        return True

    server.before = trickle
    with pytest.raises(exception.UnavailableError):
        make(clock=lambda: now[0], answer_deadline=10.0).find_image(IMAGE.id)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"id": 7}', b'{"id": "no-uuid", "status": "active"}'],
)
def test_nonsense_is_an_error(make: Make, server: GlanceServer, body: bytes) -> None:
    def answer(request: Any) -> bool:
        request.answer_bytes(200, body)
        return True

    server.before = answer
    with pytest.raises(exception.UnavailableError, match="unintelligible"):
        make().find_image(IMAGE.id)
    if body != b"{}":
        with pytest.raises(exception.UnavailableError, match="unintelligible"):
            make().list_images()


def test_listing_that_does_not_end_is_an_error(make: Make, server: GlanceServer) -> None:
    def repeat(request: Any) -> bool:
        request.answer(200, {"images": [described(IMAGE)], "next": "/v2/images"})
        return True

    server.before = repeat
    with pytest.raises(exception.UnavailableError, match="does not end"):
        make().list_images()


def test_image_deleted_between_two_pages_makes_the_listing_begin_again(
    make: Make, server: GlanceServer
) -> None:
    for number in range(2, 9):
        server.images.put(describe(f"00000000-0000-4000-8000-{number:012}", CONTENT), CONTENT)
    marker = "00000000-0000-4000-8000-000000000003"
    deleted: list[str] = []

    def delete(request: Any) -> bool:
        if f"marker={marker}" in request.path and not deleted:
            deleted.append(marker)
            server.images.remove(marker)
        return False

    server.before = delete
    assert len(make().list_images()) == 7
    assert deleted


def test_service_that_is_not_there_is_unavailable(make: Make, server: GlanceServer) -> None:
    service = make()
    server.close()
    with pytest.raises(exception.UnavailableError, match="cannot be reached"):
        service.list_images()


def test_too_long_answer_is_refused(
    make: Make, server: GlanceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acstor.registrar.image_service.glance.ANSWER_SIZE_MAX", 100)
    with pytest.raises(exception.UnavailableError, match="too long"):
        make().find_image(IMAGE.id)


def test_wrong_part_is_refused(make: Make, server: GlanceServer) -> None:
    def answer(request: Any) -> bool:
        request.answer_bytes(206, b"x", {"Content-Range": "nonsense"})
        return True

    server.before = answer
    with pytest.raises(exception.UnavailableError, match="without a range"):
        make().open_data(IMAGE.id, 10)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, ()),
        ({"locations": None, "direct_url": None}, ()),
        ({"locations": [{"url": RBD_URL, "metadata": {}}]}, (RBD_URL,)),
        ({"direct_url": RBD_URL}, (RBD_URL,)),
        ({"locations": [{"url": RBD_URL}, {"url": "swift://user:key@x"}], "direct_url": RBD_URL},
         (RBD_URL,)),
        ({"locations": [{"url": "rbd://x"}] * 100}, ("rbd://x",)),
    ],
)  # fmt: skip
def test_locations_in_rbd_are_taken_where_they_are_told(
    make: Make, server: GlanceServer, told: dict[str, Any], found: tuple[str, ...]
) -> None:
    def answer(request: Any) -> bool:
        request.answer(200, {**described(IMAGE), **told})
        return True

    server.before = answer
    image = make().find_image(IMAGE.id)
    assert image is not None
    assert image.locations == found
    assert not image.properties

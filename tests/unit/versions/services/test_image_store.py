"""Images in Glance over real HTTP: what is sent, and what each refusal is."""

import datetime
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from keystoneauth1 import adapter, session
from keystoneauth1.noauth import NoAuth

from acstor import exception
from acstor.versions.services.image_store import GlanceStore, MadeImage, NewImage, StoredImage

IMAGE = NewImage("1a2b", "golden", "p1", "raw", 5, {"hw_firmware_type": "uefi"})


class Request:
    """Request as it came."""

    def __init__(self, method: str, path: str, headers: Any, body: bytes) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers what the test has put there."""

    server: "Glance"
    protocol_version = "HTTP/1.1"

    def handle_one(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.requests.append(Request(self.command, self.path, self.headers, body))
        status, answer = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = handle_one  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Log nothing."""


class Glance(http.server.ThreadingHTTPServer):
    """Server with the requests it got and the answers it gives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[Request] = []
        self.answers: list[tuple[int, bytes]] = []


class Login(NoAuth):
    """Login that can be made again."""

    def invalidate(self) -> bool:
        return True


class Content:
    """Content of two pieces."""

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[bytes]:
        yield b"abc"
        yield b"def"


class BrokenContent(Content):
    """Content whose second piece cannot be read."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"abc"
        raise exception.CorruptError("a chunk is damaged")


@pytest.fixture
def glance() -> Iterator[Glance]:
    with Glance() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(glance: Glance) -> GlanceStore:
    url = f"http://127.0.0.1:{glance.server_address[1]}"
    return GlanceStore(adapter.Adapter(session.Session(Login(endpoint=url)), "image"))


def test_image_is_the_projects_and_private(glance: Glance, store: GlanceStore) -> None:
    glance.answers = [(201, b"{}")]
    store.create(IMAGE)
    (request,) = glance.requests
    assert (request.method, request.path) == ("POST", "/v2/images")
    assert json.loads(request.body) == {
        "id": "1a2b",
        "name": "golden",
        "owner": "p1",
        "disk_format": "raw",
        "container_format": "bare",
        "visibility": "private",
        "min_disk": 5,
        "hw_firmware_type": "uefi",
        "tags": ["acstor"],
    }


def listed(*images: dict[str, Any], **more: Any) -> tuple[int, bytes]:
    """Return the answer that is a page."""
    return 200, json.dumps({"images": images, **more}).encode()


def test_images_that_tasks_made_are_listed_page_by_page(glance: Glance, store: GlanceStore) -> None:
    mine = {"id": "a-1", "owner": "p1", "acstor_task": "t1", "acstor_image": "a-1"}
    snapshot = {**mine, "id": "b-2"}
    plain = {"id": "c-3", "owner": None, "acstor_task": 5}
    glance.answers = [listed(mine, snapshot, next="/v2/images?marker=b-2"), listed(plain)]
    since = datetime.datetime(2026, 3, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert list(store.made(since)) == [
        MadeImage("a-1", "p1", "t1", is_original=True),
        MadeImage("b-2", "p1", "t1", is_original=False),
        MadeImage("c-3", "", None, is_original=False),
    ]
    queries = [
        dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.path).query))
        for request in glance.requests
    ]
    expected = {
        "tag": "acstor",
        "created_at": "gte:2026-03-01T12:00:00Z",
        "sort_key": "created_at",
        "sort_dir": "desc",
        "limit": "100",
    }
    assert queries == [expected, {**expected, "marker": "b-2"}]


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"[]"),
        (200, b"x"),
        (200, b'{"images": 1}'),
        listed({"owner": "p1"}),
        listed({"id": "a/../b"}),
        listed({"id": ["a"]}),
        (400, b""),
        (503, b""),
    ],
)
def test_list_that_is_none_is_an_absence(
    glance: Glance, store: GlanceStore, answer: tuple[int, bytes]
) -> None:
    glance.answers = [answer]
    with pytest.raises(exception.UnavailableError):
        list(store.made(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)))


def test_image_that_is_there_is_left(glance: Glance, store: GlanceStore) -> None:
    found = {"id": "1a2b", "status": "queued", "owner": "p1", "size": None}
    glance.answers = [(409, b""), (200, json.dumps(found).encode())]
    store.create(IMAGE)
    glance.answers = [(409, b""), (404, b"")]
    with pytest.raises(exception.ConflictError):
        store.create(IMAGE)


@pytest.mark.parametrize("fields", [{"owner": "p2"}, {"status": "active"}, {"owner": None}])
def test_image_of_that_id_that_somebody_else_made_is_not_ours(
    glance: Glance, store: GlanceStore, fields: dict[str, Any]
) -> None:
    found = {"id": "1a2b", "status": "queued", "owner": "p1", "size": None, **fields}
    glance.answers = [(409, b""), (200, json.dumps(found).encode())]
    with pytest.raises(exception.ConflictError):
        store.create(IMAGE)


def test_login_that_ran_out_has_all_sent_again(glance: Glance, store: GlanceStore) -> None:
    glance.answers = [(401, b""), (204, b"")]
    store.upload("1a2b", Content())
    assert [request.body for request in glance.requests] == [b"abcdef", b"abcdef"]


def test_words_of_glance_are_passed_on_without_markup(glance: Glance, store: GlanceStore) -> None:
    glance.answers = [(403, b"<html><b>Property\x1b os_glance_x is reserved</b>" + b"x" * 5000)]
    with pytest.raises(exception.InvalidError, match="Property os_glance_x is reserved") as caught:
        store.create(IMAGE)
    assert len(caught.value.message) < 300


def test_content_comes_with_its_length(glance: Glance, store: GlanceStore) -> None:
    glance.answers = [(204, b"")]
    store.upload("1a2b", Content())
    (request,) = glance.requests
    assert (request.method, request.path, request.body) == (
        "PUT",
        "/v2/images/1a2b/file",
        b"abcdef",
    )
    assert request.headers["Content-Length"] == "6"
    assert request.headers["Transfer-Encoding"] is None


def test_content_that_cannot_be_read_is_no_image(glance: Glance, store: GlanceStore) -> None:
    glance.answers = [(204, b"")]
    with pytest.raises(exception.CorruptError, match="damaged"):
        store.upload("1a2b", BrokenContent())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, exception.InvalidError),
        (403, exception.InvalidError),
        (413, exception.InvalidError),
        (404, exception.NotFoundError),
        (410, exception.NotFoundError),
        (409, exception.ConflictError),
        (500, exception.UnavailableError),
        (503, exception.UnavailableError),
    ],
)
def test_refusals_are_of_their_kind(
    glance: Glance, store: GlanceStore, status: int, expected: type[exception.AcstorError]
) -> None:
    glance.answers = [(status, b"")]
    with pytest.raises(expected) as caught:
        store.upload("1a2b", Content())
    assert caught.value.hint


def test_image_is_as_glance_says(glance: Glance, store: GlanceStore) -> None:
    fields = {
        "id": "1a2b",
        "status": "active",
        "owner": "p1",
        "size": 6,
        "os_hash_algo": "sha512",
        "os_hash_value": "ab",
    }
    glance.answers = [(200, json.dumps(fields).encode()), (404, b"")]
    assert store.find("1a2b") == StoredImage("1a2b", "active", "p1", 6, "sha512", "ab")
    assert store.find("1a2b") is None


@pytest.mark.parametrize("answer", [b"nonsense", b"[]", b"{}"])
def test_nonsense_is_no_image(glance: Glance, store: GlanceStore, answer: bytes) -> None:
    glance.answers = [(200, answer)]
    with pytest.raises(exception.UnavailableError):
        store.find("1a2b")


def test_deleting_is_repeatable(glance: Glance, store: GlanceStore) -> None:
    glance.answers = [(204, b""), (404, b""), (403, b"")]
    store.delete("1a2b")
    store.delete("1a2b")
    with pytest.raises(exception.ConflictError, match="protected"):
        store.delete("1a2b")


def test_glance_that_is_not_there_is_away() -> None:
    gone = adapter.Adapter(session.Session(NoAuth(endpoint="http://127.0.0.1:1")), "image")
    with pytest.raises(exception.UnavailableError, match="Glance"):
        GlanceStore(gone).upload("1a2b", Content())

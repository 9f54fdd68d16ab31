"""Content that breaks off, changes, and is taken up again."""

import io
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import requests

from acstorclient import service
from acstorclient.exception import DownloadFailed
from acstorclient.v1.proxy import Proxy
from testbed.doubles.contract_api import ContractApi, StartResponse
from testbed.doubles.user_cloud import UserCloud
from tests.unit.clients.conftest import connected

V1 = "0b6a1c5e-4f2d-4c39-8d17-9e3f5a7b2c10"
CONTENT = b"abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no byte lost with the part that it is in."""
    monkeypatch.setattr("acstorclient.download.PART_BYTES", 1)


class FaultyContent:
    """The API, whose content breaks off.

    :param breaks: after how many bytes each answer does; then no more.
    """

    def __init__(self, breaks: list[int]) -> None:
        self.api = ContractApi()
        self.breaks = breaks

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer."""
        is_content = environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith("/data")
        answer = self.api(environ, start_response)
        if is_content and self.breaks:
            return _broken(b"".join(answer), self.breaks.pop(0))
        return answer


def _broken(content: bytes, after: int) -> Iterator[bytes]:
    yield content[:after]
    raise requests.exceptions.ChunkedEncodingError("the connection broke")


def proxy(breaks: list[int]) -> tuple[Proxy, FaultyContent]:
    """Return a proxy of such an API."""
    faulty = FaultyContent(breaks)
    return service.attach(connected(UserCloud(faulty))), faulty


@pytest.mark.parametrize("breaks", [[], [0], [10], [3, 0, 4], [0, 0, 0, 0, 0, 1, 0]])
def test_content_is_whole_in_the_end(breaks: list[int]) -> None:
    client, faulty = proxy(list(breaks))
    sink, seen = io.BytesIO(), []
    written = client.download_version(
        V1, sink, observe=lambda done, total: seen.append((done, total))
    )
    assert (written, sink.getvalue()) == (26, CONTENT)
    assert seen[-1] == (26, 26)
    asked = [each for each in faulty.api.requests if each.method == "GET" and "data" in each.path]
    assert len(asked) == len(breaks) + 1


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have nobody wait; return for how long they would have."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def test_busy_api_is_asked_again(waits: list[float]) -> None:
    client, faulty = proxy([5])
    original = faulty.api.answer
    busy = [503, 503, 502]

    def answer(request: Any) -> Any:
        found = original(request)
        if request.headers.get("Range") and busy:
            found.status = busy.pop(0)
            found.headers["Retry-After"] = "0"
        return found

    faulty.api.answer = answer  # type: ignore[method-assign]
    sink = io.BytesIO()
    assert client.download_version(V1, sink) == 26
    assert sink.getvalue() == CONTENT
    assert busy == []


def test_breaks_without_a_byte_are_given_up() -> None:
    client, _ = proxy([4] + [0] * 99)
    with pytest.raises(DownloadFailed, match="after 4 of 26 bytes, 6 times in a row"):
        client.download_version(V1, io.BytesIO())


def test_content_that_changes_is_not_mixed() -> None:
    client, faulty = proxy([5])
    (example,) = [each for each in faulty.api.examples if each.name == "content"]
    original = faulty.api.answer

    def changed(request: Any) -> Any:
        answer = original(request)
        if request.headers.get("Range"):
            answer.status, answer.headers["ETag"] = 200, '"another"'
        return answer

    faulty.api.answer = changed  # type: ignore[method-assign]
    with pytest.raises(DownloadFailed, match="begin anew"):
        client.download_version(V1, io.BytesIO())
    assert example.response["status"] == 200


def test_content_without_a_length_is_not_believed() -> None:
    client, faulty = proxy([])
    original = faulty.api.answer

    def unmeasured(request: Any) -> Any:
        answer = original(request)
        answer.headers.pop("Content-Length", None)
        return answer

    faulty.api.answer = unmeasured  # type: ignore[method-assign]
    with pytest.raises(DownloadFailed, match="neither length nor digest"):
        client.download_version(V1, io.BytesIO())

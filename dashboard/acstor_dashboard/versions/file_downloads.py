"""Content of files of a version on its way from the API to a browser, never held and never shown.

Source: RFC 6266 (names of downloads), RFC 9110 (ranges), the Fetch standard (``nosniff``).
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import requests
from django import http
from django.utils.http import content_disposition_header
from django.utils.translation import gettext_lazy as _

from acstor_dashboard import connection, failures
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.versions.file_rows import Place
from acstor_dashboard.views import PageView
from acstorclient.archive_end import ArchiveEnd
from acstorclient.exception import DownloadFailed

PART_BYTES = 64 << 10
"""Bytes that are held at a time."""
NAME_MAX = 200
"""Most characters of the name that is proposed to a browser."""
FORBIDDEN = frozenset('\\/:*?"<>|%')
"""Characters that some system does not take in a name, or that mean something in the header."""
PASSED_ON = ("Range", "If-Range")
"""Headers of the browser by which a download goes on where it broke off."""
KEPT = ("Accept-Ranges", "Content-Length", "Content-Range", "ETag")
"""Headers of the API's answer that a browser needs for that."""
UNAVAILABLE = 503
"""Status where there is no answer that has one."""


class Content:
    """Bytes of an answer of the API, part by part.

    :param look: called with each part.
    :param is_whole: asked at the end, whether nothing is missing.
    """

    def __init__(
        self,
        answer: requests.Response,
        look: Callable[[bytes], object] | None = None,
        is_whole: Callable[[], bool] | None = None,
    ) -> None:
        self._answer = answer
        self._parts: Iterator[bytes] = answer.iter_content(PART_BYTES)
        self._look = look
        self._is_whole = is_whole

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next bytes.

        :raises DownloadFailed: the end is missing. The server breaks the connection off then, by
            which a browser sees it.
        """
        part = next(self._parts, None)
        if part is None:
            self.close()
            if self._is_whole and not self._is_whole():
                raise DownloadFailed(f"{self._answer.url} ended before its end")
            raise StopIteration
        if self._look:
            self._look(part)
        return part

    def close(self) -> None:
        """Let the API end what it does; Django calls it, whether all was sent or not."""
        self._answer.close()


class DownloadView(PageView):
    """A download; where it cannot begin, a page that says why.

    :cvar source: last part of the path of the API.
    """

    http_method_names: ClassVar[list[str]] = ["get", "options"]
    template_name = "acstor_dashboard/versions/download.html"
    source: ClassVar[str]

    @property
    def place(self) -> Place:
        """Return what is downloaded."""
        return Place.of(self.kwargs["version"], self.request.GET)

    def file_name(self) -> str:
        """Return the name that is proposed to the browser."""
        return safe_name(self.place.name) or "file"

    def content(self, answer: requests.Response) -> Content:
        """Return the bytes of an answer."""
        return Content(answer)

    def passed_on(self) -> dict[str, str]:
        """Return headers of the browser that the API is sent."""
        return {}

    def get(self, request: http.HttpRequest, *args: Any, **kwargs: Any) -> http.HttpResponseBase:
        """Answer the bytes, or the page."""
        place = self.place
        try:
            answer = self._open(connection.connect(request), place)
        except failures.API_ERRORS as error:
            self.failures.append(failures.explain(error))
            refused: http.HttpResponse = super().get(request, *args, **kwargs)
            refused.status_code = getattr(error, "status_code", None) or UNAVAILABLE
            return refused
        kept = {name: answer.headers[name] for name in KEPT if name in answer.headers}
        headers = {**kept, **protection(self.file_name())}
        return http.StreamingHttpResponse(
            self.content(answer), status=answer.status_code, headers=headers
        )

    def _open(self, api: PageProxy, place: Place) -> requests.Response:
        path = f"/versions/{place.version_id}/files/{self.source}"
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", **self.passed_on()}
        seconds = connection.look_seconds()
        return api.get(path, params=place.query(), headers=headers, stream=True, timeout=seconds)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the page."""
        parent = list(self.place.parents())[-2:][0]
        return {**super().get_context_data(**kwargs), "back_url": parent.url()}


class ContentView(DownloadView):
    """Content of a file, or the rest of it."""

    page_title = _("Download of a File")
    rules = ("versions:file_content",)
    source = "content"

    def passed_on(self) -> dict[str, str]:
        """Return what takes a download up again."""
        given = self.request.headers
        return {name: given[name] for name in PASSED_ON if name in given}


class ArchiveView(DownloadView):
    """A directory as a tar archive, whose length nobody knows before."""

    page_title = _("Download of a Directory")
    rules = ("versions:file_archive",)
    source = "archive"

    def file_name(self) -> str:
        """Return the name of the directory; of the root that of the version."""
        return f"{safe_name(self.place.name) or self.place.version_id}.tar"

    def content(self, answer: requests.Response) -> Content:
        """Return the archive, whose end is looked for."""
        end = ArchiveEnd()

        def look(part: bytes) -> None:
            try:
                end.take(part)
            except ValueError as error:
                raise DownloadFailed(f"{answer.url} is no archive: {error}") from error

        return Content(answer, look, lambda: end.is_reached)


def protection(name: str) -> dict[str, str]:
    """Return the headers by which a browser saves what comes, and never shows or runs it."""
    return {
        "Cache-Control": "private, no-store",
        "Content-Disposition": content_disposition_header(True, name) or "attachment",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Type": "application/octet-stream",
        "X-Content-Type-Options": "nosniff",
    }


def safe_name(name: str) -> str:
    """Return a name as every system takes it: what does not print or means something is ``_``."""
    safe = "".join(
        each if each.isprintable() and each not in FORBIDDEN else "_" for each in name[:NAME_MAX]
    )
    return safe.lstrip(" ").rstrip(" .")

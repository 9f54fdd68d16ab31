"""Glance over its API, version 2, with the session of a service user.

The user needs to see every image: the role admin, or a policy that lets it list images of all
projects and download them, deactivated ones excepted.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import requests
import urllib3.exceptions
from keystoneauth1 import exceptions as ks_exceptions

from acstor import exception, untrusted_json
from acstor.registrar.image_service import base
from acstor.repository import layout
from acstor.repository.source.rbd.location import SCHEME

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

ANSWER_SIZE_MAX = 64 << 20
"""Longest answer to a question, bytes: a thousand images with very long properties."""
IMAGES_MAX = 1_000_000
LOCATIONS_MAX = 64
"""Most locations of an image that are kept."""
LISTINGS_MAX = 3
"""Attempts at a listing, when the image between two pages is deleted."""
_PART_SIZE = 1 << 16

_BASE_FIELDS = frozenset({
    "id", "name", "status", "disk_format", "container_format", "size", "virtual_size", "checksum",
    "os_hash_algo", "os_hash_value", "os_hidden", "visibility", "protected", "owner", "min_disk",
    "min_ram", "created_at", "updated_at", "tags", "self", "file", "schema", "stores", "locations",
    "direct_url",
})  # fmt: skip
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")


class GlanceImageService(base.ImageService):
    """Glance.

    :param adapter: keystoneauth's, for the image service.
    :param connect_timeout: seconds.
    :param read_timeout: seconds within which Glance must send something.
    :param answer_deadline: seconds that one answer may take, data of images excepted.
    :param page_size: images asked for at once.
    """

    def __init__(
        self,
        adapter: "Adapter",
        *,
        connect_timeout: float = 10.0,
        read_timeout: float = 60.0,
        answer_deadline: float = 180.0,
        page_size: int = 200,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what to ask with; nothing is asked yet."""
        self._adapter = adapter
        self._timeouts = (connect_timeout, read_timeout)
        self._answer_deadline = answer_deadline
        self._page_size = page_size
        self._clock = clock

    def list_images(self) -> list[base.ServiceImage]:
        """Return all images."""
        found: dict[str, base.ServiceImage] = {}
        for is_hidden in ("false", "true"):  # Glance lists either these or those
            found.update(self._list_again(is_hidden))
        return list(found.values())

    def find_image(self, image_id: str) -> base.ServiceImage | None:
        """Return an image."""
        image_id = layout.canonical_image_id(image_id)
        with self._get(f"/v2/images/{image_id}") as response:
            if response.status_code == 404:
                return None
            return _parse_image(self._read_answer(response))

    def open_data(self, image_id: str, offset: int = 0) -> base.ImageData:
        """Begin to read."""
        image_id = layout.canonical_image_id(image_id)
        path = f"/v2/images/{image_id}/file"
        # What was compressed on the way could not be continued.
        headers = {"Accept": "application/octet-stream", "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        response = self._get(path, headers)
        if offset and response.status_code in (400, 416):  # a store that only reads from the start
            response.close()
            del headers["Range"]
            response = self._get(path, headers)
        try:
            if response.status_code == 404:
                raise exception.NotFoundError(f"the image service has no image {image_id}")
            if response.status_code == 204:
                raise exception.UnavailableError(
                    f"the image service has lost the data of image {image_id}",
                    hint="check the store of the image service",
                )
            _check_status(response)
            return _GlanceData(response, _offset_of(response))
        except BaseException:
            response.close()
            raise

    def _list_again(self, is_hidden: str) -> dict[str, base.ServiceImage]:
        for attempt in range(1, LISTINGS_MAX + 1):
            try:
                return self._list(is_hidden)
            except _MarkerGoneError:
                if attempt == LISTINGS_MAX:
                    raise
        raise exception.InternalError("no listing was begun")

    def _list(self, is_hidden: str) -> dict[str, base.ServiceImage]:
        found: dict[str, base.ServiceImage] = {}
        marker = ""
        while True:
            # Ascending: what is created meanwhile comes last.
            query = (
                f"limit={self._page_size}&sort=created_at:asc,id:asc&visibility=all"
                f"&os_hidden={is_hidden}"
            )
            path = f"/v2/images?{query}" + (f"&marker={marker}" if marker else "")
            with self._get(path) as response:
                if marker and response.status_code in (400, 404):
                    raise _MarkerGoneError(
                        "images are deleted faster than they are listed", hint="try again later"
                    )
                answer = self._read_answer(response)
            page = [_parse_image(fields) for fields in _list_of(answer, "images")]
            found.update((image.id, image) for image in page)
            if "next" not in answer:
                return found
            if not page or page[-1].id == marker or len(found) > IMAGES_MAX:
                raise _unintelligible("its listing does not end")
            marker = page[-1].id

    def _get(self, path: str, headers: dict[str, str] | None = None) -> requests.Response:
        """Ask; the answer's body is still to be read."""
        try:
            response: requests.Response = self._adapter.get(
                path,
                headers=headers or {},
                raise_exc=False,
                stream=True,
                log=False,
                timeout=self._timeouts,
            )
        except (
            ks_exceptions.Unauthorized,
            ks_exceptions.Forbidden,
            ks_exceptions.CatalogException,
            ks_exceptions.MissingAuthPlugin,
        ) as error:
            raise exception.InvalidError(
                f"Keystone gives no access to the image service: {exception.one_line(error)}",
                hint="check [keystone] and the image service in the service catalogue",
            ) from error
        except (ks_exceptions.ClientException, requests.RequestException, OSError) as error:
            raise exception.UnavailableError(
                f"the image service cannot be reached: {exception.one_line(error)}",
                hint="check that Glance and Keystone are up",
            ) from error
        return response

    def _read_answer(self, response: requests.Response) -> dict[str, Any]:
        """Return the body of an answer, within its deadline and size."""
        _check_status(response)
        until = self._clock() + self._answer_deadline
        data = _GlanceData(response, 0)
        body = bytearray()
        while part := data.read(_PART_SIZE):
            body += part
            if len(body) > ANSWER_SIZE_MAX:
                raise _unintelligible("it is too long")
            if self._clock() > until:
                raise exception.DeadlineError("the image service did not finish its answer in time")
        try:
            answer = untrusted_json.load(body, "it")
        except ValueError as error:
            raise _unintelligible(exception.one_line(error)) from error
        if not isinstance(answer, dict):
            raise _unintelligible("it is no object")
        return answer


class _MarkerGoneError(exception.UnavailableError):
    """The last image of a page is gone before the next page."""


class _GlanceData(base.ImageData):
    def __init__(self, response: requests.Response, offset: int) -> None:
        self.offset = offset
        self._response = response

    def read(self, size: int) -> bytes:
        try:
            # read() would wait until all of them are there, however slowly they come.
            return bytes(self._response.raw.read1(size, decode_content=True))
        except (urllib3.exceptions.HTTPError, requests.RequestException, OSError) as error:
            raise exception.UnavailableError(
                f"the image service stopped sending: {exception.one_line(error)}"
            ) from error

    def close(self) -> None:
        self._response.close()


def _check_status(response: requests.Response) -> None:
    status = response.status_code
    what = f"the image service answered {status} to {response.request.path_url}"
    if status in (429, 503):
        raise exception.OverloadedError(what)
    if status >= 500:
        raise exception.UnavailableError(what, hint="see the log of glance-api")
    if status in (401, 403):
        raise exception.InvalidError(
            what, hint="give the user of [keystone] the role admin in its project"
        )
    if status not in (200, 206):
        raise exception.InvalidError(what, hint="check [glance] endpoint_override")


def _offset_of(response: requests.Response) -> int:
    if response.status_code != 206:
        return 0
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if match is None:
        raise _unintelligible("it is a part without a range")
    return int(match[1])


def _parse_image(fields: Any) -> base.ServiceImage:
    try:
        return base.ServiceImage(
            id=layout.canonical_image_id(fields["id"]),
            name=str(fields.get("name") or ""),
            status=str(fields["status"]),
            disk_format=_text(fields.get("disk_format")),
            container_format=_text(fields.get("container_format")),
            size_bytes=_size(fields.get("size")),
            md5=_text(fields.get("checksum")),
            hash_algorithm=_text(fields.get("os_hash_algo")),
            hash_value=_text(fields.get("os_hash_value")),
            owner=str(fields.get("owner") or ""),
            visibility=str(fields.get("visibility") or ""),
            is_hidden=bool(fields.get("os_hidden")),
            updated_at=str(fields.get("updated_at") or ""),
            properties={
                name: str(value)
                for name, value in fields.items()
                if name not in _BASE_FIELDS and value is not None
            },
            locations=_locations(fields),
        )
    except (KeyError, TypeError, ValueError, AttributeError, exception.InvalidError) as error:
        raise _unintelligible(exception.one_line(error)) from error


def _list_of(answer: dict[str, Any], name: str) -> list[Any]:
    items = answer.get(name)
    if not isinstance(items, list):
        raise _unintelligible(f"it has no {name}")
    return items


def _locations(fields: dict[str, Any]) -> tuple[str, ...]:
    """Return what Glance tells with show_multiple_locations or show_image_direct_url.

    Those of RBD only: locations of other stores may hold credentials.
    """
    told = fields.get("locations") or []
    if not isinstance(told, list):
        raise TypeError("locations are no list")
    found = [one["url"] for one in told[:LOCATIONS_MAX]]
    found.append(fields.get("direct_url"))
    texts = (text for text in found if isinstance(text, str) and text.startswith(SCHEME))
    return tuple(dict.fromkeys(texts))


def _size(value: Any) -> int | None:
    return None if value is None else untrusted_json.whole(value, "size")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _unintelligible(why: str) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"the image service gave an unintelligible answer: {why}",
        hint="check that [glance] endpoint_override or the service catalogue names Glance",
    )

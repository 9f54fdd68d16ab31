"""Glance, as flows need it to make images of a project: create, upload, look, delete."""

import dataclasses
import datetime
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from oslo_config import cfg

from acstor import exception, identity, untrusted_json
from acstor.conf import glance

CALL_TIMEOUT = 30.0
"""Seconds for one question."""
SILENCE_TIMEOUT = 600.0
"""Seconds that Glance may stand still in an upload, and take for its end: some stores copy then."""
DELETE_TIMEOUT = 300.0
"""Seconds that a deletion may take: of large images stores do it at once."""
EXPLANATION_LENGTH_MAX = 200
"""Characters of Glance's own words that are passed on."""
VERSION_PROPERTY = "acstor_exported_version"
"""Property of images that were made of a version: its id."""
TASK_PROPERTY = "acstor_task"
"""Property of images that tasks make: the task's id."""
ORIGINAL_PROPERTY = "acstor_image"
"""Property of images that tasks make: their own id. A snapshot of a server has the properties of
the server's image, and then this one names another."""
TAG = "acstor"
"""Tag of images that tasks make, by which they are listed; Glance looks for no property that has
any value."""
PAGE = 100
"""Images of one page of a list."""
ACTIVE = "active"
"""Status of an image that has its content."""
QUEUED = "queued"
"""Status of an image that has no content yet."""
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
TOO_LARGE = 413
"""Status with which Glance refuses what is over a limit."""


@dataclasses.dataclass(frozen=True, slots=True)
class NewImage:
    """Request for an image without content."""

    id: str
    name: str
    project: str
    disk_format: str
    min_disk_gib: int
    properties: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredImage:
    """Image as Glance has it."""

    id: str
    status: str
    project: str
    size_bytes: int | None
    hash_algorithm: str | None
    hash_value: str | None
    """Digest of the content, hexadecimal."""


@dataclasses.dataclass(frozen=True, slots=True)
class MadeImage:
    """Image that says of itself that a task has made it. Its owner may have it say anything."""

    id: str
    project: str
    task: str | None
    """Id of the task."""
    is_original: bool
    """True if it says that it is the one that was made."""


class Content(Protocol):
    """Content to upload, of a length that is known."""

    def __len__(self) -> int:
        """Return the length, bytes."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield it, once."""


class ImageStore(Protocol):
    """Images that are made for projects.

    Every method may raise :class:`~acstor.exception.UnavailableError`: it may be repeated then, an
    upload under another id.
    """

    def find(self, image_id: str) -> StoredImage | None:
        """Return an image, None where there is none."""

    def create(self, image: NewImage) -> None:
        """Create an image; without effect where it is there as it would be made.

        :raises ConflictError: when there is another one of that id: anybody may choose ids.
        :raises InvalidError: when Glance refuses it, as for a quota.
        """

    def upload(self, image_id: str, content: Content) -> None:
        """Give an image its content.

        :raises InvalidError: when Glance refuses it, as for a quota.
        :raises ConflictError: when it has some, or an upload of it has begun before.
        :raises NotFoundError: when it is deleted.
        """

    def delete(self, image_id: str) -> None:
        """Delete an image; without effect where there is none.

        :raises ConflictError: when it is protected, or in use.
        """

    def made(self, since: datetime.datetime) -> Iterator[MadeImage]:
        """Yield images that tasks have made, the youngest first.

        Those that are hidden, or offered to the community, are left out: somebody wants them.

        :param since: moment before which none was made that is of interest.
        """


class GlanceStore:
    """Images of Glance; see :class:`ImageStore`.

    :param adapter: of keystoneauth, for the image service, with the rights of an admin.
    """

    def __init__(self, adapter: Any) -> None:
        """Keep the adapter."""
        self._adapter = adapter

    def find(self, image_id: str) -> StoredImage | None:
        """Return an image; see :meth:`ImageStore.find`."""
        answer = self._call("get", f"/v2/images/{image_id}")
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise _unexpected(answer)
        try:
            return _image_of(untrusted_json.load(answer.content, "the answer"))
        except (ValueError, KeyError, TypeError) as error:
            raise exception.UnavailableError(f"Glance answers nonsense: {error}") from error

    def create(self, image: NewImage) -> None:
        """Create an image; see :meth:`ImageStore.create`."""
        fields = {
            **image.properties,
            "id": image.id,
            "name": image.name,
            "owner": image.project,
            "disk_format": image.disk_format,
            "container_format": "bare",
            "visibility": "private",
            "min_disk": image.min_disk_gib,
            "tags": [TAG],
        }
        headers = {"Content-Type": "application/json"}
        answer = self._call("post", "/v2/images", data=json.dumps(fields), headers=headers)
        if answer.status_code == 201:
            return
        if answer.status_code == 409:
            found = self.find(image.id)
            if found is not None and (found.project, found.status) == (image.project, QUEUED):
                return
        _check(answer, f"image {image.id}")

    def upload(self, image_id: str, content: Content) -> None:
        """Give an image its content; see :meth:`ImageStore.upload`."""
        answer = self._call(
            "put",
            f"/v2/images/{image_id}/file",
            data=content,
            headers={"Content-Type": "application/octet-stream"},
            # Content is sent under the first one, too.
            timeout=(SILENCE_TIMEOUT, SILENCE_TIMEOUT),
            # The content comes once: it cannot be sent again.
            connect_retries=0,
            status_code_retries=0,
        )
        _check(answer, f"the content of image {image_id}")

    def delete(self, image_id: str) -> None:
        """Delete an image; see :meth:`ImageStore.delete`."""
        answer = self._call("delete", f"/v2/images/{image_id}", timeout=DELETE_TIMEOUT)
        if answer.status_code in (204, 404):
            return
        if answer.status_code == 403:
            raise exception.ConflictError(
                f"image {image_id} is protected", hint="take its protection off"
            )
        _check(answer, f"deleting image {image_id}")

    def made(self, since: datetime.datetime) -> Iterator[MadeImage]:
        """Yield images that tasks have made; see :meth:`ImageStore.made`."""
        query = {
            "tag": TAG,
            "created_at": f"gte:{since.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
            "sort_key": "created_at",
            "sort_dir": "desc",
            "limit": str(PAGE),
        }
        while True:
            answer = self._call("get", f"/v2/images?{urllib.parse.urlencode(query)}")
            if answer.status_code != 200:
                raise _unexpected(answer)
            try:
                page, is_last = _page_of(untrusted_json.load(answer.content, "the answer"))
            except (ValueError, KeyError, TypeError) as error:
                raise exception.UnavailableError(f"Glance answers nonsense: {error}") from error
            yield from page
            if is_last:
                return
            query["marker"] = page[-1].id

    def _call(self, method: str, path: str, **options: Any) -> Any:
        import requests
        from keystoneauth1 import exceptions

        wanted = {
            "timeout": CALL_TIMEOUT,
            "connect_retries": identity.CONNECT_RETRIES,
            "raise_exc": False,
            **options,
        }
        try:
            return getattr(self._adapter, method)(path, **wanted)
        except (exceptions.ClientException, requests.RequestException, OSError) as error:
            raise exception.UnavailableError(
                f"Glance cannot be asked: {type(error).__name__}", hint="check that Glance is up"
            ) from error


def open_store(conf: cfg.ConfigOpts, session: Any) -> GlanceStore:
    """Return the Glance that ``[glance]`` describes."""
    return GlanceStore(identity.open_adapter(conf, glance.GROUP, session, glance.SERVICE_TYPE))


def _image_of(fields: object) -> StoredImage:
    if not isinstance(fields, Mapping):
        raise TypeError("it is no object")
    size = fields.get("size")
    return StoredImage(
        id=str(fields["id"]),
        status=str(fields["status"]),
        project=str(fields.get("owner") or ""),
        size_bytes=size if isinstance(size, int) else None,
        hash_algorithm=_text(fields.get("os_hash_algo")),
        hash_value=_text(fields.get("os_hash_value")),
    )


def _page_of(fields: object) -> tuple[list[MadeImage], bool]:
    """Return the images of a page, and whether it is the last."""
    if not isinstance(fields, Mapping) or not isinstance(fields.get("images"), list):
        raise TypeError("it is no list of images")
    page = [_made_image_of(one) for one in fields["images"]]
    return page, not page or "next" not in fields


def _made_image_of(fields: object) -> MadeImage:
    if not isinstance(fields, Mapping):
        raise TypeError("an image is no object")
    image_id = fields["id"]
    if not isinstance(image_id, str) or not _ID.fullmatch(image_id):
        raise ValueError("an image has an id that is none")
    return MadeImage(
        id=image_id,
        project=str(fields.get("owner") or ""),
        task=_text(fields.get(TASK_PROPERTY)),
        is_original=fields.get(ORIGINAL_PROPERTY) == image_id,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _check(answer: Any, what: str) -> None:
    """Refuse an answer that is no success.

    :raises AcstorError: of the kind that it is.
    """
    status = answer.status_code
    if 200 <= status < 300:
        return
    if status == TOO_LARGE:
        raise exception.InvalidError(
            f"Glance refuses {what}: it is over a limit (HTTP {status}){_explanation(answer)}",
            hint="look at the limits of images and their size in Glance",
        )
    if status in (404, 410):
        raise exception.NotFoundError(f"{what}: the image is deleted")
    if status == 409:
        raise exception.ConflictError(f"Glance refuses {what} as it is now (HTTP 409)")
    if 400 <= status < 500:
        raise exception.InvalidError(
            f"Glance refuses {what} (HTTP {status}){_explanation(answer)}",
            hint="see the log of glance-api; the user of [keystone] needs the role admin",
        )
    raise _unexpected(answer)


def _explanation(answer: Any) -> str:
    """Return the beginning of what Glance says, without markup."""
    text = re.sub(r"<[^>]*>|\s+", " ", str(answer.text)[: 8 * EXPLANATION_LENGTH_MAX])
    plain = " ".join("".join(filter(str.isprintable, text)).split())[:EXPLANATION_LENGTH_MAX]
    return f": {plain}" if plain else ""


def _unexpected(answer: Any) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"Glance answers HTTP {answer.status_code}", hint="see the log of glance-api"
    )

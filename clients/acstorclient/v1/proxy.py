"""Proxy of the API, version 1: requests that can be made of ACStor.

Source: ``openstack.proxy.Proxy``. Differs: errors have the API's code and hint, each request has a
deadline, and what may be repeated is repeated when the API is away for a moment.
"""

import random
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any, TypeVar

import requests
from keystoneauth1 import exceptions as keystone_exceptions
from openstack import exceptions, proxy, resource

from acstorclient import download, exception, microversion, task_wait
from acstorclient.v1.cluster import Decision, LiveState, Pin, Ring
from acstorclient.v1.files import FileChange, FileEntry, Partition
from acstorclient.v1.host import Host
from acstorclient.v1.image import Image, Preload
from acstorclient.v1.origin_member import OriginMember
from acstorclient.v1.project import Defaults, Usage
from acstorclient.v1.restore import Restore, RestorePreview
from acstorclient.v1.schedule import Schedule, SchedulePreview
from acstorclient.v1.task import Task
from acstorclient.v1.version import Version, VersionDiff, VersionGroup
from acstorclient.v1.volume import Volume

TIMEOUT_SECONDS = 60.0
"""Longest time without a byte of an answer."""
RETRIES = 3
"""Most repetitions of a request when the API is not there or says so."""
RETRY_STATUSES = [502, 503, 504]
"""Answers of an API, or of what is before it, that is away for a moment."""
RETRY_SECONDS = (0.5, 1.5)
"""Shortest and longest time before a repetition; between them at random."""
PAGES_MAX = 10_000
"""Most pages of one answer that are followed: a server that never ends is no answer."""
IDEMPOTENCY_KEY = "Idempotency-Key"
"""Header that makes a POST safe to repeat, within a day."""

Kind = TypeVar("Kind", bound=resource.Resource)


class Proxy(proxy.Proxy):
    """ACStor's API as a user's token sees it."""

    api_version = "1"
    _negotiated: str | None = None

    def request(
        self,
        url: str,
        method: str,
        error_message: str | None = None,
        raise_exc: bool = False,
        connect_retries: int | None = None,
        global_request_id: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> requests.Response:
        """Send a request.

        :raises ApiError: the answer is 400 or above.
        :raises keystoneauth1.exceptions.ConnectFailure: there is none.
        """
        kwargs.setdefault("timeout", TIMEOUT_SECONDS)
        if not kwargs.get("microversion"):
            kwargs["microversion"] = self._microversion()
        repetitions = 0
        if method != "POST" or IDEMPOTENCY_KEY in (kwargs.get("headers") or {}):
            repetitions = RETRIES
            kwargs.setdefault("status_code_retries", RETRIES)
            kwargs.setdefault("retriable_status_codes", RETRY_STATUSES)
            delay = random.uniform(*RETRY_SECONDS)
            kwargs.setdefault("connect_retry_delay", delay)
            kwargs.setdefault("status_code_retry_delay", delay)
        response = super().request(
            url,
            method,
            error_message,
            raise_exc,
            repetitions if connect_retries is None else connect_retries,
            global_request_id,
            *args,
            **kwargs,
        )
        if response.status_code >= 400:
            raise exception.from_response(response)
        return response

    def _microversion(self) -> str:
        if self._negotiated is None:
            self._negotiated = microversion.negotiate(self)
        return self._negotiated

    # Versions

    def versions(self, *, paginated: bool = True, **query: Any) -> Iterator[Version]:
        """Yield versions, all pages of them or one.

        :param query: filters, ``sort_key``, ``sort_dir``, ``limit``, ``marker``, ``all_projects``.
        """
        return Version.list(self, paginated=paginated, **_query(query))

    def get_version(self, version: str | Version) -> Version:
        """Return a version by its id."""
        return self._fetched(Version, version)

    def find_version(self, name_or_id: str, **query: Any) -> Version:
        """Return the one version of a name or id."""
        return Version.match(self, name_or_id, **_query(query))

    def version_group(self, group_id: str) -> VersionGroup:
        """Return the versions of one moment.

        :raises openstack.exceptions.NotFoundException: there is none.
        """
        versions = tuple(self.versions(group_id=group_id))
        if not versions:
            raise exceptions.NotFoundException(f"There is no version of the group {group_id}")
        return VersionGroup(group_id, versions)

    def create_version(self, **attributes: Any) -> Task:
        """Take a version of each disk of a server (``server_id``), or of a ``volume_id``.

        :return: a task, whose outcome has ``group_id``.
        """
        return self._begin("/versions", {"version": _given(attributes)})

    def update_version(self, version: str | Version, **attributes: Any) -> Version:
        """Change name, ``expires_at`` or metadata."""
        return self._changed(Version, version, **attributes)

    def delete_version(self, version: str | Version) -> bool:
        """Delete a version; False: it is in use, and goes with its last use."""
        answer = self._remove(_path("versions", _id(version)))
        return answer is None or answer.status_code != requests.codes.accepted

    def lock_version(
        self, version: str | Version, reason: str, until: str | None = None
    ) -> Version:
        """Have a version neither deleted nor expire.

        :param until: time in ISO 8601; None: until somebody unlocks it.
        """
        body = {"lock": {"reason": reason, "until": until}}
        response = self.put(_path("versions", _id(version), "lock"), json=body)
        return Version.existing(**_object(response)["version"])

    def unlock_version(self, version: str | Version) -> Version:
        """Take the lock away."""
        self._remove(_path("versions", _id(version), "lock"))
        return self.get_version(_id(version))

    def create_version_image(self, version: str | Version) -> Task:
        """Make the image that servers boot the version from; it has no bytes of its own.

        :return: a task, whose outcome has ``image_id``; done where the image was there.
        """
        return self._task_of(self.put(_path("versions", _id(version), "image"), json={}))

    def delete_version_image(self, version: str | Version) -> Task:
        """Delete that image; refused while a server is of it, since Nova needs it."""
        return self._task_of(self.delete(_path("versions", _id(version), "image")))

    def diff_versions(self, version: str | Version, against: str | Version) -> VersionDiff:
        """Return the parts of the disk that two versions have differently."""
        path = _path("versions", _id(version), "diff")
        pages = self._pages(path, {"against": _id(against)}, "diff")
        return VersionDiff.from_pages(list(pages))

    def diff_files(
        self,
        version: str | Version,
        against: str | Version,
        path: str = "/",
        partition: int | None = None,
    ) -> Iterator[FileChange]:
        """Yield the files that two versions have differently: what became of ``against``."""
        where = _path("versions", _id(version), "files", "diff")
        query = _given({"against": _id(against), "partition": partition})
        if path != "/":
            query["path"] = path
        for page in self._pages(where, query, timeout=download.LOOK_SECONDS):
            yield from (FileChange.from_body(change) for change in page["files"])

    def download_version(
        self,
        version: str | Version,
        sink: IO[bytes],
        disk_format: str = "qcow2",
        observe: download.Observer | None = None,
    ) -> int:
        """Write the disk of a version, and return the bytes written.

        :param disk_format: ``qcow2`` or ``raw``.
        :raises DownloadFailed: it did not come whole.
        """
        path = _path("versions", _id(version), "data")
        return download.Download(self, path, {"format": disk_format}).write_to(sink, observe)

    def create_export(
        self, version: str | Version, disk_format: str = "qcow2", name: str | None = None
    ) -> Task:
        """Make an image with bytes of its own, which outlives the version.

        :return: a task, whose outcome has ``image_id``.
        """
        attributes = _given({"version_id": _id(version), "disk_format": disk_format, "name": name})
        return self._begin("/exports", {"export": attributes})

    # Restores

    def create_restore(self, **attributes: Any) -> Task:
        """Restore a ``version_id`` or ``group_id`` into a ``server_id`` or ``volume_id``.

        :param attributes: also ``method`` and ``keep_current``; ``disks``, names of disks of a
            server, of all that there are of that moment where there are none; ``restore_nvram``,
            whether its UEFI variables are written with its root disk.
        :return: a task, whose outcome has ``method``, ``reason`` and ``bytes_moved``.
        :raises NoMicroversion: the cloud does not know one of these.
        """
        for name in ("disks", "restore_nvram"):
            if attributes.get(name) is not None:
                microversion.require(self._microversion(), microversion.DISKS, name)
        return self._begin("/restores", {"restore": _given(attributes)})

    def preview_restore(self, version: str | Version, server_id: str) -> RestorePreview:
        """Return how a version would be put into a server, and what that would destroy."""
        path = _path("versions", _id(version), "restore-preview")
        preview = RestorePreview.new()
        return preview.fetch(self, requires_id=False, base_path=path, server_id=server_id)

    def restores(self, **query: Any) -> Iterator[Restore]:
        """Yield restores."""
        return Restore.list(self, **_query(query))

    def get_restore(self, restore: str | Restore) -> Restore:
        """Return a restore: the method, why, the bytes moved."""
        return self._fetched(Restore, restore)

    # Files in versions

    def partitions(self, version: str | Version) -> list[Partition]:
        """Return the partitions of a version's disk."""
        where = _path("versions", _id(version), "partitions")
        body = _object(self.get(where, timeout=download.LOOK_SECONDS))
        return [Partition.from_body(each) for each in body["partitions"]]

    def browse_files(
        self, version: str | Version, path: str, partition: int | None = None
    ) -> Iterator[FileEntry]:
        """Yield what is in a directory; of anything else that alone."""
        where = _path("versions", _id(version), "files")
        query = _given({"path": path, "partition": partition})
        for page in self._pages(where, query, timeout=download.LOOK_SECONDS):
            file = FileEntry.from_body(page["file"])
            if file.kind != "directory":
                yield file
            yield from (FileEntry.from_body(entry) for entry in page["files"])

    def save_content(
        self,
        version: str | Version,
        path: str,
        sink: IO[bytes],
        partition: int | None = None,
        observe: download.Observer | None = None,
    ) -> int:
        """Write a file of a version, and return its bytes.

        :raises DownloadFailed: it did not come whole.
        """
        where = _path("versions", _id(version), "files", "content")
        query = _given({"path": path, "partition": partition})
        return download.Download(self, where, query).write_to(sink, observe)

    def save_archive(
        self, version: str | Version, path: str, sink: IO[bytes], partition: int | None = None
    ) -> int:
        """Write a directory of a version as tar, and return the bytes of that.

        :raises DownloadFailed: it did not come whole.
        """
        where = _path("versions", _id(version), "files", "archive")
        query = _given({"path": path, "partition": partition})
        with self.get(where, params=query, stream=True) as response:
            return download.write_archive(response, sink)

    # Schedules

    def schedules(self, **query: Any) -> Iterator[Schedule]:
        """Yield schedules."""
        return Schedule.list(self, **_query(query))

    def find_schedule(self, name_or_id: str) -> Schedule:
        """Return the schedule of a name or id."""
        return Schedule.match(self, name_or_id)

    def create_schedule(self, **attributes: Any) -> Schedule:
        """Create a schedule; it has no targets yet."""
        response = self._post("/schedules", {"schedule": _given(attributes)})
        return Schedule.existing(**_object(response)["schedule"])

    def update_schedule(self, schedule: str | Schedule, **attributes: Any) -> Schedule:
        """Change a schedule."""
        return self._changed(Schedule, schedule, **attributes)

    def delete_schedule(self, schedule: str | Schedule) -> None:
        """Delete a schedule; the versions that it made stay."""
        self._remove(_path("schedules", _id(schedule)))

    def add_target(self, schedule: str | Schedule, target_id: str, kind: str) -> None:
        """Have a schedule take versions of a server or volume, too.

        :param kind: ``server`` or ``volume``.
        """
        body = {"target": {"type": kind}}
        self.put(_path("schedules", _id(schedule), "targets", target_id), json=body)

    def remove_target(self, schedule: str | Schedule, target_id: str) -> None:
        """Have a schedule take no more versions of a server or volume."""
        self._remove(_path("schedules", _id(schedule), "targets", target_id))

    def preview_schedule(self, schedule: str | Schedule) -> SchedulePreview:
        """Return the next runs of a schedule, and the fate of each version."""
        preview = SchedulePreview.new(schedule_id=_id(schedule))
        return preview.fetch(self, requires_id=False)

    # Tasks

    def tasks(self, **query: Any) -> Iterator[Task]:
        """Yield tasks, those that are over too."""
        return Task.list(self, **_query(query))

    def get_task(self, task: str | Task) -> Task:
        """Return the present state of a task."""
        return self._fetched(Task, _id(task))

    def cancel_task(self, task: str | Task) -> Task:
        """Have a task stop and undo what it did; it is over a while later."""
        return self._task_of(self.delete(_path("tasks", _id(task))))

    def wait_for_task(
        self,
        task: str | Task,
        seconds: float = 0,
        observe: task_wait.Observer | None = None,
        pace: task_wait.Pace | None = None,
    ) -> Task:
        """Return a task when it is done; ``TaskWait.until_done`` has the errors.

        :param seconds: longest wait; 0: without limit.
        """
        begun = task if isinstance(task, Task) else self.get_task(task)
        waiting = task_wait.TaskWait(self.get_task, seconds=seconds, observe=observe, pace=pace)
        return waiting.until_done(begun)

    # Images and volumes

    def images(self, **query: Any) -> Iterator[Image]:
        """Yield the images that the user sees in Glance, as the hosts have them."""
        return Image.list(self, **_query(query))

    def get_image(self, image: str | Image) -> Image:
        """Return an image by its id."""
        return self._fetched(Image, image)

    def preloads(self, image: str | Image, **query: Any) -> Iterator[Preload]:
        """Yield the preloads of an image."""
        return Preload.list(self, image_id=_id(image), **_query(query))

    def create_preload(self, image: str | Image, **attributes: Any) -> Task:
        """Bring an image to ``hosts``, each at ``rate_mib`` at most.

        :return: a task, whose outcome has ``preload_id``.
        """
        path = _path("images", _id(image), "preloads")
        return self._begin(path, {"preload": _given(attributes)})

    def delete_preload(self, image: str | Image, preload: str | Preload) -> None:
        """Stop a preload; chunks that have come stay as long as there is room."""
        self._remove(_path("images", _id(image), "preloads", _id(preload)))

    def volumes(self, **query: Any) -> Iterator[Volume]:
        """Yield the volumes that ACStor serves."""
        return Volume.list(self, **_query(query))

    def get_volume(self, volume: str | Volume) -> Volume:
        """Return durability and recovery point of a volume."""
        return self._fetched(Volume, volume)

    def update_volume(self, volume: str | Volume, **attributes: Any) -> Volume:
        """Change the durability within what the volume's type allows."""
        return self._changed(Volume, volume, **attributes)

    # Project

    def get_defaults(self) -> Defaults:
        """Return the rules for servers and volumes that say nothing themselves."""
        return Defaults.new().fetch(self, requires_id=False)

    def update_defaults(self, **attributes: Any) -> Defaults:
        """Change those rules; what is not named stays."""
        present = self.get_defaults()
        kept = {name: present[name] for name in ("version_on", "version_keep", "on_delete")}
        response = self.put("/defaults", json={"defaults": {**_given(kept), **attributes}})
        return Defaults.existing(**_object(response)["defaults"])

    def get_usage(self, **query: Any) -> Usage:
        """Return the project's usage and limits.

        :param query: ``project_id``, for administrators.
        """
        body = _object(self.get("/usage", params=_query(query)))
        return Usage(body["usage"], body["limits"])

    # Cluster

    def origin_members(self) -> Iterator[OriginMember]:
        """Yield the stores that the origin is in; none where it is one."""
        return OriginMember.list(self)

    def get_origin_member(self, name: str) -> OriginMember:
        """Return a member of the origin by its name."""
        body = _object(self.get(_path("origin", "members", name)))
        return OriginMember.existing(**body["origin_member"])

    def update_origin_member(self, name: str, **attributes: Any) -> OriginMember:
        """Change ``draining`` of a member of the origin."""
        body = {"origin_member": attributes}
        response = self.patch(_path("origin", "members", name), json=body)
        return OriginMember.existing(**_object(response)["origin_member"])

    def hosts(self, **query: Any) -> Iterator[Host]:
        """Yield the compute hosts."""
        return Host.list(self, **_query(query))

    def get_host(self, name: str) -> Host:
        """Return a host by its name."""
        return Host.existing(**_object(self.get(_path("hosts", name)))["host"])

    def update_host(self, name: str, **attributes: Any) -> Host:
        """Change ``draining`` of a host."""
        response = self.patch(_path("hosts", name), json={"host": attributes})
        return Host.existing(**_object(response)["host"])

    def get_ring(self) -> Ring:
        """Return the ring in force."""
        return Ring.new().fetch(self, requires_id=False)

    def decisions(self) -> Iterator[Decision]:
        """Yield the decisions of the policy service, the one in force first."""
        return Decision.list(self)

    def pins(self) -> Iterator[Pin]:
        """Yield the weights that administrators have fixed."""
        return Pin.list(self)

    def create_pin(self, **attributes: Any) -> Pin:
        """Fix the ``weight`` of a ``host``; 1 is that of an ordinary one."""
        return Pin.existing(**_object(self._post("/pins", {"pin": attributes}))["pin"])

    def delete_pin(self, host: str) -> None:
        """Leave the weight of a host to the policy service."""
        self._remove(_path("pins", host))

    def get_live_state(self, known: LiveState | None = None) -> LiveState:
        """Return the cluster's traffic and state now.

        :param known: what came last; it is returned where nothing has changed since.
        """
        headers = {"If-None-Match": known.etag} if known and known.etag else {}
        query = {"since": known.cursor} if known and known.cursor else {}
        response = self.get("/cluster", headers=headers, params=query)
        if known and response.status_code == requests.codes.not_modified:
            return known
        return LiveState(_object(response)["cluster"], response.headers.get("ETag", ""))

    # Requests

    def _fetched(self, kind: type[Kind], value: str | Kind) -> Kind:
        return kind.existing(id=_id(value)).fetch(self)

    def _changed(self, kind: type[Kind], value: str | Kind, **attributes: Any) -> Kind:
        """Send what changes, and nothing else."""
        key = str(kind.resource_key)
        path = _path(kind.base_path.strip("/"), _id(value))
        response = self.patch(path, json={key: attributes})
        return kind.existing(**_object(response)[key])

    def _remove(self, path: str) -> requests.Response | None:
        """Delete what is at a path; None: it was gone when that was repeated.

        The answer of the first request may have been lost, so that *not found* is what was wanted.
        """
        for attempt in range(RETRIES + 1):
            try:
                return self.delete(path, connect_retries=0, status_code_retries=0)
            except exception.NotFoundError:
                if attempt == 0:
                    raise
                return None
            except (exception.ApiError, keystone_exceptions.ConnectFailure) as error:
                is_away = getattr(error, "status_code", None) in (None, *RETRY_STATUSES)
                if attempt == RETRIES or not is_away:
                    raise
                time.sleep(random.uniform(*RETRY_SECONDS))
        raise exceptions.InvalidRequest("no attempt was made")

    def _post(self, path: str, body: Mapping[str, Any]) -> requests.Response:
        headers = {IDEMPOTENCY_KEY: str(uuid.uuid4())}
        return self.post(path, json=body, headers=headers)

    def _begin(self, path: str, body: Mapping[str, Any]) -> Task:
        return self._task_of(self._post(path, body))

    def _task_of(self, response: requests.Response) -> Task:
        """Return the task of an answer: in its body, or behind its ``Location``."""
        body = _object(response)
        if isinstance(fields := body.get("task"), dict):
            return Task.existing(connection=self._get_connection(), **fields)
        location = urllib.parse.urlsplit(response.headers.get("Location", "")).path
        if task_id := location.rpartition("/tasks/")[2]:
            return self.get_task(task_id)
        raise exceptions.InvalidResponse(f"{response.url} names no task")

    def _pages(
        self,
        path: str,
        query: Mapping[str, Any],
        key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of an answer, or what each has under a key."""
        page = path
        parameters: Mapping[str, Any] | None = query
        for _ in range(PAGES_MAX):
            body = _object(self.get(page, params=parameters, timeout=timeout))
            yield body[key] if key else body
            links = body.get("links") or []
            following = next((each["href"] for each in links if each.get("rel") == "next"), None)
            if following is None:
                return
            page, parameters = _below_version(following), None
        raise exceptions.InvalidResponse(f"{path} has more than {PAGES_MAX} pages")


def _id(value: str | resource.Resource) -> str:
    return str(resource.Resource._get_id(value))


def _path(*parts: str) -> str:
    """Return the path of parts that may hold anything."""
    return "".join(f"/{urllib.parse.quote(part, safe='')}" for part in parts)


def _below_version(link: str) -> str:
    """Return a link as the service's endpoint has it: without host and ``/v1``."""
    split = urllib.parse.urlsplit(link)
    path = "/" + split.path.partition("/v1/")[2] if "/v1/" in split.path else split.path
    return f"{path}?{split.query}" if split.query else path


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what somebody has given, as queries and bodies have it."""
    return {name: value for name, value in attributes.items() if value is not None}


def _query(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return filters as a query has them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in _given(filters).items()
    }


def _object(response: requests.Response) -> dict[str, Any]:
    """Return a body that is an object.

    :raises openstack.exceptions.InvalidResponse: it is something else.
    """
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise exceptions.InvalidResponse(f"{response.url} answered no JSON object")
    return body

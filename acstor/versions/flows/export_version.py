"""Exporting a version: an image of Glance with bytes of its own, which outlives the version.

An upload to Glance cannot be taken up again, and an id of an image serves once. So each attempt of
each worker at the task makes an image under an id of its own, and removes those that were begun
before; the digest of what was sent is compared with the one that Glance has taken of what came.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterator
from typing import Any, ClassVar

from acstor import exception
from acstor.backoff import BackOff
from acstor.repository.reading import image_files
from acstor.repository.reading.image_files import ImageFile, ImageFormat
from acstor.repository.reading.opened_disk import open_disk
from acstor.repository.versions.version_refs import Version
from acstor.versions.database.tasks import Progress, TaskKind
from acstor.versions.flows.step import Step
from acstor.versions.flows.used_version import find_version, require_restorable, version_id_of
from acstor.versions.flows.work import CancelledError, Work
from acstor.versions.services.image_store import (
    ACTIVE,
    ORIGINAL_PROPERTY,
    TASK_PROPERTY,
    VERSION_PROPERTY,
    NewImage,
    StoredImage,
)

LOG = logging.getLogger(__name__)

USE = "export/"
"""Beginning of the uses of tasks that make an image, which the task's id ends."""
RESTORE_USE = "restore/"
"""The same of tasks that make one to restore from: nobody removes it meanwhile."""
COPIED_PREFIXES = ("hw_", "os_")
"""Beginnings of the properties that the image has of the version's base image."""
COPIED_NAMES = frozenset({"kernel_id", "ramdisk_id"})
"""Further ones: a disk without a boot loader starts with the kernel of its base image only."""
NOT_COPIED_PREFIXES = ("os_hash_", "os_hidden", "os_glance")
"""Beginnings of those that Glance keeps to itself, or that say something of the other bytes."""
NAME_LENGTH_MAX = 255
ATTEMPTS_MAX = 3
"""Uploads that one worker begins."""
DELAYS = BackOff(first=10.0, longest=60.0)
"""Delays between them."""
_GIB = 1 << 30
_HASH = "sha512"
_REPORT_BYTES = 64 << 20


class Check(Step):
    """Look at the version, and keep it until the end."""

    step = "check"

    def act(self, work: Work) -> dict[str, Any]:
        """Return the size of the disk."""
        version = version_of(work)
        work.fence()
        if _use_of(work) not in version.record.uses:
            work.versions.begin_use(version.id, _use_of(work))
        return {"size_bytes": version.record.size_bytes, "nonce": secrets.token_hex(16)}

    def undo(self, work: Work) -> None:
        """Let the version go."""
        _end_use(work)


class Upload(Step):
    """Make the image."""

    step = "upload"
    share = 0.05
    share_end: ClassVar[float] = 0.98
    """Progress when it ends."""

    def act(self, work: Work) -> dict[str, Any]:
        """Return the id of the image, and the length of its content."""
        if left := _remove_images(work, work.epoch - 1):
            raise exception.UnavailableError(f"images of earlier attempts stay: {', '.join(left)}")
        version = version_of(work)
        disk = open_disk(
            work.versions.repository, version.record.content, version.record.size_bytes
        )
        try:
            file = image_files.image_file(disk, _format_of(work), work.check)
            image_id = _uploaded(work, version, _Sent(work, file, self.share, self.share_end))
        finally:
            disk.close()
        return {"image_id": image_id, "size_bytes": file.size_bytes}

    def undo(self, work: Work) -> None:
        """Remove the image, and those that were begun before."""
        if left := _remove_images(work, work.epoch):
            work.note(f"these images are to be deleted in Glance by hand: {', '.join(left)}")


class Finish(Step):
    """Let the version go."""

    step = "finish"
    share = 0.98

    def act(self, work: Work) -> dict[str, Any]:
        """Return the result of the task."""
        made = work.result_of(Upload.step)
        let_go(work)
        # A worker that was stalled may have begun one meanwhile.
        if left := _remove_images(work, work.epoch, kept=made["image_id"]):
            work.note(f"these images are to be deleted in Glance by hand: {', '.join(left)}")
        return {
            "image_id": made["image_id"],
            "version_id": version_id_of(work),
            "disk_format": _format_of(work).value,
            "size_bytes": made["size_bytes"],
        }


def steps() -> list[Step]:
    """Return the steps of the flow; taskflow's rows have this name."""
    return [Check(), Upload(), Finish()]


class _Sent:
    """Content of an image while it is sent.

    :param begin: progress when it begins; ``end`` likewise.
    """

    def __init__(self, work: Work, file: ImageFile, begin: float, end: float) -> None:
        self._work = work
        self._file = file
        self._begin, self._end = begin, end
        self._digest = hashlib.new(_HASH)

    @property
    def digest(self) -> str:
        """Digest of what was sent, hexadecimal."""
        return self._digest.hexdigest()

    def __len__(self) -> int:
        return self._file.size_bytes

    def __iter__(self) -> Iterator[bytes]:
        # Whoever has to log in again meanwhile sends all of it again.
        self._digest = hashlib.new(_HASH)
        sent, told, total = 0, 0, len(self)
        for piece in image_files.pieces(self._file):
            self._work.check()
            self._digest.update(piece)
            sent += len(piece)
            if sent - told >= _REPORT_BYTES:
                told = sent
                share = self._begin + (self._end - self._begin) * sent / total
                self._work.report(Progress(Upload.step, share, sent, total))
            yield piece


def _uploaded(work: Work, version: Version, content: _Sent) -> str:
    """Upload the content, and return the id of its image.

    :raises UnavailableError: when the last attempt failed.
    """
    store = work.services.image_store
    for attempt in range(1, ATTEMPTS_MAX + 1):
        image_id = _image_of(work, work.epoch, attempt)
        try:
            work.fence()
            store.create(_new_image(work, version, image_id))
            store.upload(image_id, content)
            _check_stored(store.find(image_id), content, work.task.project)
        except exception.UnavailableError as error:
            if attempt == ATTEMPTS_MAX:
                raise
            LOG.warning("image %s is begun again: %s", image_id, exception.one_line(error))
        else:
            _remove_images(work, work.epoch, kept=image_id)
            return image_id
        work.wait(DELAYS.seconds(attempt))
    raise exception.InternalError("no upload was begun")


def _check_stored(image: StoredImage | None, content: _Sent, project: str) -> None:
    """Refuse an image that is not what was sent, or not the project's.

    :raises ConflictError: when it is gone, or another project's.
    :raises UnavailableError: when it is another content; the task may be asked for again.
    """
    if image is None:
        raise exception.ConflictError("the image was deleted while it was made")
    if image.project != project:
        raise exception.ConflictError(f"image {image.id} is another project's")
    is_whole = image.status == ACTIVE and image.size_bytes == len(content)
    is_same = image.hash_value == content.digest if image.hash_algorithm == _HASH else True
    if image.hash_algorithm != _HASH:
        LOG.warning("image %s: Glance has no %s of it to compare", image.id, _HASH)
    if not is_whole or not is_same:
        raise exception.UnavailableError(
            f"Glance has stored another content of image {image.id} than was sent "
            f"(status {image.status}, {image.size_bytes} of {len(content)} bytes)",
            hint="see the log of glance-api, then export again",
        )


def _new_image(work: Work, version: Version, image_id: str) -> NewImage:
    record = version.record
    copied: dict[str, str] = {}
    if record.base_image is not None:
        found = work.services.images.properties(record.base_image)
        copied = {
            name: value
            for name, value in found.items()
            if name in COPIED_NAMES
            or (name.startswith(COPIED_PREFIXES) and not name.startswith(NOT_COPIED_PREFIXES))
        }
    name = str(work.parameters.get("name") or record.name or f"version {version.id}")
    return NewImage(
        id=image_id,
        name=name[:NAME_LENGTH_MAX],
        project=work.task.project,
        disk_format=_format_of(work).value,
        min_disk_gib=-(-record.size_bytes // _GIB),
        properties={
            **copied,
            VERSION_PROPERTY: version.id,
            TASK_PROPERTY: work.task.id,
            ORIGINAL_PROPERTY: image_id,
        },
    )


def _remove_images(work: Work, epochs: int, kept: str | None = None) -> list[str]:
    """Remove the images that workers have begun up to an epoch, but for one.

    :returns: the ids of those that may still be there.
    """
    left: list[str] = []
    for epoch in range(1, epochs + 1):
        for attempt in range(1, ATTEMPTS_MAX + 1):
            image_id = _image_of(work, epoch, attempt)
            if image_id == kept:
                continue
            try:
                work.services.image_store.delete(image_id)
            except exception.AcstorError as error:
                LOG.warning("image %s stays: %s", image_id, exception.one_line(error))
                left.append(image_id)
    return left


def _image_of(work: Work, epoch: int, attempt: int) -> str:
    """Return the id of an image, which nobody can guess: anybody may choose ids in Glance."""
    nonce = work.result_of(Check.step)["nonce"]
    return work.name_of(f"image {nonce} {epoch} {attempt}")


def _format_of(work: Work) -> ImageFormat:
    return ImageFormat(str(work.parameters.get("disk_format", ImageFormat.QCOW2)))


def _use_of(work: Work) -> str:
    use = RESTORE_USE if work.task.kind is TaskKind.RESTORE else USE
    return f"{use}{work.task.id}"


def version_of(work: Work) -> Version:
    """Return the version that is exported.

    :raises NotFoundError: when the project has none with that id.
    :raises ConflictError: when it is no restore point.
    """
    version_id = version_id_of(work)
    version = find_version(work, version_id)
    require_restorable(version, _use_of(work))
    return version


def let_go(work: Work) -> None:
    """Let the version go at the end; what was made is not undone where that fails.

    :raises CancelledError: when somebody has cancelled the task.
    """
    try:
        _end_use(work)
    except CancelledError:
        raise
    except exception.AcstorError as error:
        # Uses of ended tasks are swept.
        work.note(f"version {version_id_of(work)} is not let go: {exception.one_line(error)}")


def _end_use(work: Work) -> None:
    version_id = version_id_of(work)
    work.fence()
    work.versions.end_use(version_id, _use_of(work))
    work.refresh(version_id)

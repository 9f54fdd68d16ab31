"""Keeping the images of the data plane equal to those registered in the origin."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception
from acstor.agent.handing_over import hand_over
from acstor.agent.reconcilers.image_records import ImageRecords
from acstor.agent.reconcilers.index_trust import IndexTrust
from acstor.agent.reconcilers.manifest_fetching import (
    FetchedManifest,
    fetch_front,
    fetch_whole,
)
from acstor.agent.reconcilers.registered_images import RegisteredImages
from acstor.agent.reconcilers.usage_publication import UsagePublisher
from acstor.control.client import AdminClient
from acstor.origin.base import Origin
from acstor.repository import layout
from acstor.repository.images.image_registry import ImageRegistry
from acstor.repository.signing.signed_document import UnverifiedError

LOG = logging.getLogger(__name__)


@dataclass
class ImageReport:
    """Findings and results of a pass over the images."""

    registered: frozenset[str] | None = None
    """Ids of the images in the origin; None: there is no repository yet."""
    hidden: int = 0
    """Withdrawn images that guests still use."""
    problems: dict[str, str] = field(default_factory=dict)
    """By image id, what is wrong with it."""
    offered: dict[str, str] = field(default_factory=dict)
    """By image id the manifest that the data plane has attached."""
    kept: dict[str, str] = field(default_factory=dict)
    """By image id the manifest of images that are attached although they are registered no more,
    because they are needed; or although their records are not believed, because they were."""
    unverified: set[str] = field(default_factory=set)
    """Ids of images whose records are not believed; none of them is attached anew."""
    whole: dict[str, int] = field(default_factory=dict)
    """By image id the size, bytes, of images of which the host is to keep all."""
    opened: frozenset[str] = frozenset()
    """Ids of the images whose files are open, or may be."""
    registered_at: dict[str, str] = field(default_factory=dict)
    """By image id of ``offered``, when it was registered: UTC, ISO 8601."""


def waiting_images(status: Mapping[str, Any]) -> dict[str, str]:
    """Return by image that the data plane restores and has not attached yet its manifest.

    Guests may have it open all the same. The manifest is empty where it is not known.

    :param status: of the data plane; that of an older release names none.
    """
    waiting = status.get("images_waiting") or {}
    return {str(image_id): str(manifest) for image_id, manifest in waiting.items()}


@dataclass(frozen=True)
class _Known:
    """Knowledge of a registered image, as it was read."""

    manifest: str
    is_pinned_whole: bool
    size_bytes: int
    registered_at: str


def _is_damaged(image: Mapping[str, Any]) -> bool:
    """Return whether the data plane found the manifest of an image damaged when it needed it."""
    return image.get("manifest_state") == "damaged"


class ImageFollower:
    """Attaches what is registered, detaches what is not any more and nobody needs.

    A problem with one image does not keep the others from being followed.

    :param directory: where manifests are put for the data plane to read; it makes its own copy.
    :param publisher: tells garbage collection of what is attached.
    :param records: reads the images' records.
    :param needed: returns the ids of the images that must stay attached; None: not known, so all.
    :param has_index: whether the repository has an index of the images.
    :param trust: judges that index; None: signatures are not required.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        origin: Origin,
        data_plane: AdminClient,
        directory: str,
        publisher: UsagePublisher,
        records: ImageRecords,
        *,
        needed: Callable[[], frozenset[str] | None] = frozenset,
        has_index: bool = False,
        trust: IndexTrust | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origin = origin
        self._data_plane = data_plane
        self._directory = os.path.join(directory, "manifests")
        self._publisher = publisher
        self._records = records
        self._needed = needed
        self._images = RegisteredImages(origin, has_index=has_index, trust=trust, clock=clock)
        self._registry = ImageRegistry(origin)
        self._known: dict[str, _Known] = {}

    def reconcile(
        self, closed: frozenset[str] = frozenset(), waiting: Mapping[str, str] | None = None
    ) -> ImageReport:
        """Bring the data plane to the registered images.

        :param closed: ids of images that are being withdrawn: none of them is attached anew.
        :param waiting: of a moment ago, see :func:`waiting_images`.
        :raises UnavailableError: when the origin or the data plane cannot be reached; what is
            attached stays.
        """
        report = ImageReport()
        if self._records.begin():
            self._known.clear()  # on whose word they are attached may not be trusted any more
            self._images.judge_again()
        present = {image["id"]: image for image in self._data_plane.call("image.list")}
        found = self._images.refresh()
        is_repository = bool(found) or self._is_there(present)
        report.opened = frozenset(
            image_id for image_id, image in present.items() if image.get("open_handles")
        ).union(waiting or ())
        wanted: dict[str, _Known] = {}
        for image_id in sorted(found):
            with self._noted(report, image_id):
                self._follow(image_id, present, report, wanted)
        self._images.compare(self._records.digests)
        registered = self._images.ids
        report.registered = registered if is_repository else None
        for image_id in closed & wanted.keys():
            del wanted[image_id]
        self._remember(registered, wanted, report)
        if report.registered is not None:
            attached = {manifest: image_id for image_id, manifest in (waiting or {}).items()}
            attached.pop("", None)
            attached |= {str(image["manifest"]): image_id for image_id, image in present.items()}
            self._attach_wanted(attached, wanted, report)
        needed = self._needed()
        if report.registered is not None:
            whole = [image_id for image_id, image in present.items() if not _is_damaged(image)]
            self._attach_lost(needed, registered.union(whole, waiting or (), closed), report)
        for image_id in sorted(present.keys() - registered):
            if needed is None or image_id in needed:
                # Detaching would hide it from instances that are started, or come, later.
                if not present[image_id]["hidden"]:
                    report.kept[image_id] = str(present[image_id]["manifest"])
                continue
            with self._noted(report, image_id):
                self._withdraw(image_id, report)
        self._known = {key: known for key, known in self._known.items() if key in registered}
        return report

    def _is_there(self, present: Mapping[str, object]) -> bool:
        """Return whether an origin that lists no images is a repository without images.

        :returns: False where nobody has made a repository yet.
        :raises UnavailableError: when there are images here, which came from somewhere: an origin
            that is not mounted looks empty.
        """
        is_repository = self._origin.exists(layout.FORMAT_KEY)
        if present and not is_repository:
            raise exception.UnavailableError(
                "the origin holds no repository any more",
                hint="check that what [origin] url names is mounted",
            )
        return is_repository

    @contextlib.contextmanager
    def _noted(self, report: ImageReport, image_id: str) -> Any:
        """Note an error that concerns one image; let pass what concerns all."""
        try:
            yield
        except exception.UnavailableError:
            raise
        except Exception as error:
            if isinstance(error, UnverifiedError):
                report.unverified.add(image_id)
            fault = None if isinstance(error, exception.AcstorError | OSError) else error
            report.problems[image_id] = exception.one_line(error)
            LOG.warning("image %s: %s", image_id, report.problems[image_id], exc_info=fault)

    def _follow(
        self,
        image_id: str,
        present: Mapping[str, Mapping[str, Any]],
        report: ImageReport,
        wanted: dict[str, _Known],
    ) -> None:
        """Look at a registered image; add it to ``wanted`` where it is to be attached."""
        image = present.get(image_id)
        is_offered = image is not None and not image["hidden"] and not _is_damaged(image)
        known = self._known.get(image_id)
        if not is_offered or known is None or self._images.is_stale(image_id):
            try:
                known = self._read(image_id, report)
            except UnverifiedError:
                self._known.pop(image_id, None)
                if image is not None and is_offered:
                    report.kept[image_id] = str(image["manifest"])
                raise
            self._images.note_read(image_id, is_registered=known is not None)
            if known is None:  # removed since the look
                return
            self._known[image_id] = known
        if image is None or not is_offered or image["manifest"] != known.manifest:
            wanted[image_id] = known
        else:
            self._note_offered(image_id, known, report)

    def _remember(
        self, registered: frozenset[str], wanted: dict[str, _Known], report: ImageReport
    ) -> None:
        """Have the disk know which records were read; without that nothing is attached."""
        try:
            self._records.remember(registered)
        except OSError as error:
            LOG.warning("what was read of the images cannot be remembered: %s", error)
            for image_id in wanted:
                report.problems[image_id] = exception.one_line(error)
            wanted.clear()

    def _attach_wanted(
        self,
        attached: Mapping[str, str],
        wanted: Mapping[str, _Known],
        report: ImageReport,
    ) -> None:
        try:
            self._publisher.announce(
                attached, {known.manifest: image_id for image_id, known in wanted.items()}
            )
        except exception.UnavailableError:
            raise
        except exception.AcstorError as error:  # the origin is full, or may only be read
            for image_id in wanted:
                report.problems[image_id] = exception.one_line(error)
            return
        replaced = frozenset(attached.values())
        for image_id, known in wanted.items():
            is_replaced = image_id in replaced and known.manifest not in attached
            with self._noted(report, image_id):
                self._attach_announced(image_id, known, report, is_replaced=is_replaced)

    def _attach_announced(
        self, image_id: str, known: _Known, report: ImageReport, *, is_replaced: bool
    ) -> None:
        """Attach an image if it is still registered so, now that this host's record names it.

        A collection that missed the record has looked at the image's ref before this does.
        """
        record = self._records.read(image_id)
        if record is None or record.manifest != known.manifest:
            self._known.pop(image_id, None)  # read anew at the next pass
            self._images.forget(image_id)
            return
        self._records.remember(report.registered or ())
        self._attach(image_id, known.manifest, is_replaced=is_replaced)
        self._note_offered(image_id, known, report)

    def _attach_lost(
        self, needed: frozenset[str] | None, known: frozenset[str], report: ImageReport
    ) -> None:
        """Attach images again that are registered no more, needed, and gone from the data plane.

        It puts a manifest aside that it finds damaged. Which one it was this host's record tells,
        and as long as that does, the origin keeps it.

        :param known: images that are here, are looked after otherwise, or are not to be attached.
        """
        record = self._publisher.record
        lost = [
            (image_id, digest)
            for digest, image_id in record.manifests.items()
            if image_id not in known
            and (record.uses(image_id) if needed is None else image_id in needed)
        ]
        for image_id, digest in lost:
            with self._noted(report, image_id):
                self._records.check_former(image_id, digest)
                self._attach(image_id, digest)
                report.kept[image_id] = digest

    def _note_offered(self, image_id: str, known: _Known, report: ImageReport) -> None:
        report.offered[image_id] = known.manifest
        report.registered_at[image_id] = known.registered_at
        if known.is_pinned_whole:
            report.whole[image_id] = known.size_bytes

    def _read(self, image_id: str, report: ImageReport) -> _Known | None:
        record = self._records.read(image_id)
        if record is None:
            return None
        is_pinned_whole = False
        # What the registrar thinks of it is no reason not to offer it.
        with self._noted(report, image_id):
            listed = self._registry.find(image_id)
            is_pinned_whole = listed is not None and listed.entry.pin
        return _Known(
            record.manifest,
            is_pinned_whole,
            record.size_bytes,
            record.registered_at,
        )

    def _attach(self, image_id: str, manifest: str, *, is_replaced: bool = False) -> None:
        """Have the data plane attach an image.

        :param is_replaced: whether it is attached with another manifest, with which all of the new
            one may have to be compared.
        """
        if is_replaced:
            self._hand_over(image_id, fetch_whole(self._origin, manifest))
            return
        fetched = fetch_front(self._origin, manifest)
        try:
            self._hand_over(image_id, fetched)
        except exception.InvalidError as error:
            if not fetched.is_partial:
                raise
            # An older release fetches no pages.
            LOG.info("image %s is attached with all of its manifest: %s", image_id, error)
            self._hand_over(image_id, fetch_whole(self._origin, manifest))

    def _hand_over(self, image_id: str, fetched: FetchedManifest) -> None:
        if fetched.disk_id != image_id:
            raise exception.CorruptError(f"the record names a manifest of {fetched.disk_id}")
        path = os.path.join(self._directory, f"{image_id}.manifest")
        hand_over(self._data_plane, path, fetched.content, fetched.size)
        partial = {"partial": True} if fetched.is_partial else {}
        try:
            self._data_plane.call("image.attach", path=path, **partial)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        LOG.info("attached image %s", image_id)

    def _withdraw(self, image_id: str, report: ImageReport) -> None:
        state = self._data_plane.call("image.detach", image=image_id)["state"]
        if state == "hidden":
            report.hidden += 1
        else:
            LOG.info("detached image %s", image_id)

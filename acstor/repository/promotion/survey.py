"""Refs that a promotion keeps, and those that are lost with the home.

Logs of volumes are in the home alone. A volume that may have had some falls back to its last fold,
or is left out, as an operator says. One that nothing but logs, or the disk that it was made of, had
the content of is lost: an empty disk or a bare image in its place would be taken for its content.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.pair import OriginPair
from acstor.origin.replicated.promotion.copied_refs import CopiedRefs
from acstor.origin.replicated.set_placement import COPIED_FOLDERS
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE
from acstor.repository.copying.report import CopyDamage
from acstor.repository.copying.roots import Root, RootReader, named
from acstor.repository.copying.settled_volumes import settled
from acstor.repository.images.usage import USAGE_PREFIX
from acstor.repository.promotion.surviving_objects import SurvivingObjects
from acstor.repository.repository import Format, Repository
from acstor.repository.volumes.record import VolumeRecord

CODE_LENGTH = 12
"""Characters of the code that confirms a survey."""


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """Outcome of a promotion, before it is done.

    :ivar as_of: seconds since the epoch at which the copies were complete, or later; None: it is
        not known.
    :ivar members: members whose objects count, the new home first.
    :ivar refs: refs that are kept, by name, as the copies have them.
    :ivar reverted: ids of the volumes among them that fall back to their last fold.
    :ivar lost: refs that cannot be kept, each with the reason.
    :ivar copies_damaged: copies of which not even the names are known.
    :ivar unknown: refs of kinds that this release does not know; they are left out.
    :ivar lacking: keys of objects that the new home gets from other members first.
    """

    as_of: float | None
    members: Sequence[str]
    refs: Mapping[str, bytes]
    reverted: Sequence[str]
    lost: Sequence[CopyDamage]
    copies_damaged: int
    unknown: Sequence[str]
    lacking: Sequence[str]

    def count(self, prefix: str) -> int:
        """Return how many refs of a folder are kept."""
        return sum(name.startswith(prefix) for name in self.refs)

    def count_lost(self, prefix: str) -> int:
        """Return how many refs of a folder are lost."""
        return sum(one.name.startswith(prefix) for one in self.lost)

    @property
    def code(self) -> str:
        """Code that another outcome does not have: by it an operator confirms this one."""
        content = [
            self.as_of, self.members, sorted(self.refs), sorted(self.reverted),
            sorted(one.name for one in self.lost), self.copies_damaged, sorted(self.unknown),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:CODE_LENGTH]


def survey(
    copies: Mapping[str, bytes],
    objects: SurvivingObjects,
    found: Format,
    *,
    as_of: float | None,
    members: Sequence[str],
    copies_damaged: int,
) -> Survey:
    """Return what is kept and what is lost; nothing is changed.

    :param copies: refs of the lost home.
    :param objects: of the members that are left.
    :param found: format of the repository.
    :raises UnavailableError: when a member cannot be reached any more.
    """
    origin: base.Origin = OriginPair(objects, CopiedRefs(copies))
    reader = RootReader(Repository(origin, found), is_restore=True)
    images = _images(copies)
    refs: dict[str, bytes] = {}
    reverted: list[str] = []
    lost: list[CopyDamage] = []
    lacking: set[str] = set()
    for root in reader.read_all():
        try:
            content, is_older = _kept(root, objects, images)
        except (*UNREADABLE, exception.ExhaustedError) as error:
            lost.append(CopyDamage(root.name, error.message))
            continue
        refs[root.name] = content
        lacking.update(key for key in root.keys if objects.is_lacking(key))
        if is_older:
            reverted.append(root.name.removeprefix(layout.VOLUME_PREFIX))
    return Survey(
        as_of, members, refs, reverted, lost, copies_damaged, reader.unknown, sorted(lacking)
    )


def _kept(root: Root, objects: SurvivingObjects, images: set[str]) -> tuple[bytes, bool]:
    """Return the content of a ref that is kept, and whether it is a volume of before.

    :raises CorruptError: and the like when it cannot be kept.
    """
    if root.name.startswith(USAGE_PREFIX):
        return root.content, False  # keeps what there is of images that were withdrawn
    content, is_older = root.content, False
    damages = list(root.damages)
    if root.name.startswith(layout.VOLUME_PREFIX):
        content, is_older = _without_logs(root, images)
        if is_older:
            damages = [one for one in damages if layout.parse_log_key(one.name) is None]
    if damages:
        raise exception.CorruptError(damages[0].what)
    needed = [key for key in root.keys if key.startswith(COPIED_FOLDERS)]
    missing = [key for key in needed if not objects.has(key)]
    if missing:
        raise exception.CorruptError(
            f"{len(missing)} of its {len(needed)} objects are in no member, {missing[0]} for one"
        )
    return content, is_older


def _without_logs(root: Root, images: set[str]) -> tuple[bytes, bool]:
    """Return the record of a volume whose logs are lost, and whether it may have had any.

    :raises CorruptError: when nothing that is left has its content.
    :raises UnsupportedError: when there is no epoch left for it.
    """
    volume_id = root.name.removeprefix(layout.VOLUME_PREFIX)
    record = VolumeRecord.parse(root.content, volume_id)
    is_closed = record.owner is None and record.unsealed is None
    content, is_older = root.content, False
    if record.logs or not (record.epoch == 0 or is_closed):
        # Of a record without made_of, written before there was one, it is told by the images.
        is_known = record.made_of is not None
        is_own = record.manifest != record.made_of if is_known else record.manifest not in images
        if record.manifest is None or not is_own:
            raise exception.CorruptError(
                "it was never folded: what was written to it is lost with the home"
            )
        content = dataclasses.replace(record, logs=(), pending=None).encode()
        is_older = True
    # Refused here, where nothing is changed yet, rather than in the midst.
    settled(volume_id, content, lambda volume, epoch, first: (None, first))
    return content, is_older


def _images(copies: Mapping[str, bytes]) -> set[str]:
    """Return the manifests of images, also of those that were withdrawn and are in use."""
    found: set[str] = set()
    for name, content in copies.items():
        if name.startswith((layout.IMAGE_PREFIX, USAGE_PREFIX)):
            # What is not readable is lost, and says so itself.
            with contextlib.suppress(*UNREADABLE, ValueError):
                manifests, _, _ = named(name, content)
                found.update(manifests)
    return found

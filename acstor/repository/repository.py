"""The repository: images, manifests and packs in an origin."""

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Iterator

from acstor import exception, untrusted_json
from acstor.origin import base
from acstor.repository import disk_manifest, layout
from acstor.repository.dedup_scope import DedupScope, check_scope
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.images import boot_profile, image_record, signed_record, working_set
from acstor.repository.images.image_index import ImageIndexWriter

FORMAT_NAME = "acstor-repository"
FORMAT_VERSION = 8
"""Version of the repositories that this build makes, unless it is told otherwise.

It must grow when a new kind of ref keeps manifests alive: a garbage collector that does not know
that kind would delete what it refers to. 2: volumes and snapshots. 3: the refs of a POSIX origin
are where programs of version 2 see none. 4: chunks may have names in a scope (dedup_scope.py),
which programs of version 3 take for damaged. 5: hosts follow an index of the images
(images/image_index.py), which programs of version 4 do not write. 6: images have manifests and
packs of version 2 (disk_formats.py), which programs of version 5 do not read. 7: chunks may have
been moved to other packs (moved_packs.py), where programs of version 6 do not look for them. 8:
versions of disks keep manifests alive (versions/record.py), which collectors of version 7 do not
know.
"""
FORMAT_VERSIONS_MADE = (5, 6, 7, 8)
"""Versions that this build can make: programs of the release before read the first."""
FORMAT_VERSIONS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Versions that this build opens."""
VOLUMES_VERSION = 2
"""First version with volumes; upgrade.py makes one of an older repository."""
SCOPES_VERSION = 4
"""First version whose chunks may have names in a scope."""
INDEX_VERSION = 5
"""First version with an index of the images, which hosts follow."""
COMPRESSED_VERSION = 6
"""First version whose new images have manifests and packs of version 2."""
COMPACTION_VERSION = 7
"""First version whose packs may be compacted."""
VERSIONS_VERSION = 8
"""First version with versions of disks."""
CHUNK_SIZE_DEFAULT = 64 << 10
FORMAT_SIZE_MAX = 64 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """Properties of a whole repository: the object ``format``."""

    id: str
    """UUID of the repository."""
    chunk_size: int
    """Size of every chunk of every image, bytes."""
    version: int = FORMAT_VERSION

    @property
    def has_compressed_images(self) -> bool:
        """True if new images, and new content of volumes, have manifests and packs of version 2."""
        return self.version >= COMPRESSED_VERSION

    def encode(self) -> bytes:
        """Return the object's content, JSON."""
        fields = {"format": FORMAT_NAME, **dataclasses.asdict(self)}
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "Format":
        """Read the object's content.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = untrusted_json.load(content, "the format object")
            if fields["format"] != FORMAT_NAME:
                raise ValueError("another format")
            version = untrusted_json.whole(fields["version"], "version")
            chunk_size = untrusted_json.whole(fields["chunk_size"], "chunk_size")
            parsed = cls(str(uuid.UUID(fields["id"])), chunk_size, version)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                "the origin's 'format' object is not a repository's",
                hint="check that [origin] url names the directory of a repository",
            ) from error
        if version not in FORMAT_VERSIONS:
            known = ", ".join(map(str, FORMAT_VERSIONS))
            raise exception.UnsupportedError(
                f"the repository has format version {version}, this release reads {known}"
            )
        check_chunk_size(parsed.chunk_size)
        return parsed


def check_chunk_size(chunk_size: int) -> None:
    """Refuse what is no chunk size.

    :raises InvalidError: unless it is a power of two from 4 KiB to 4 MiB.
    """
    if not 4 << 10 <= chunk_size <= 4 << 20 or chunk_size & (chunk_size - 1):
        raise exception.InvalidError(
            f"chunk size {chunk_size} is no power of two from 4096 to 4194304"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """A registered image."""

    id: str
    record: image_record.ImageRecord
    token: str
    """Token of the ref, to change it only as long as it is the one that was read."""
    content: bytes = dataclasses.field(default=b"", repr=False, compare=False)
    """Content of the ref, which alone can be verified; empty: it is not kept."""


class Repository:
    """An opened repository; made by :meth:`open` and :meth:`init`."""

    def __init__(self, origin: base.Origin, repository_format: Format) -> None:
        """Keep what was opened."""
        self.origin = origin
        self.format = repository_format
        self.image_index = ImageIndexWriter(origin, is_kept=self.has_image_index)

    @classmethod
    def open(cls, origin: base.Origin) -> "Repository":
        """Open the repository in ``origin``.

        :raises NotFoundError: when there is none.
        :raises UnsupportedError: when a newer release made it.
        :raises CorruptError: when the format object is malformed.
        """
        try:
            content = origin.get(layout.FORMAT_KEY, FORMAT_SIZE_MAX)
        except exception.NotFoundError as error:
            ref = origin.get_ref(layout.FORMAT_REF)
            if ref is None:
                raise exception.NotFoundError(
                    "the origin holds no repository",
                    hint="check that it is mounted; 'acstor repository init' makes a new "
                    "repository",
                ) from error
            # An upgrade was interrupted, or is under way: upgrade.py.
            content = ref.content
            Format.parse(content)
            # Hosts may only read it: what it says is known all the same.
            with contextlib.suppress(exception.AcstorError):
                origin.put_if_absent(layout.FORMAT_KEY, [content])
        return cls(origin, Format.parse(content))

    @classmethod
    def init(
        cls,
        origin: base.Origin,
        chunk_size: int = CHUNK_SIZE_DEFAULT,
        version: int = FORMAT_VERSION,
    ) -> "Repository":
        """Make a repository in ``origin``, or open the one that is there.

        :param version: of a new repository; one that is there may have another.
        :raises InvalidError: for a bad chunk size, or when there is a repository with another.
        """
        check_chunk_size(chunk_size)
        wanted = Format(id=str(uuid.uuid4()), chunk_size=chunk_size, version=version)
        try:
            opened = cls.open(origin)
        except exception.NotFoundError:
            origin.convert_refs()
            origin.put_if_absent(layout.FORMAT_KEY, [wanted.encode()])
            opened = cls.open(origin)
        if opened.format.chunk_size != chunk_size:
            raise exception.InvalidError(
                f"the repository exists already, with chunks of {opened.format.chunk_size} bytes",
                hint="use it as it is, or another origin",
            )
        return opened

    def check_there(self) -> None:
        """Refuse to take for deleted what is absent because the repository is.

        :raises UnavailableError: when the origin does not hold the repository that was opened: its
            file system is not mounted, or is another one.
        """
        self._format_there()

    def current_format(self) -> Format:
        """Return the format as it is now: an upgrade may have come after this was opened.

        :raises UnavailableError: as :meth:`check_there`.
        """
        is_newest = self.format.version >= FORMAT_VERSION
        return self.format if is_newest else self._format_there()

    def _format_there(self) -> Format:
        hint = "check that the origin's file system is mounted, and which"
        try:
            found = Repository.open(self.origin).format
        except exception.NotFoundError as error:
            raise exception.UnavailableError(
                "there is no repository in the origin any more", hint=hint
            ) from error
        if found.id != self.format.id:
            raise exception.UnavailableError(
                f"the origin holds another repository, {found.id} and not {self.format.id}",
                hint=hint,
            )
        return found

    @property
    def chunk_size(self) -> int:
        """Size of every chunk, bytes."""
        return self.format.chunk_size

    @property
    def has_image_index(self) -> bool:
        """True if every change of an image is noted in the index."""
        return self.format.version >= INDEX_VERSION

    @property
    def has_compressed_images(self) -> bool:
        """True if new images have manifests and packs of version 2."""
        return self.format.has_compressed_images

    @property
    def may_be_compacted(self) -> bool:
        """True if chunks may be moved to other packs."""
        return self.format.version >= COMPACTION_VERSION

    def check_compaction_allowed(self) -> None:
        """Refuse compaction where an older release would look for chunks where they were.

        :raises UnsupportedError: when the repository's version is older than compaction.
        """
        if not self.may_be_compacted:
            raise exception.UnsupportedError(
                f"the repository has format version {self.format.version}, compaction needs "
                f"{COMPACTION_VERSION}",
                hint="when every machine runs this release: 'acstor repository upgrade'",
            )

    def check_versions_allowed(self) -> None:
        """Refuse versions of disks where an older release might collect what they refer to.

        :raises UnsupportedError: when the repository's version is older than they are.
        """
        if self.format.version < VERSIONS_VERSION:
            raise exception.UnsupportedError(
                f"the repository has format version {self.format.version}, versions of disks need "
                f"{VERSIONS_VERSION}",
                hint="when every machine runs this release: 'acstor repository upgrade'",
            )

    def check_volumes_allowed(self) -> None:
        """Refuse volumes where an older release might collect what they refer to.

        :raises UnsupportedError: when the repository's version is older than volumes.
        """
        if self.format.version < VOLUMES_VERSION:
            raise exception.UnsupportedError(
                f"the repository has format version {self.format.version}, volumes need "
                f"{VOLUMES_VERSION}",
                hint="when every machine runs this release: 'acstor repository upgrade'",
            )

    def check_scope_allowed(self, scope: str | None) -> None:
        """Refuse names in a scope where an older release might read them.

        :param scope: None is always allowed.
        :raises InvalidError: when it is no scope: a record with it could not be read again.
        :raises UnsupportedError: when the repository's version is older than scopes.
        """
        try:
            check_scope(scope)
        except ValueError as error:
            raise exception.InvalidError(
                f"no chunks can be named for this project: {error}",
                hint="give the id of the project as Keystone has it",
            ) from error
        if scope is not None and self.format.version < SCOPES_VERSION:
            raise exception.UnsupportedError(
                f"the repository has format version {self.format.version}, [repository] "
                f"dedup_scope = project needs {SCOPES_VERSION}",
                hint="when every machine runs this release: 'acstor repository upgrade'",
            )

    def check_scopes_of(self, dedup_scope: DedupScope) -> None:
        """Refuse what the configuration wants where an older release might read it.

        :raises UnsupportedError: as :meth:`check_scope_allowed`, whatever the content.
        """
        self.check_scope_allowed(dedup_scope.of_project("any", ""))

    def find_image(self, image_id: str) -> Image | None:
        """Return a registered image, None when there is none; nobody has verified its record.

        :raises InvalidError: when the id is no UUID.
        :raises CorruptError: when its record is malformed.
        """
        image_id = layout.canonical_image_id(image_id)
        ref = self.origin.get_ref(layout.image_ref(image_id))
        if ref is None:
            return None
        record = image_record.ImageRecord.parse(ref.content, image_id)
        return Image(id=image_id, record=record, token=ref.token, content=ref.content)

    def find_verified_image(
        self, image_id: str, verifier: signed_record.RecordVerifier
    ) -> Image | None:
        """Return a registered image whose record is believed, None when there is none.

        :raises InvalidError: when the id is no UUID.
        :raises UnverifiedError: when its record is not to be believed.
        :raises CorruptError: when its record is malformed.
        """
        image_id = layout.canonical_image_id(image_id)
        ref = self.origin.get_ref(layout.image_ref(image_id))
        if ref is None:
            return None
        known = verifier.verify(ref.content, image_id)
        return Image(id=image_id, record=known.record, token=ref.token, content=ref.content)

    def get_image(self, image_id: str) -> Image:
        """Return a registered image.

        :raises NotFoundError: when there is none.
        """
        image = self.find_image(image_id)
        if image is None:
            raise exception.NotFoundError(
                f"image {layout.canonical_image_id(image_id)} is not registered",
                hint="'acstor image list' shows the images that are",
            )
        return image

    def list_image_ids(self) -> Iterator[str]:
        """Yield the ids of all registered images, in no particular order."""
        for name in self.origin.list_refs(layout.IMAGE_PREFIX):
            yield name.removeprefix(layout.IMAGE_PREFIX)

    def list_images(self) -> Iterator[Image]:
        """Yield all registered images; those that vanish meanwhile are left out."""
        for image_id in self.list_image_ids():
            image = self.find_image(image_id)
            if image is not None:
                yield image

    def load_manifest(self, digest: str) -> DiskManifest:
        """Return the manifest with that name.

        :raises NotFoundError: when it is not there.
        :raises CorruptError: when its bytes are not what the name says.
        """
        return disk_manifest.load_manifest(self.origin, digest)

    def remove_image(self, image_id: str, expected: str | None = None) -> Image:
        """Withdraw an image. Its chunks stay until garbage collection finds them unreferenced.

        :param expected: token of the image that is meant; None: whichever it is.
        :returns: the image that was removed.
        :raises NotFoundError: when there is none.
        :raises ConflictError: when someone else changed it meanwhile.
        """
        image_id = layout.canonical_image_id(image_id)
        name = layout.image_ref(image_id)
        # The ref, not the record, is what is removed: a damaged record must not keep it there.
        ref = self.origin.get_ref(name)
        if ref is None:
            return self.get_image(image_id)
        with self.image_index.changing(image_id):
            self.origin.swap_ref(name, expected or ref.token, None)
        working_set.forget(self.origin, image_id)
        boot_profile.forget(self.origin, image_id)
        try:
            record = image_record.ImageRecord.parse(ref.content, image_id)
        except (exception.CorruptError, exception.UnsupportedError):
            record = UNREADABLE_RECORD
        return Image(id=image_id, record=record, token=ref.token)


UNREADABLE_RECORD = image_record.ImageRecord(
    manifest="0" * 64,
    content="0" * 64,
    name="",
    size_bytes=0,
    chunk_size=0,
    chunk_count=0,
    unique_count=0,
    zero_count=0,
    source_format="",
    registered_at="",
)
"""Stands for a record that cannot be read."""

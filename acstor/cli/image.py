"""Commands on registered images: ``acstor image ...``."""

import argparse
import dataclasses
import os
import uuid
from collections.abc import Sequence
from typing import Any

from cliff import command, lister, show

from acstor import exception
from acstor.cli import repository_access, sizes, usage_view
from acstor.cli.columns import Names
from acstor.repository import disk_formats, layout, progress, verification
from acstor.repository.checksum import Checksum
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.images import boot_profile, image_registry, inspection, registration
from acstor.repository.images.configured_records import record_verifier, record_writer
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.repository import Image
from acstor.repository.signing.signed_document import SignedDocument, UnverifiedError
from acstor.repository.source import confinement

Row = tuple[tuple[str, ...], tuple[Any, ...]]


class RegisterImage(show.ShowOne):
    """Register an image file, so that hosts can boot from it.

    Registering the same file again changes nothing; after an interruption it goes on where it
    was.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("file", metavar="FILE", help="the image file")
        parser.add_argument("--id", metavar="UUID", help="id of the image, as in Glance (new)")
        parser.add_argument("--name", help="name, for people (the file's)")
        parser.add_argument(
            "--disk-format",
            default="raw",
            choices=inspection.DECLARED_FORMATS,
            help="what the file is declared to be; its content must agree (raw)",
        )
        parser.add_argument(
            "--checksum",
            metavar="ALGORITHM:HEX",
            type=_checksum,
            help="declared checksum of the file (md5, sha256 or sha512), verified",
        )
        parser.add_argument(
            "--disk-size-max",
            metavar="SIZE",
            type=sizes.size,
            help="most bytes of the disk, such as 1TiB: every host keeps some 50 bytes for each "
            "chunk of it ([registrar] disk_size_max)",
        )
        parser.add_argument(
            "--project",
            metavar="ID",
            help="project that the image belongs to, of an image that is not public: with "
            "[repository] dedup_scope = project its chunks are shared within that project only",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Register and return the report."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        confinement.warn_of_missing()
        source = inspection.open_source(
            parsed_args.file,
            parsed_args.disk_format,
            conf.registration.tool_timeout,
            inspection.SizeLimits(
                parsed_args.disk_size_max or conf.registrar.disk_size_max,
                disk_formats.disk_size_max(repository),
            ),
        )
        settings = registration.Settings(
            pack_size=conf.registration.pack_size,
            workers=conf.registration.workers,
            cache_path=conf.registration.cache_path,
            reserve_percent=conf.origin.reserve_percent,
        )
        request = registration.Request(
            image_id=parsed_args.id or str(uuid.uuid4()),
            name=parsed_args.name or os.path.basename(parsed_args.file),
            source=source,
            source_format=parsed_args.disk_format,
            checksum=parsed_args.checksum,
            dedup_scope=DedupScope(conf.repository.dedup_scope).of_project(parsed_args.project, "")
            if parsed_args.project
            else None,
        )
        try:
            with progress.for_stream(self.app.stderr) as shown:
                registrar = registration.Registrar(
                    repository, settings, shown, writer=record_writer(conf)
                )
                report = registrar.register(request)
        finally:
            source.close()
        return _row(dataclasses.asdict(report))


class ListImages(lister.Lister):
    """List the registered images.

    The state is that of the image registry; it is empty for images that were registered by hand.
    The signature is as this machine judges it, by its [repository] public_keys: verified, unsigned,
    or unverified and why; hosts attach no image that is unverified there.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        verifier = record_verifier(conf, repository)
        images = sorted(repository.list_images(), key=lambda image: (image.record.name, image.id))
        entries = image_registry.ImageRegistry(repository.origin)
        return (
            (
                *("id", "name", "state", "signature"),
                *("size_bytes", "chunks", "unique", "zero", "registered_at"),
            ),
            (
                (
                    image.id,
                    image.record.name,
                    _state(entries, image.id),
                    signature_of(verifier, image),
                    image.record.size_bytes,
                    image.record.chunk_count,
                    image.record.unique_count,
                    image.record.zero_count,
                    image.record.registered_at,
                )
                for image in images
            ),
        )


class ShowImage(show.ShowOne):
    """Show one registered image."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_image(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the record."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        image = repository.get_image(parsed_args.image)
        document = SignedDocument.split(image.content)
        return _row(
            {
                "id": image.id,
                **dataclasses.asdict(image.record),
                "signature": signature_of(record_verifier(conf, repository), image),
                "key": document.key_id if document else None,
            }
        )


class ListBootKinds(lister.Lister):
    """List the kinds of boots of an image: what hosts read ahead when a guest opens it.

    Of each kind the boots so far, the hosts of the last 16 of them, and the chunks that the next
    one is expected to read. Used are kinds that two hosts agree on, or all while one host alone has
    reported.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_image(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)
        image = repository.get_image(parsed_args.image)
        profile = boot_profile.read(repository.origin, image.id)
        kinds = () if profile is None else profile.kinds
        used = () if profile is None else profile.used
        rows = []
        for number, kind in enumerate(sorted(kinds, key=lambda kind: -kind.matched), 1):
            chunks = len(kind.order())
            hosts = Names(sorted(kind.hosts))
            size = chunks * image.record.chunk_size
            rows.append((number, kind.total, hosts, chunks, size, kind in used))
        return ("kind", "boots", "hosts", "chunks", "bytes", "used"), rows


class _Verify(lister.Lister):
    """Re-reads and lists what is damaged."""

    def _verified(self, image_ids: Sequence[str] | None) -> tuple[Any, Any]:
        """Return the damages; the summary goes to stderr."""
        repository = repository_access.open_repository(repository_access.configuration(self.app))
        with progress.for_stream(self.app.stderr) as shown:
            verifier = verification.Verifier(repository, shown)
            self._report = verifier.verify(image_ids)
        report = self._report
        self.app.stderr.write(
            f"verified {report.images} images, {report.volumes} volumes, {report.snapshots} "
            f"snapshots, {report.versions} versions: {report.packs} packs, {report.chunks} chunks, "
            f"{report.log_objects} log objects, {report.bytes_read} bytes, "
            f"{report.megabytes_per_second:.0f} MB/s; {len(report.damages)} damages\n"
        )
        columns = tuple(field.name for field in dataclasses.fields(verification.Damage))
        return columns, (dataclasses.astuple(damage) for damage in report.damages)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the damages, then fail if there are any."""
        super().run(parsed_args)
        if self._report.damages:
            raise exception.CorruptError(
                f"{len(self._report.damages)} damages found",
                hint="register damaged images again from their files, which repairs them; "
                "restore damaged volumes from a snapshot or a backup",
            )
        return 0


class VerifyImages(_Verify):
    """Re-read every chunk of images, or of the whole repository, and list what is damaged.

    Exit status 7 when something is.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", nargs="*", metavar="UUID", help="image (the repository)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the damages."""
        return self._verified(parsed_args.image or None)


class VerifyRepository(_Verify):
    """Re-read every chunk and log object of images, volumes, snapshots and versions; list damages.

    What owners of volumes pushed since their last closed range is not looked at. Exit status 7
    when something is damaged.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the damages."""
        return self._verified(None)


class RemoveImage(command.Command):
    """Withdraw an image; 'acstor gc' later frees the chunks that no other image needs.

    Refused while a host says that instances there use it: those could then not be started, resized
    or migrated elsewhere. 'acstor image users' lists them.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_image(super().get_parser(prog_name))
        parser.add_argument(
            "--force", action="store_true", help="remove it even if hosts use it, or may"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove the image."""
        repository = repository_access.open_repository(repository_access.configuration(self.app))
        if not parsed_args.force:
            image_id = layout.canonical_image_id(parsed_args.image)
            usage_view.check_unused(repository.origin, image_id)
        image = repository.remove_image(parsed_args.image)
        self.app.stdout.write(f"removed {image.id} {image.record.name}\n")


def signature_of(verifier: RecordVerifier, image: Image) -> str:
    """Return what this machine thinks of the signature of an image's record."""
    try:
        known = verifier.verify(image.content, image.id)
    except UnverifiedError as error:
        return f"unverified: {error.reason.value}"
    return "unsigned" if known.key_id is None else "verified"


def _state(entries: image_registry.ImageRegistry, image_id: str) -> str:
    try:
        listed = entries.find(image_id)
    except (exception.CorruptError, exception.UnsupportedError):
        return "unknown"
    return listed.entry.state.value if listed else ""


def _with_image(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("image", metavar="UUID", help="id of the image")
    return parser


def _row(fields: dict[str, Any]) -> Row:
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in fields.items()
    }
    return tuple(rounded), tuple(rounded.values())


def _checksum(text: str) -> Checksum:
    try:
        return Checksum.parse(text)
    except exception.InvalidError as error:
        raise argparse.ArgumentTypeError(f"{error}; {error.hint}") from error

"""Small tables of projects: idempotency keys, defaults, and the boot images of versions."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import sqlalchemy
from sqlalchemy.engine import Connection

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions.database import json_text
from acstor.versions.database.engine import Database, DuplicateError
from acstor.versions.database.sql_tasks import PURGE_ROWS_MAX
from acstor.versions.database.tables import BOOT_IMAGES, DEFAULTS, KEYS, NAME_LENGTH
from acstor.versions.retention import Policy

KEY_HOURS = 24
"""Hours for which an idempotency key is known."""
_HOUR_MS = 3_600_000

AUTOMATIC = frozenset(
    {Trigger.SHUTDOWN, Trigger.RESIZE, Trigger.REBUILD, Trigger.DELETE, Trigger.QUOTA}
)
"""Events of a server's life at which a version may be asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProjectDefaults:
    """Versions that servers of a project get when nothing else is said of them."""

    version_on: frozenset[Trigger] = frozenset()
    """Of :data:`AUTOMATIC`. Empty, as it is unless somebody asks: a version outlives its server."""
    version_keep: Policy = dataclasses.field(default_factory=Policy)

    def check(self) -> None:
        """Refuse what makes no sense.

        :raises InvalidError: saying what.
        """
        for trigger in sorted(self.version_on - AUTOMATIC):
            raise exception.InvalidError(
                f"version_on {trigger.value} is no event of a server's life",
                hint=f"it is one of {', '.join(sorted(AUTOMATIC))}",
            )


class IdempotencyKeys(Protocol):
    """Idempotency keys of requests that make something."""

    def reserve(self, project: str, key: str, request: bytes, new_id: str) -> str:
        """Return the id of what a request makes: a repeated one gets that of the first.

        Whoever asks creates the thing under that id, which is safe to repeat: so it is made once,
        wherever the first attempt died.

        :param request: method, path and body.
        :param new_id: for a request that is the first.
        :raises ConflictError: when the first request with that key was another one.
        :raises InvalidError: when the key is too long, or empty.
        """

    def find(self, project: str, key: str, request: bytes) -> str | None:
        """Return the id that a request with that key was given before, None where none was.

        :raises ConflictError: when the first request with that key was another one.
        :raises InvalidError: when the key is too long, or empty.
        """

    def purge(self) -> int:
        """Forget keys that are older than :data:`KEY_HOURS`; return how many."""


class DefaultsStore(Protocol):
    """Defaults of projects."""

    def get(self, project: str) -> ProjectDefaults:
        """Return the defaults of a project; those of all where it has none."""

    def put(self, project: str, defaults: ProjectDefaults) -> None:
        """Set the defaults of a project.

        :raises InvalidError: when they make no sense.
        """


class BootImages(Protocol):
    """Images of Glance whose content is a version."""

    def reserve(self, version_id: str, project: str, new_id: str) -> str:
        """Return the id of the image of a version for a project: ``new_id`` where it has none."""

    def find(self, version_id: str, project: str) -> str | None:
        """Return that id, None where there is none."""

    def remove(self, version_id: str, project: str, image_id: str) -> None:
        """Forget an image, if it is that."""

    def find_version(self, image_id: str) -> tuple[str, str] | None:
        """Return version and project of an image, None where it is no version's."""


class SqlKeys:
    """Idempotency keys in a database; see :class:`IdempotencyKeys`."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    def reserve(self, project: str, key: str, request: bytes, new_id: str) -> str:
        """Return the id of what a request makes; see :meth:`IdempotencyKeys.reserve`."""
        _require_key(key)
        digest = hashlib.sha256(request).hexdigest()
        mine = (KEYS.c.project == project, KEYS.c.key_ == key)

        def work(connection: Connection) -> tuple[str, str]:
            bound = self._database.now() - KEY_HOURS * _HOUR_MS
            connection.execute(KEYS.delete().where(*mine, KEYS.c.created_at < bound))
            row = connection.execute(sqlalchemy.select(KEYS).where(*mine)).first()
            if row is not None:
                return row.digest, row.resource
            connection.execute(
                KEYS.insert().values(
                    project=project,
                    key_=key,
                    digest=digest,
                    resource=new_id,
                    created_at=self._database.now(),
                )
            )
            return digest, new_id

        try:
            found, resource = self._database.write(work)
        except DuplicateError:
            found, resource = self._database.write(work)  # somebody else was first: it is there
        _require_same(found, digest)
        return resource

    def find(self, project: str, key: str, request: bytes) -> str | None:
        """Return the id that was given before; see :meth:`IdempotencyKeys.find`."""
        _require_key(key)
        statement = sqlalchemy.select(KEYS).where(
            KEYS.c.project == project,
            KEYS.c.key_ == key,
            KEYS.c.created_at >= self._database.now() - KEY_HOURS * _HOUR_MS,
        )
        row = self._database.read(lambda one: one.execute(statement).first())
        if row is None:
            return None
        _require_same(row.digest, hashlib.sha256(request).hexdigest())
        return str(row.resource)

    def purge(self) -> int:
        """Forget old keys; see :meth:`IdempotencyKeys.purge`."""
        bound = self._database.now() - KEY_HOURS * _HOUR_MS

        def work(connection: Connection) -> int:
            old = connection.execute(
                sqlalchemy.select(KEYS.c.project, KEYS.c.key_)
                .where(KEYS.c.created_at < bound)
                .limit(PURGE_ROWS_MAX)
            ).all()
            for row in old:
                connection.execute(
                    KEYS.delete().where(KEYS.c.project == row.project, KEYS.c.key_ == row.key_)
                )
            return len(old)

        total = 0
        while count := self._database.write(work):
            total += count
        return total


def _require_key(key: object) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= NAME_LENGTH:
        raise exception.InvalidError(f"an idempotency key has 1 to {NAME_LENGTH} characters")


def _require_same(found: str, digest: str) -> None:
    if found != digest:
        raise exception.ConflictError(
            "the idempotency key was used for another request",
            hint="use a new key for each request, and the same only to repeat it",
        )


class SqlDefaults:
    """Defaults in a database; see :class:`DefaultsStore`."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    def get(self, project: str) -> ProjectDefaults:
        """Return the defaults of a project."""
        statement = sqlalchemy.select(DEFAULTS).where(DEFAULTS.c.project == project)
        row = self._database.read(lambda one: one.execute(statement).first())
        if row is None:
            return ProjectDefaults()
        what = f"defaults of project {project}"
        return ProjectDefaults(
            triggers_of(json_text.decode_list(row.version_on, what)),
            Policy.from_fields(json_text.decode_object(row.version_keep, what)),
        )

    def put(self, project: str, defaults: ProjectDefaults) -> None:
        """Set the defaults of a project."""
        defaults.check()
        values: dict[str, Any] = {
            "version_on": json_text.encode(sorted(defaults.version_on), "version_on"),
            "version_keep": json_text.encode(defaults.version_keep.to_fields(), "version_keep"),
            "updated_at": self._database.now(),
        }
        update = DEFAULTS.update().where(DEFAULTS.c.project == project).values(values)
        if self._database.write(lambda one: one.execute(update).rowcount):
            return
        insert = DEFAULTS.insert().values(project=project, **values)
        try:
            self._database.write(lambda one: one.execute(insert))
        except DuplicateError:
            self._database.write(lambda one: one.execute(update))


class SqlBootImages:
    """Boot images in a database; see :class:`BootImages`."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    def reserve(self, version_id: str, project: str, new_id: str) -> str:
        """Return the id of the image of a version for a project."""
        insert = BOOT_IMAGES.insert().values(
            version=version_id, project=project, image=new_id, created_at=self._database.now()
        )
        found = self.find(version_id, project)
        if found is not None:
            return found
        try:
            self._database.write(lambda one: one.execute(insert))
        except DuplicateError:
            found = self.find(version_id, project)
            if found is None:
                raise
            return found
        return new_id

    def find(self, version_id: str, project: str) -> str | None:
        """Return the id of the image of a version for a project, None where there is none."""
        statement = sqlalchemy.select(BOOT_IMAGES.c.image).where(*_of(version_id, project))
        return self._database.read(lambda one: one.execute(statement).scalar())

    def remove(self, version_id: str, project: str, image_id: str) -> None:
        """Forget an image, if it is that."""
        statement = BOOT_IMAGES.delete().where(
            *_of(version_id, project), BOOT_IMAGES.c.image == image_id
        )
        self._database.write(lambda one: one.execute(statement))

    def find_version(self, image_id: str) -> tuple[str, str] | None:
        """Return version and project of an image, None where it is no version's."""
        statement = sqlalchemy.select(BOOT_IMAGES).where(BOOT_IMAGES.c.image == image_id)
        row = self._database.read(lambda one: one.execute(statement).first())
        return None if row is None else (row.version, row.project)


def triggers_of(names: Iterable[object]) -> frozenset[Trigger]:
    """Return the triggers that names say.

    :raises InvalidError: when one is none.
    """
    try:
        return frozenset(Trigger(name) for name in names)  # type: ignore[arg-type]
    except ValueError as error:
        raise exception.InvalidError(
            f"version_on has no {error}", hint=f"it has {', '.join(sorted(AUTOMATIC))}"
        ) from error


def _of(version_id: str, project: str) -> tuple[Any, Any]:
    return BOOT_IMAGES.c.version == version_id, BOOT_IMAGES.c.project == project


def settings_fields(defaults: ProjectDefaults) -> Mapping[str, Any]:
    """Return defaults as JSON."""
    return {
        "version_on": sorted(one.value for one in defaults.version_on),
        "version_keep": defaults.version_keep.to_fields(),
        "on_delete": Trigger.DELETE in defaults.version_on,
    }

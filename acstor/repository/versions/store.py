"""Versions of a repository: what the service of versions, the commands and the tests use.

Everything is a change of one ref, by compare-and-swap. What a version names, and nothing else does
any more once it is deleted, is left to garbage collection.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.repository import layout
from acstor.repository.versions import locks
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.merges import Merges
from acstor.repository.versions.record import VersionRecord, check_use
from acstor.repository.versions.states import VersionEvent, VersionState
from acstor.repository.versions.version_refs import Change, Version


class VersionStore(Merges):
    """Versions of one repository; see :class:`.VersionRefs`."""

    def describe(
        self,
        version_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> Change:
        """Change what is for people.

        :param name: None: as it is.
        :param labels: what to change; a value of None removes the label.
        :raises NotFoundError: when there is no such version, or it is deleted.
        """

        def described(record: VersionRecord) -> VersionRecord:
            merged = {**record.labels, **(labels or {})}
            kept = {key: value for key, value in merged.items() if value is not None}
            return dataclasses.replace(
                record, name=record.name if name is None else name, labels=kept
            )

        return self._edit(version_id, described)

    def set_expiry(self, version_id: str, expires_at: datetime.datetime | None) -> Change:
        """Change when a version expires.

        :param expires_at: None: it does not.
        :raises ConflictError: when that is earlier, and the version is locked.
        """

        def changed(record: VersionRecord) -> VersionRecord:
            locks.check_expiry(
                f"version {version_id}", record.expires_at, expires_at, record.lock, self._now()
            )
            return dataclasses.replace(record, expires_at=_seconds(expires_at))

        return self._edit(version_id, changed)

    def lock(self, version_id: str, lock: Lock) -> Change:
        """Lock a version, or make its lock last longer.

        :raises ConflictError: when it is locked for longer than that.
        """

        def locked(record: VersionRecord) -> VersionRecord:
            locks.check_lock(f"version {version_id}", record.lock, lock, self._now())
            return dataclasses.replace(
                record, lock=dataclasses.replace(lock, until=_seconds(lock.until))
            )

        return self._edit(version_id, locked)

    def unlock(self, version_id: str) -> Change:
        """Take the lock off a version; who may do that is decided elsewhere."""
        return self._edit(version_id, lambda record: dataclasses.replace(record, lock=None))

    # Uses

    def begin_use(self, version_id: str, use: str) -> Change:
        """Keep a version until a use of it ends, whoever deletes it; repeating it is safe.

        :param use: kind and name of the use, for example ``image/<uuid>``.
        :raises InvalidError: when it is no such text.
        :raises NotFoundError: when there is no such version, or it is deleted.
        :raises ConflictError: when it is on its host only.
        """
        try:
            check_use(use)
        except ValueError as error:
            raise exception.InvalidError(str(error)) from error

        def used(record: VersionRecord) -> VersionRecord:
            if record.state is VersionState.CAPTURED:
                raise exception.ConflictError(
                    f"version {version_id} is on host {record.host} only",
                    hint="wait until it is committed",
                )
            return dataclasses.replace(record, uses=tuple(sorted({*record.uses, use})))

        return self._edit(version_id, used)

    def end_use(self, version_id: str, use: str) -> Change | None:
        """End a use of a version, and remove one that was deleted if it was the last.

        Repeating it is safe.

        :returns: None where there is no such version any more.
        """

        def unused(record: VersionRecord) -> VersionRecord | None:
            uses = tuple(one for one in record.uses if one != use)
            if record.state is VersionState.CONDEMNED and not uses:
                return None
            return dataclasses.replace(record, uses=uses)

        def event(record: VersionRecord) -> VersionEvent:
            if record.state is not VersionState.CONDEMNED:
                return VersionEvent.EDIT
            is_last = set(record.uses) <= {use}
            return VersionEvent.REMOVE if is_last else VersionEvent.RELEASE

        with contextlib.suppress(exception.NotFoundError):
            return self._change(version_id, event, unused)
        return None

    # Deleting

    def delete(self, version_id: str) -> Version:
        """Delete a version; one that is in use is kept, hidden, until its last use has ended.

        :returns: the version as it was.
        :raises NotFoundError: when there is no such version, or it is deleted.
        :raises ConflictError: while it is locked, or captured: that is abandoned.
        """
        return self._delete(version_id)

    def expire(self, version_id: str) -> Version | None:
        """Delete a version whose time is over.

        :returns: the version as it was; None where its time is not over, or it is gone.
        """
        try:
            return self._delete(version_id, is_expiry=True)
        except (exception.NotFoundError, _NotExpiredError):
            return None

    def _delete(self, version_id: str, *, is_expiry: bool = False) -> Version:
        def deleted(record: VersionRecord) -> VersionRecord | None:
            self._check_deletable(version_id, record, is_expiry=is_expiry)
            if record.uses:
                return dataclasses.replace(record, state=VersionState.CONDEMNED, pending=None)
            return None

        def event(record: VersionRecord) -> VersionEvent:
            return VersionEvent.CONDEMN if record.uses else VersionEvent.REMOVE

        change = self._change(version_id, event, deleted)
        return Version(layout.canonical_id(version_id, "version"), change.before)

    def _check_deletable(self, version_id: str, record: VersionRecord, *, is_expiry: bool) -> None:
        _check_shown(version_id, record)
        now = self._now()
        if is_expiry and not locks.is_expired(record.expires_at, record.lock, now):
            raise _NotExpiredError(f"version {version_id} has not expired")
        locks.check_deletable(f"version {version_id}", record.lock, now)
        if record.state is VersionState.CAPTURED:
            raise exception.ConflictError(
                f"version {version_id} is being captured on host {record.host}",
                hint="abandon the capture, or wait until it is committed",
            )

    def _edit(self, version_id: str, make: Callable[[VersionRecord], VersionRecord]) -> Change:
        def edited(record: VersionRecord) -> VersionRecord:
            _check_shown(version_id, record)
            return make(record)

        return self._change(version_id, VersionEvent.EDIT, edited)


class _NotExpiredError(exception.ConflictError):
    """A version whose time is not over, or that is locked."""


def _check_shown(version_id: str, record: VersionRecord) -> None:
    if record.state is VersionState.CONDEMNED:
        raise exception.NotFoundError(
            f"version {version_id} is deleted, and goes when nothing uses it any more"
        )


def _seconds(moment: datetime.datetime | None) -> datetime.datetime | None:
    """Return a moment as records have it: in whole seconds of UTC."""
    return moment and moment.astimezone(datetime.UTC).replace(microsecond=0)

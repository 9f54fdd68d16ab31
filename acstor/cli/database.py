"""Commands on the database of versions: ``acstor database ...``, ``acstor version index ...``."""

import argparse
import contextlib
from typing import Any

from cliff import command, show

from acstor.cli import repository_access

Row = tuple[tuple[str, ...], tuple[Any, ...]]


class UpgradeDatabase(command.Command):
    """Make the tables of [database] connection, or those that a newer release added.

    So are those of [worker] flow_connection, where that is set. It may be repeated. Services of the
    release before go on meanwhile.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Upgrade."""
        del parsed_args
        from acstor.versions.database import opening, schema
        from acstor.versions.worker import assembly

        conf = repository_access.configuration(self.app)
        schema.upgrade(opening.open_database(conf))
        if conf.worker.flow_connection:
            with contextlib.closing(assembly.open_books(conf)) as books:
                books.upgrade()


class ShowDatabase(show.ShowOne):
    """Show the revision of the tables of [database] connection."""

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the revisions."""
        del parsed_args
        from acstor.versions.database import opening, schema

        database = opening.open_database(repository_access.configuration(self.app))
        current, head = schema.current_revision(database), schema.head_revision(database)
        names = ("revision", "newest_revision", "is_current")
        return names, (current or "", head, current == head)


class RebuildIndex(show.ShowOne):
    """Make the index of versions in the database as the origin is.

    The index is a copy: the origin has the versions. Everything may go on meanwhile.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return what was changed."""
        del parsed_args
        from acstor.versions.database import index_refresh, opening

        conf = repository_access.configuration(self.app)
        stores = opening.open_stores(conf)
        origin = repository_access.open_origin(conf)
        try:
            report = index_refresh.rebuild(stores.versions, origin)
        finally:
            origin.close()
        for version_id in report.unreadable:
            self.app.stderr.write(f"the record of version {version_id} cannot be read\n")
        names = ("unchanged", "written", "removed", "unreadable")
        counts = (report.unchanged, report.written, report.removed, len(report.unreadable))
        return names, counts

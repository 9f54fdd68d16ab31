"""Environment in which alembic runs the revisions: a connection that is open already."""

from alembic import context

from acstor.versions.database.tables import METADATA


def run() -> None:
    """Run the revisions over the connection that the caller has opened."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=METADATA,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()

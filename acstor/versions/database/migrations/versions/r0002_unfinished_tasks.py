"""Index by which the unfinished tasks of a project are counted."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it."""
    op.create_index("tasks_unfinished", "tasks", ["project", "state", "user"])

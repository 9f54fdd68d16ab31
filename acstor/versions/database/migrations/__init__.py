"""Revisions of the tables: alembic runs them in their order."""

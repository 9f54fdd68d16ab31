"""Deduplication scopes: names of chunks count in a scope, and only equal names are one chunk.

A scope is a text; None stands for the whole cloud, whose names are plain digests. What belongs to
a project has the project's id as scope. Nothing of it is secret: a scoped digest says which scope
it is of, so whoever has one can verify content with it (crates/types, dedup_scope.rs).
"""

import enum
import uuid

SCOPE_LENGTH_MAX = 255
"""Longest scope, characters."""


class DedupScope(enum.StrEnum):
    """Scope in which new content is deduplicated: ``[repository] dedup_scope``."""

    CLOUD = "cloud"
    """Everybody."""
    PROJECT = "project"
    """Each project for itself; content of public images everybody."""

    def of_project(self, project: str, stand_in: str) -> str | None:
        """Return the scope of content that belongs to a project.

        :param project: its id, as Keystone has it; empty: it belongs to none.
        :param stand_in: id of what the content is of; its scope where there is no project, so that
            it is shared with nobody.
        """
        if self is DedupScope.CLOUD:
            return None
        return canonical_project(project) if project else f"none:{stand_in}"


def canonical_project(project: str) -> str:
    """Return the one form of a project's id: of a UUID 32 lower-case digits, else as it is."""
    try:
        return uuid.UUID(project).hex
    except ValueError:
        return project


def check_scope(scope: object) -> None:
    """Refuse what is no scope.

    :raises ValueError: unless it is None, or printable text of 1 to 255 characters.
    """
    if scope is None:
        return
    if not isinstance(scope, str) or not 0 < len(scope) <= SCOPE_LENGTH_MAX:
        raise ValueError(f"the scope is no text of 1 to {SCOPE_LENGTH_MAX} characters")
    if not scope.isprintable():
        raise ValueError("the scope is not printable")

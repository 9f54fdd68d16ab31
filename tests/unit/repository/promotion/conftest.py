"""Fixtures of promotions."""

import pytest

from tests.unit.repository.promotion.members import Members


@pytest.fixture(scope="session")
def made() -> Members:
    """Members that no test changes."""
    return Members()


@pytest.fixture
def members(made: Members, monkeypatch: pytest.MonkeyPatch) -> Members:
    """Members of a test's own."""
    monkeypatch.setattr(made, "stores", {n: one.copied() for n, one in made.stores.items()})
    monkeypatch.setattr(made.clock, "now", made.clock.now)
    return made

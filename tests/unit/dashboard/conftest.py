"""Horizon in the process of the tests."""

import os
from collections.abc import Iterator

import django
import pytest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.unit.dashboard.settings")
django.setup()

from django.conf import settings  # noqa: E402
from openstack_auth import policy, utils  # noqa: E402

from acstor_dashboard import connection  # noqa: E402
from tests.unit.dashboard.site import Site  # noqa: E402


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Horizon with a member of a project, and the API."""
    found = Site()
    monkeypatch.setattr(connection, "new_session", found.new_session)
    monkeypatch.setattr(connection, "_agreed", {})
    monkeypatch.setattr(utils, "get_user", found.user)
    for mock in settings.TEST_GLOBAL_MOCKS_ON_PANELS.values():
        monkeypatch.setattr(mock["method"], lambda *given, answer=mock["return_value"]: answer)
    policy.reset()
    yield found
    policy.reset()

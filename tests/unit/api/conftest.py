"""The API that these tests ask."""

import pytest

from tests.unit.api.setting import Setting as ApiSetting


@pytest.fixture
def api() -> ApiSetting:
    """Return an API over stores in memory."""
    return ApiSetting()

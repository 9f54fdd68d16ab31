import pathlib
from collections.abc import Iterator

import pytest

from testbed.doubles.registrar_cloud import Cloud


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    (tmp_path / "store").mkdir()
    made = Cloud(tmp_path, withdraw_grace="600", retry_delay="30")
    yield made
    made.stop()

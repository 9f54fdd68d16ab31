import pathlib
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory for sockets: their paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="acstor-") as path:
        yield pathlib.Path(path)

import pathlib
import uuid

import pytest

from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.planting import Planter
from testbed.fixtures.nova_host import NovaHost

IMAGE = str(uuid.UUID(int=1))
OTHER = str(uuid.UUID(int=2))


@pytest.fixture
def nova(tmp_path: pathlib.Path) -> NovaHost:
    return NovaHost(tmp_path / "nova")


@pytest.fixture
def mount(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "images"
    path.mkdir()
    return path


def make_planter(
    nova: NovaHost, mount: pathlib.Path, files: FileOperations | None = None, host: str = "h1"
) -> Planter:
    return Planter(nova.settings, str(mount), host, files or FileOperations())

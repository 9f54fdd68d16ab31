import pathlib
import uuid
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor.drivers.brick import options
from testbed.doubles.memory_nbd_server import MemoryNbdServer
from testbed.doubles.volume_socket import MemoryVolumeSocket

VOLUME = str(uuid.UUID(int=1))
SIZE = 4 << 20


@pytest.fixture
def volume_socket(tmp_path: pathlib.Path) -> Iterator[MemoryVolumeSocket]:
    """The volume socket of this host, where this process is configured to look for it."""
    found = MemoryVolumeSocket(str(tmp_path / "volumes.sock"))
    found.sizes[VOLUME] = SIZE
    found.start()
    options.register_opts(cfg.CONF)
    cfg.CONF.set_override("volume_socket", found.path, group=options.GROUP)
    yield found
    cfg.CONF.clear_override("volume_socket", group=options.GROUP)
    found.stop()


@pytest.fixture
def nbd(tmp_path: pathlib.Path) -> Iterator[MemoryNbdServer]:
    server = MemoryNbdServer(str(tmp_path / "nbd.sock"), VOLUME, SIZE)
    server.start()
    yield server
    server.stop()

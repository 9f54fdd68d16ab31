import pathlib
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from acstor.conf import loading
from acstor.rpc.agent_server import AgentServer

Listen = Callable[..., AgentServer]


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text("[DEFAULT]\ntransport_url = kombu+memory:////\n")
    return loading.load("test", ["--config-file", str(path)])


@pytest.fixture
def listen(conf: cfg.ConfigOpts) -> Iterator[Listen]:
    started: list[AgentServer] = []

    def listen(host: str, *endpoints: object) -> AgentServer:
        server = AgentServer(conf, host, endpoints)
        server.start()
        started.append(server)
        assert server.is_listening.wait(20)
        return server

    yield listen
    for server in started:
        server.stop(10)

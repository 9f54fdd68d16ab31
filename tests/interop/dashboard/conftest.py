"""Horizon as a deployment serves it, the API and Keystone behind it, and one browser before it."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import ROOT
from tests.interop.dashboard import loopback
from tests.interop.dashboard.browser import CHROMIUM, DRIVER, Browser, opened
from tests.interop.dashboard.identity import Identity
from tests.unit.dashboard.trusting_api import ROLES, Api

START_SECONDS = 60.0
"""Longest time until Horizon has compiled its styles, on an idle machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where there is no browser: a machine without apt has none of Debian's."""
    if CHROMIUM.exists() and DRIVER.exists():
        return
    cause = "install what bindep.txt names" if shutil.which("apt-get") else "there is no apt-get"
    skip = pytest.mark.skip(reason=f"chromium or chromium-driver is missing: {cause}")
    for item in items:
        if item.path.is_relative_to(pathlib.Path(__file__).parent):
            item.add_marker(skip)


@dataclasses.dataclass
class Services:
    """Services behind Horizon, under one address.

    :ivar api: ACStor's API of the test that runs.
    """

    api: Api
    identity: Callable[..., Iterable[bytes]]

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer."""
        if environ["PATH_INFO"].startswith("/identity"):
            return self.identity(environ, start_response)
        return self.api(environ, start_response)


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Keystone and the API, which each test has one of its own of."""
    found = Services(Api(), lambda *_: [])
    with loopback.served(found) as url:
        found.identity = Identity(
            url, lambda: found.api.setting.project, lambda: ROLES[found.api.role]
        )
        yield found


@pytest.fixture(scope="session")
def horizon(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Horizon in a process of its own; its URL."""
    folder = tmp_path_factory.mktemp("horizon")
    identity: Any = services.identity
    environment = {
        **os.environ,
        **loopback.PAST_PROXIES,
        "ACSTOR_TEST_HORIZON": str(folder),
        "ACSTOR_TEST_KEYSTONE": f"{identity.url}/identity/v3",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "clients", ROOT / "dashboard"))),
    }
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.dashboard.horizon"],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        port = folder / "port"
        wait_for(
            "Horizon serves",
            lambda: port.exists() or process.poll() is not None,
            START_SECONDS,
            interval=0.1,
        )
        assert port.exists(), log.read_text()
        yield f"http://127.0.0.1:{port.read_text()}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one browser of all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in loopback.PAST_PROXIES.items():
            patch.setenv(name, value)  # Selenium takes the environment's proxy to its driver, too
        with opened(tmp_path_factory.mktemp("chromium")) as driver:
            yield driver


@pytest.fixture
def api(services: Services) -> Api:
    """An API with a project that has nothing yet; its user is a member."""
    services.api = Api()
    return services.api


@pytest.fixture
def browser(chromium: Any, horizon: str, api: Api) -> Iterator[Browser]:
    """A browser in which nobody is logged in. What its console says is the test's."""
    found = Browser(chromium, horizon)
    found.forget()
    yield found
    said = found.take_console()
    found.forget()
    assert not said, "\n".join(said)

"""The driver over an origin of several members: all, or the home where threads are green."""

import pathlib
from unittest import mock

import pytest

from acstor.drivers.cinder import back_end, native_threads
from acstor.drivers.cinder.native_threads import Caller, DirectCaller
from acstor.origin import opening
from acstor.origin.base import Origin
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository


@pytest.mark.parametrize(
    ("caller", "expected"),
    [(DirectCaller(), "members:"), (mock.Mock(run=lambda call: call()), "posix:///srv/home")],
)
def test_driver_opens_what_its_threads_allow(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caller: Caller, expected: str
) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text("[origin]\nmembers = home=posix:///srv/home,near=posix:///srv/near\n")
    options: dict[str, object] = {"acstor_conf": str(path)}
    configuration = mock.Mock()
    configuration.safe_get = options.get
    monkeypatch.setattr(native_threads, "find_caller", lambda: caller)
    opened: list[str] = []

    def open_origin(url: str, timeout: float, around: opening.Around) -> Origin:
        opened.append(url)
        origin = MemoryOrigin()
        Repository.init(origin)
        return origin

    found = back_end.open_back_end(
        configuration, mock.Mock(), open_origin=open_origin, hosts=mock.Mock()
    )
    assert opened[0].startswith(expected)
    assert found.settings.url == "posix:///srv/home"

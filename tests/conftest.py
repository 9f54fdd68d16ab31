"""Fixtures and skips that all tests share."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.fixtures.hosts import Cloud, cloud_in


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what the tests' own options are."""
    parser.addoption(
        "--extended", action="store_true", help="run the long variants of the one-box tests too"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine cannot run; in CI nothing may be skipped so."""
    if not config.getoption("--extended"):
        for item in items:
            if "extended" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes long: give --extended"))
    if os.environ.get("CI") == "true":
        return
    missing = {}
    if os.geteuid() != 0:
        missing["root"] = "needs root (mounts, network namespaces)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        missing["fuse"] = "needs /dev/fuse"
    for item in items:
        for marker, reason in missing.items():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    """An empty cloud; the test adds hosts and images."""
    with cloud_in(tmp_path) as running:
        yield running

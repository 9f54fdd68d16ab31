"""Fixtures and skips that all tests share."""

import atexit
import logging
import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest

from acstor import warning_filters
from testbed.fixtures.conditions import PATIENCE
from testbed.fixtures.hosts import Cloud, cloud_in
from tests import distribution
from tests.ceph import ceph

__all__ = ["ceph"]

CHANGE_LOG_THREAD = "change-log"
EARLIER_THREADS = pytest.StashKey[frozenset[threading.Thread]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what the tests' own options are."""
    parser.addoption(
        "--extended", action="store_true", help="run what takes long, or wants an idle machine, too"
    )


def pytest_configure() -> None:
    """Set what programs that tests start inherit.

    They can be interrupted, also where the tests run in the background: a shell starts what it
    puts there with SIGINT ignored. And where eventlet is installed, which tooz then imports, they
    start in half of the time without its name resolution; Nova switches that off too.
    """
    # How long an example takes on a busy machine says nothing of what it tests.
    hypothesis.settings.register_profile(
        "no clock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("no clock")
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    warning_filters.use_threads()  # as programs do, whose parts run in the tests' process
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine cannot run; in CI nothing may be skipped so."""
    if hasattr(config, "workerinput"):
        distribution.longest_first(items)
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if timeout is not None:
            item.add_marker(pytest.mark.timeout(timeout.args[0] * PATIENCE), append=False)
    if not config.getoption("--extended"):
        _skip(items, {"extended": "wants time or an idle machine: --extended"})
    if _in_ci():
        return
    missing = {}
    if os.geteuid() != 0:
        missing["root"] = "needs root (mounts, network namespaces)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        missing["fuse"] = "needs /dev/fuse"
    _skip(items, missing)


def _skip(items: list[pytest.Item], reasons: dict[str, str]) -> None:
    for item in items:
        for marker, reason in reasons.items():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return what distributes tests where they are distributed by file."""
    by_file = config.getvalue("dist") == "loadfile"
    return distribution.ByFile(config, log) if by_file else None


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Fail what is skipped in CI, where what tests need has to be installed."""
    report = yield
    is_meant = "extended" in item.keywords or hasattr(report, "wasxfail")
    if report.skipped and _in_ci() and not is_meant:
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the threads that earlier tests, or fixtures of whole files, have left running."""
    item.stash[EARLIER_THREADS] = frozenset(threading.enumerate()) - {threading.main_thread()}


@pytest.fixture
def caplog(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[pytest.LogCaptureFixture]:
    """Have the test see what it logs itself, and nothing that threads of earlier tests do.

    Which tests ran before in the same process is chance, and so is when a thread of theirs, which
    waits for a broker that it will not get, complains the next time.
    """
    earlier = request.node.stash[EARLIER_THREADS]

    def is_of_this_test(record: logging.LogRecord) -> bool:
        return threading.current_thread() not in earlier

    caplog.handler.addFilter(is_of_this_test)
    yield caplog
    caplog.handler.removeFilter(is_of_this_test)


@pytest.fixture(autouse=True)
def _ends_change_logs() -> Iterator[None]:
    """End the threads that store the change logs of origins that a test has not closed.

    Each would try for ever to store what it has in a place that is gone, and complain of that in
    the logs of other tests.
    """
    earlier = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - earlier:
        target = vars(thread).get("_target")  # none any more, if it ends right now
        if thread.name == CHANGE_LOG_THREAD and target is not None:
            keeper = target.__self__
            atexit.unregister(keeper.close)
            keeper._is_ended.set()
            thread.join(30 * PATIENCE)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, Any]:
    """Fail modules that skip themselves in CI."""
    report = yield
    if report.skipped and _in_ci():
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI nothing may be: {report.longrepr}"
    return report


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    """An empty cloud; the test adds hosts and images."""
    with cloud_in(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def _leaves_room(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove a test's directory in CI also where the test failed, which nobody will look at.

    Hosts' stores are preallocated: what some failed tests leave would fail the others.
    """
    path = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if path is not None and _in_ci():
        shutil.rmtree(path, ignore_errors=True)

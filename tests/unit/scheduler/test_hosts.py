"""One table per process, over forks; and what Nova loads by name."""

import pathlib
import re
import subprocess
import sys
import threading
from typing import Any

import nova.conf
import pytest
from nova import monkey_patch
from nova.scheduler import filters, weights
from oslo_config import cfg

from acstor.backoff import BackOff
from acstor.rpc import background_server
from acstor.scheduler.host_table import HostTable
from acstor.scheduler.listener import Listener
from acstor.scheduler.nova import hosts as hosts_module
from acstor.scheduler.nova import options
from acstor.scheduler.nova.filter import DataPlaneFilter
from acstor.scheduler.nova.hosts import Hosts
from acstor.scheduler.nova.weigher import BootCoverageWeigher
from testbed.fixtures.conditions import wait_for
from tests.unit.scheduler.conftest import DeafListener, nova_host, request_spec

PAGE = pathlib.Path(__file__).parents[3] / "doc" / "source" / "admin" / "scheduling.rst"


def test_listener_starts_with_the_first_look_and_only_once(nova_conf: cfg.ConfigOpts) -> None:
    made: list[DeafListener] = []

    def make(table: HostTable) -> DeafListener:
        made.append(DeafListener(table))
        return made[-1]

    hosts = Hosts(nova_conf, make)
    assert not made
    tables: list[HostTable] = []
    threads = [threading.Thread(target=lambda: tables.append(hosts.table())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, tables))) == 1
    assert [each.starts for each in made] == [1]
    assert tables[0].ttl == nova_conf.acstor.state_ttl
    hosts.stop(1)
    assert hosts.table() is not tables[0]


def test_process_that_nova_patched_with_eventlet_starts_at_its_first_look(
    nova_conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[DeafListener] = []

    def make(table: HostTable) -> DeafListener:
        made.append(DeafListener(table))
        return made[-1]

    hosts = Hosts(nova_conf, make)
    monkeypatch.setattr(monkey_patch, "is_patched", lambda: True)
    hosts._begin_in_child()
    assert not made
    hosts.table()
    assert len(made) == 1


FORK = """
import os, sys, threading, time
import nova.conf
from acstor.scheduler.nova import options
from acstor.scheduler.nova.hosts import Hosts

options.register_opts(nova.conf.CONF)

class Listener:
    def __init__(self, table):
        self.table = table
        self.thread = threading.Thread(target=self.run, daemon=True)
    def start(self):
        self.thread.start()
    def run(self):
        self.table.take({"version": 1, "host": "h1", "sequence": os.getpid(), "release": "1",
            "is_up": True, "is_draining": False, "coverage": {}, "images": []})

def heard(hosts):
    deadline = time.monotonic() + 20
    while (state := hosts._table and hosts._table.get("h1", 0.0)) is None:
        assert time.monotonic() < deadline, "nothing heard"
        time.sleep(0.01)
    return state.sequence == os.getpid()

hosts = Hosts(nova.conf.CONF, Listener)
hosts.want()
hosts.want()
if sys.argv[1] == "parent-listens":
    hosts.table()
    assert heard(hosts)
    hosts._starting.acquire()      # as if another thread were just starting it
workers = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        try:
            assert heard(hosts)    # without any decision
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    workers.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in workers] == [0, 0, 0]
assert (hosts._table is None) == (sys.argv[1] == "parent-is-deaf")
"""


@pytest.mark.parametrize("parent", ["parent-is-deaf", "parent-listens"])
def test_each_forked_worker_hears_for_itself(parent: str) -> None:
    """In a process of its own: this one has threads that a fork would lose."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, parent],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


class Transports:
    """Opens none as long as the broker is away."""

    def __init__(self) -> None:
        self.attempts = 0

    def open(self) -> Any:
        self.attempts += 1
        raise ConnectionError("no broker")


def test_listener_without_a_broker_tries_again_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_server, "RECONNECT", BackOff(0.5, 0.5, spread=0.0))
    transports = Transports()
    earlier = set(threading.enumerate())
    listener = Listener(HostTable(35.0), transports.open, "controller")
    listener.start()
    wait_for("three attempts", lambda: transports.attempts >= 3)
    listener.stop(60)
    left = set(threading.enumerate()) - earlier
    assert "acstor-host-states" not in {thread.name for thread in left}
    assert not listener.is_listening.is_set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_decision_while_the_broker_is_away_is_neutral(nova_conf: cfg.ConfigOpts) -> None:
    transports = Transports()
    hosts = Hosts(nova_conf, lambda table: Listener(table, transports.open, "controller"))
    try:
        candidates = [nova_host("h1"), nova_host("h2")]
        spec = request_spec(extra_specs={"acstor:required": "true"})
        assert DataPlaneFilter(hosts).filter_all(candidates, spec) == candidates
        objects = [weights.WeighedHost(host, 0.0) for host in candidates]
        assert BootCoverageWeigher(hosts).weigh_objects(objects, spec) == [0.0, 0.0]
    finally:
        hosts.stop(10)


def test_listener_uses_the_transport_that_is_named(nova_conf: cfg.ConfigOpts) -> None:
    nova_conf.set_override("transport_url", "kombu+memory:////", "acstor")
    hosts = Hosts(nova_conf)
    try:
        hosts.table()
        listener = hosts._listener
        assert listener is not None
        assert listener.is_listening.wait(30)
        assert listener._server_name == nova_conf.host
    finally:
        hosts.stop(30)


def written_on_the_page(option: str) -> list[str]:
    """Return the class names that the page says to write for an option."""
    text = PAGE.read_text()
    lines = re.findall(rf"^\s+{option} = (.*)$", text, re.MULTILINE)
    assert lines, option
    return [name.strip() for line in lines for name in line.split(",")]


@pytest.fixture
def shared_hosts(nova_conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    hosts = Hosts(nova_conf, DeafListener)
    monkeypatch.setattr(hosts_module, "_shared", hosts)
    return hosts


def test_names_on_the_page_are_what_nova_loads(shared_hosts: Hosts) -> None:
    weighers = weights.HostWeightHandler().get_matching_classes(
        written_on_the_page("weight_classes")
    )
    assert BootCoverageWeigher in weighers
    assert len(weighers) > 5  # Nova's own are kept
    instance = next(cls for cls in weighers if cls is BootCoverageWeigher)()
    assert instance._hosts is shared_hosts
    available = filters.HostFilterHandler().get_matching_classes(
        written_on_the_page("available_filters")
    )
    assert DataPlaneFilter in available
    by_name = {cls.__name__: cls for cls in available}
    enabled = written_on_the_page("enabled_filters")
    assert by_name[enabled[-1]] is DataPlaneFilter
    assert set(enabled) <= set(by_name)
    nova_defaults = nova.conf.CONF.filter_scheduler.enabled_filters
    assert enabled[:-1] == list(nova_defaults)


def test_page_names_every_option() -> None:
    text = PAGE.read_text()
    for option in options.OPTIONS:
        assert f"``{option.name}``" in text, option.name


def test_options_may_be_registered_again(nova_conf: cfg.ConfigOpts) -> None:
    options.register_opts(nova_conf)
    options.register_opts(nova_conf)
    assert nova_conf.acstor.boot_coverage_weight_multiplier == 1.0


def test_importing_is_light_and_starts_nothing() -> None:
    """Whatever service of Nova imports it: no eventlet, no broker client, no thread, no fork."""
    program = """
import sys, threading
import nova.conf, nova.monkey_patch
from nova.scheduler import filters, utils, weights
before = set(sys.modules)
import acstor.scheduler.nova.filter, acstor.scheduler.nova.weigher
import nova.conf
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names)), threading.active_count(),
      "acstor" in nova.conf.CONF)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["acstor", "1", "False"]

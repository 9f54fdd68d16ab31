"""The feed as a whole: what the service builds, what it makes of samples, either feed alone."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from acstor import exception
from acstor.conf import loading
from acstor.policy.feeds.base import build_feeds
from acstor.policy.feeds.ceilometer import samples as ceilometer_feed_samples
from acstor.policy.feeds.ceilometer import traffic_file
from acstor.policy.feeds.ceilometer.assembly import WELL_KNOWN_SECRETS
from acstor.policy.feeds.ceilometer.bus import SampleEndpoint, SampleListener
from acstor.policy.feeds.ceilometer.feed import CeilometerSamples
from acstor.policy.feeds.ceilometer.http import SampleReceiver
from acstor.policy.feeds.ceilometer.instances import InstanceRate
from acstor.policy.load_samples import CEILOMETER, DIRECT, LoadSamples, Sample
from tests.unit.policy.ceilometer_cases import BOOT, Clock, host_samples, instance_sample

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
RATES = {
    "h1": [
        InstanceRate("11111111-2222-4333-8444-555555555555", "web", "p1", 2e6, 3e6),
        InstanceRate("22222222-2222-4333-8444-555555555555", "", "", 5.0, 0.0),
    ]
}


class World:
    """Load samples with a feed; samples are passed as they are."""

    def __init__(self, tmp_path: pathlib.Path) -> None:
        self.clock = Clock()
        self.path = tmp_path / "policy" / "instance-traffic.json"
        self.monotonic = Clock(0.0)
        self.load_samples = LoadSamples(10.0, self.monotonic, self.clock)
        self.samples = CeilometerSamples(self.load_samples, str(self.path), self.clock)

    def polled(self, at: float, received: int, sent: int = 0) -> None:
        """Have a reading of h1 come."""
        self.clock.now, self.monotonic.now = BOOT + at, at
        self.samples.take(host_samples(at, [(received, sent)]), lambda sample: sample)  # type: ignore[arg-type, return-value]

    def told(self, at: float, extra_in: float) -> None:
        """Have the agent of h1 tell."""
        self.clock.now, self.monotonic.now = BOOT + at, at
        self.load_samples.note(
            Sample("h1", DIRECT, self.clock.now, extra_in, 0.0, link=125e6, sequence=int(at * 1000))
        )


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def test_ceilometer_alone_is_enough(world: World) -> None:
    for at in (10, 20, 30):
        world.polled(at, at * 1_000_000, at * 2_000_000)
    found = world.load_samples.collect(BOOT + 30)
    assert (found.hosts["h1"].extra_in, found.hosts["h1"].extra_out) == (1e6, 2e6)
    assert (found.hosts["h1"].link, found.missing) == (125e6, {})


def test_direct_feed_alone_is_enough(world: World) -> None:
    world.told(10, 3e6)
    assert world.load_samples.collect(BOOT + 10).hosts["h1"].extra_in == 3e6


def test_direct_feed_has_precedence_while_it_is_fresh(world: World) -> None:
    for at in (10, 20, 30, 40, 50, 60, 70):
        if at <= 30:
            world.told(at - 1, 3e6)
        world.polled(at, at * 1_000_000)
        if at == 30:
            assert world.load_samples.collect(BOOT + at).hosts["h1"].extra_in == 3e6
    found = world.load_samples.collect(BOOT + 70)  # the agent has been silent for 41 s
    assert found.hosts["h1"].extra_in == 1e6


def test_silent_ceilometer_changes_nothing_for_the_direct_feed(world: World) -> None:
    world.polled(10, 0)
    world.polled(20, 10_000_000)
    for at in (100, 110):
        world.told(at, 5e6)
    assert world.load_samples.collect(BOOT + 110).hosts["h1"].extra_in == 5e6


def test_outcomes_are_counted(world: World) -> None:
    world.polled(10, 0)
    world.polled(20, 1)
    world.polled(20, 1)
    world.samples.take([{}], ceilometer_feed_samples.from_publisher)
    world.samples.refuse("unauthenticated")
    assert world.load_samples.counts == {
        (CEILOMETER, outcome): count
        for outcome, count in {
            "part": 2, "first": 1, "taken": 1, "old": 2, "malformed": 1, "unauthenticated": 1,
        }.items()
    }  # fmt: skip


def test_absurd_rate_is_dropped_by_the_load_samples(world: World) -> None:
    world.polled(10, 0)
    world.polled(20, 1_000_000_000_000_000)
    assert world.load_samples.counts[CEILOMETER, "absurd"] == 1
    assert world.load_samples.collect(BOOT + 20).hosts == {}


def test_who_causes_the_traffic_is_written(world: World) -> None:
    for at in (0, 10):
        world.clock.now = BOOT + at
        samples = [instance_sample(at, at * 700.0)]
        world.samples.take(samples, lambda sample: sample)  # type: ignore[arg-type, return-value]
    found = traffic_file.read_beside(str(world.path.parent / "journal.jsonl"))
    assert found == {"h1": [InstanceRate("i1", "name of i1", "project", 700.0, 0.0)]}


def test_directory_that_cannot_be_written_is_no_fault(world: World) -> None:
    world.path.parent.parent.joinpath("policy").write_text("a file")
    for at in (0, 10):
        world.clock.now = BOOT + at
        found = world.samples.take([instance_sample(at, at)], lambda sample: sample)  # type: ignore[arg-type, return-value]
    assert found == {"instance": 1}


def test_instance_traffic_version_1_requires_update() -> None:
    assert traffic_file.VERSION == 1
    golden = (GOLDEN / "instance-traffic-v1.json").read_bytes()
    assert traffic_file.encode(RATES, 5) == golden
    assert traffic_file.parse(golden) == RATES


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", exception.CorruptError), (b"[]", exception.CorruptError),
        (b"{}", exception.CorruptError), (b'{"version":2}', exception.UnsupportedError),
        (b'{"version":1,"hosts":[]}', exception.CorruptError),
        (b'{"version":1,"hosts":{"h":[{"instance":1}]}}', exception.CorruptError),
        (b'{"version":1,"hosts":{"h":[{"instance":"i","name":"","project":"","received":-1,'
         b'"sent":0}]}}', exception.CorruptError),
    ],
)  # fmt: skip
def test_other_content_is_refused(content: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        traffic_file.parse(content)


def test_bus_takes_what_is_signed_and_nothing_else(world: World) -> None:
    payload = json.loads((GOLDEN / "ceilometer-samples-bus-v1.json").read_text())
    world.clock.now = 1795298401.0
    endpoint = SampleEndpoint(world.samples, "secret")

    def notify(found: Any) -> None:
        endpoint.sample({}, "ceilometer.polling", "telemetry.polling", found, {})

    notify(payload)
    assert world.load_samples.counts[CEILOMETER, "first"] == 3
    forged = [{**message, "counter_volume": 1} for message in payload["samples"]]
    notify({"samples": forged})
    assert world.load_samples.counts[CEILOMETER, "unsigned"] == len(forged)
    unusable: tuple[Any, ...] = (None, [], {}, {"samples": None}, {"samples": 5})
    for malformed in unusable:
        notify(malformed)
    assert world.load_samples.counts[CEILOMETER, "malformed"] == 5


def configuration(tmp_path: pathlib.Path, text: str) -> Any:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[DEFAULT]\nhost = c1\nstate_path = {tmp_path}\n{text}")
    return loading.load("test", ["--config-file", str(path)])


def built(tmp_path: pathlib.Path, text: str) -> list[Any]:
    feeds = build_feeds(configuration(tmp_path, text), LoadSamples(10.0))
    for _, feed in feeds:
        if isinstance(feed, SampleReceiver):
            feed.stop(5)
    return [feed for _, feed in feeds]


def test_nothing_of_ceilometer_is_heard_unless_asked_for(tmp_path: pathlib.Path) -> None:
    assert built(tmp_path, "") == []


def test_feeds_by_the_configuration(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("word\n")
    receiver = "[ceilometer]\nlisten_address = 127.0.0.1\nlisten_port = 0\n"
    assert [type(feed) for feed in built(tmp_path, receiver + "password = x\n")] == [SampleReceiver]
    found = built(tmp_path, f"{receiver}password_file = {secret}\n")
    assert [type(feed) for feed in found] == [SampleReceiver]
    both = f"transport_url = fake://\n{receiver}password = x\n"
    found = built(tmp_path, both + "notifications = true\ntelemetry_secret = s\n")
    assert [type(feed) for feed in found[1:]] == [SampleReceiver, SampleListener]


def test_bus_of_ceilometer_alone_needs_no_other_broker(tmp_path: pathlib.Path) -> None:
    text = "[ceilometer]\nnotifications = true\ntelemetry_secret = s\n"
    text += "[oslo_messaging_notifications]\ntransport_url = fake://\n"
    assert [type(feed) for feed in built(tmp_path, text)] == [SampleListener]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen_address = 127.0.0.1\n", "needs a password"),
        ("listen_address = 127.0.0.1\npassword_file = /nonexistent\n", "cannot be read"),
        ("listen_address = 127.0.0.1\npassword_file = /dev/null\n", "needs a password"),
        ("listen_address = 127.0.0.1\npassword = x\ncert_file = /nonexistent\n", "cert_file"),
        ("listen_address = 192.0.2.1\npassword = x\n", "cannot be listened on"),
        ("notifications = true\n", "needs telemetry_secret"),
        ("notifications = true\ntelemetry_secret = s\n", "no message transport"),
        (
            "notifications = true\ntelemetry_secret = change this for valid signing\n",
            "has by default",
        ),
    ],
)
def test_what_is_missing_is_said(tmp_path: pathlib.Path, text: str, words: str) -> None:
    with pytest.raises(exception.ConfigurationError, match=words):
        build_feeds(configuration(tmp_path, "[ceilometer]\n" + text), LoadSamples(10.0))


def test_secret_that_ceilometer_has_by_default_is_known() -> None:
    utils = pytest.importorskip("ceilometer.publisher.utils", reason="Ceilometer is not installed")
    defaults = {option.default for option in utils.OPTS if option.name == "telemetry_secret"}
    assert defaults == WELL_KNOWN_SECRETS


def test_bus_is_heard_by_a_program_that_goes_without_eventlet() -> None:
    """The first import of oslo.messaging may be the listener's."""
    code = """
from acstor import warning_filters
warning_filters.exclude_eventlet()
from acstor.policy.feeds.ceilometer.bus import SampleListener
def none():
    raise SystemExit(7)
class Listener(SampleListener):
    def __init__(self):
        self._samples = self._secret = None
        self._open_transport = none
Listener()._listening()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, capture_output=True
    )
    assert done.returncode == 7, done.stderr.decode()

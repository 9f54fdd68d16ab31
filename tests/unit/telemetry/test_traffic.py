"""Extra traffic: from counters to rates."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2 import NetNS, netns

from acstor.telemetry import traffic
from acstor.telemetry.traffic import (
    WIRE_SHARE,
    InterfaceCounters,
    MovedBytes,
    NetlinkInterfaces,
    TrafficMeter,
)

LINK = 125e6  # 1 Gbit/s


def interface(
    received: int, sent: int = 0, index: int = 2, link: float | None = LINK
) -> InterfaceCounters:
    return InterfaceCounters(f"eth{index}", index, received, sent, link)


def test_first_sample_tells_no_rates_but_the_link() -> None:
    found = TrafficMeter().sample(0.0, [interface(5)], MovedBytes())
    assert (found.extra_in, found.extra_out, found.link_bytes_per_s) == (None, None, LINK)


def test_extra_is_what_the_data_plane_did_not_move() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(0, 0)], MovedBytes(100, 200))
    found = meter.sample(10.0, [interface(10_000, 5_000)], MovedBytes(1_100, 2_200))
    assert found.extra_in == pytest.approx((10_000 - WIRE_SHARE * 1_000) / 10)
    assert found.extra_out == pytest.approx((5_000 - WIRE_SHARE * 2_000) / 10)


def test_extra_is_never_negative() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(0)], MovedBytes())
    assert meter.sample(1.0, [interface(100)], MovedBytes(10_000, 0)).extra_in == 0.0


def test_interfaces_add_up() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(0, index=2), interface(0, index=3)], MovedBytes())
    found = meter.sample(1.0, [interface(10, index=2), interface(20, index=3)], MovedBytes())
    assert (found.extra_in, found.link_bytes_per_s) == (30.0, 2 * LINK)


def test_counter_of_32_bits_wraps() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface((1 << 32) - 100)], MovedBytes())
    assert meter.sample(1.0, [interface(400)], MovedBytes()).extra_in == 500.0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (5 << 32, 10),  # beyond 32 bits: no wrap
        (1_000_000, 10),  # a wrap would be 4 GB within a second on a 1 Gbit/s link
    ],
)
def test_counter_that_was_reset_makes_one_interval_unknown(first: int, second: int) -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(first)], MovedBytes())
    assert meter.sample(1.0, [interface(second)], MovedBytes()).extra_in is None
    assert meter.sample(2.0, [interface(second + 70)], MovedBytes()).extra_in == 70.0


def test_reset_of_one_interface_leaves_the_others() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(9 << 32, index=2), interface(0, index=3)], MovedBytes())
    found = meter.sample(1.0, [interface(5, index=2), interface(20, index=3)], MovedBytes())
    assert found.extra_in == 20.0


def test_interface_that_goes_and_comes_again_counts_from_its_next_sample() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(100)], MovedBytes())
    gone = meter.sample(1.0, [], MovedBytes())
    assert (gone.extra_in, gone.link_bytes_per_s) == (None, None)
    assert meter.sample(2.0, [interface(5_000)], MovedBytes()).extra_in is None
    assert meter.sample(3.0, [interface(5_040)], MovedBytes()).extra_in == 40.0


def test_data_plane_that_was_restarted_has_moved_what_it_counts() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(0)], MovedBytes(1_000_000, 0))
    found = meter.sample(1.0, [interface(1_000)], MovedBytes(400, 0))
    assert found.extra_in == pytest.approx(1_000 - WIRE_SHARE * 400)


def test_data_plane_that_was_away_is_not_charged_for_what_it_moved_before() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(0)], MovedBytes(1_000_000, 0))
    assert meter.sample(1.0, [interface(1_000)], None).extra_in == 1_000.0
    found = meter.sample(2.0, [interface(2_000)], MovedBytes(1_000_100, 0))
    assert found.extra_in == pytest.approx(1_000 - WIRE_SHARE * 100)


def test_samples_at_nearly_the_same_time_keep_the_last_rates() -> None:
    meter = TrafficMeter()
    meter.sample(0.0, [interface(0)], MovedBytes())
    first = meter.sample(10.0, [interface(1_000)], MovedBytes())
    assert meter.sample(10.001, [interface(900_000)], MovedBytes()) == first
    assert meter.sample(20.0, [interface(2_000)], MovedBytes()).extra_in == 100.0


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 100.0),
            st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1 << 63)), max_size=3),
            st.one_of(st.none(), st.floats(0, 1e15)),
        ),
        max_size=12,
    )
)
def test_rates_are_never_negative_whatever_the_counters_do(
    samples: list[tuple[float, list[tuple[int, int]], float | None]],
) -> None:
    meter, now = TrafficMeter(), 0.0
    for seconds, counters, moved in samples:
        now += seconds
        found = meter.sample(
            now,
            [interface(value, value, index) for index, value in counters],
            None if moved is None else MovedBytes(moved, moved),
        )
        for rate in (found.extra_in, found.extra_out):
            assert rate is None or rate >= 0.0


def write_interface(directory: pathlib.Path, name: str, index: int, speed: str | None) -> None:
    (directory / name).mkdir()
    (directory / name / "ifindex").write_text(f"{index}\n")
    if speed is not None:
        (directory / name / "speed").write_text(f"{speed}\n")


@pytest.mark.parametrize(
    ("index", "speed", "expected"),
    [(4, "25000", 25000), (4, "-1", None), (4, None, None), (4, "x", None), (5, "25000", None)],
)
def test_speed_is_what_the_interface_of_that_index_says(
    tmp_path: pathlib.Path, index: int, speed: str | None, expected: int | None
) -> None:
    write_interface(tmp_path, "eth0", 4, speed)
    assert traffic.reported_speed("eth0", index, tmp_path) == expected


def test_interface_of_the_peer_address_counts() -> None:
    found = NetlinkInterfaces([], 1000).read("127.0.0.1:7420")
    assert [each.name for each in found] == ["lo"]
    assert found[0].index == socket.if_nametoindex("lo")
    assert found[0].link_bytes_per_s == LINK


def test_interface_of_a_name_counts_whatever_the_address() -> None:
    found = NetlinkInterfaces(["lo", "no-such-interface"], None).read("192.0.2.200:1")
    assert [each.name for each in found] == ["lo"]


def test_real_counters_grow_by_what_was_sent() -> None:
    interfaces = NetlinkInterfaces(["lo"], 10_000_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = interfaces.read(None)[0]
        with socket.create_connection(server.getsockname()) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"x" * 100_000)
                client.shutdown(socket.SHUT_WR)
                received = 0
                while data := accepted.recv(1 << 20):
                    received += len(data)
        after = interfaces.read(None)[0]
    assert received == 100_000
    assert after.received - before.received >= 100_000
    assert after.sent - before.sent >= 100_000


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_interface_of_the_default_route_counts_where_none_has_the_peer_address() -> None:
    name = f"acstor-traffic-{os.getpid()}"
    namespace = NetNS(name)
    try:
        for link, address in (("uplink0", "198.51.100.2"), ("other0", "203.0.113.2")):
            far_end = f"{link}-far"
            namespace.link("add", ifname=link, kind="veth", peer=far_end)
            index = namespace.link_lookup(ifname=link)[0]
            namespace.addr("add", index=index, address=address, prefixlen=24)
            for end in (index, namespace.link_lookup(ifname=far_end)[0]):
                namespace.link("set", index=end, state="up")
        namespace.route("add", dst="default", gateway="198.51.100.1")
        assert _names_seen_in(name, None) == ["uplink0"]
        assert _names_seen_in(name, "192.0.2.1:7420") == ["uplink0"]
        assert _names_seen_in(name, "203.0.113.2:7420") == ["other0"]
    finally:
        namespace.close()
        netns.remove(name)


def _names_seen_in(namespace: str, peer_address: str | None) -> list[str]:
    """Read in a child that enters the namespace: this process must stay where it is."""
    program = (
        "import sys; from pyroute2 import netns; netns.setns(sys.argv[1]);"
        "from acstor.telemetry.traffic import NetlinkInterfaces;"
        "print(*[i.name for i in NetlinkInterfaces([], None).read(sys.argv[2] or None)])"
    )
    return subprocess.run(
        [sys.executable, "-c", program, namespace, peer_address or ""],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout.split()  # fmt: skip

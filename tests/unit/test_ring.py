"""The ring through its bindings, and its binary form read as its page describes it."""

import dataclasses
import json
import pathlib
import struct
import uuid
import zlib
from typing import Any

import pytest

from acstor.native import (
    DataPlaneError,
    Ring,
    RingHost,
    build_ring,
    recommended_vnode_count,
)
from acstor.oid import oid

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
BINARY = (GOLDEN / "ring-v1.bin").read_bytes()
DESCRIPTION: dict[str, Any] = json.loads((GOLDEN / "ring-v1.json").read_text())


def hosts_of(description: list[dict[str, Any]]) -> list[RingHost]:
    return [RingHost(**host) for host in description]


def equal_hosts(count: int, weight: int = 100) -> list[RingHost]:
    return [
        RingHost(f"compute-{number:03}", f"10.0.{number // 256}.{number % 256}:7800", weight)
        for number in range(count)
    ]


def reweighted(ring: Ring, weights: dict[str, int]) -> list[RingHost]:
    return [
        RingHost(host.name, host.address, weights.get(host.name, host.weight), host.topology)
        for host in ring.hosts
    ]


@dataclasses.dataclass
class PlainRing:
    """Parsed binary form of a ring, without the ring's own code."""

    generation: int
    seed: int
    hosts: list[tuple[str, str, int, str]]
    owners: list[int]


def read_plainly(content: bytes) -> PlainRing:
    """Follow the steps of doc/source/reference/formats/ring.rst."""
    magic, version, host_count, generation, seed, bits, table_length = struct.unpack_from(
        "<8sIIQQII", content
    )
    body_crc, header_crc = struct.unpack_from("<II", content, 56)
    assert (magic, version) == (b"ACSTRING", 1)
    assert header_crc == zlib.crc32(content[:60])
    assert body_crc == zlib.crc32(content[64:])
    assert len(content) == 64 + table_length + 2 * 2**bits
    offset = 64
    hosts = []
    for _ in range(host_count):
        weight, *lengths = struct.unpack_from("<IHHH", content, offset)
        offset += 10
        texts = []
        for length in lengths:
            texts.append(content[offset : offset + length].decode("ascii"))
            offset += length
        hosts.append((texts[0], texts[1], weight, texts[2]))
    assert offset == 64 + table_length
    owners = list(struct.unpack_from(f"<{2**bits}H", content, offset))
    return PlainRing(generation, seed, hosts, owners)


def test_golden_ring_read_as_documented_is_the_decoded_one() -> None:
    plain = read_plainly(BINARY)
    ring = Ring.decode(BINARY)
    assert (ring.generation, ring.seed) == (plain.generation, plain.seed) == (42, 20261121)
    assert [(h.name, h.address, h.weight, h.topology) for h in ring.hosts] == plain.hosts
    assert ring.vnode_owners() == struct.pack(f"<{len(plain.owners)}H", *plain.owners)
    assert [host.vnodes for host in ring.hosts] == [
        plain.owners.count(number) for number in range(len(plain.hosts))
    ]


def test_golden_ring_is_what_the_builder_builds() -> None:
    first = build_ring(
        hosts_of(DESCRIPTION["first"]["hosts"]),
        DESCRIPTION["vnodes"],
        DESCRIPTION["seed"],
        generation=DESCRIPTION["first"]["generation"],
    )
    following = build_ring(hosts_of(DESCRIPTION["next"]["hosts"]), previous=first)
    assert following.encode() == BINARY
    assert following == Ring.decode(bytearray(BINARY))


def test_golden_text_form_is_that_of_the_golden_ring() -> None:
    text = (GOLDEN / "ring-v1.txt").read_text()
    ring = Ring.decode(BINARY)
    assert ring.to_text(full=True) == text
    assert Ring.from_text(text) == ring
    assert text.startswith(ring.to_text())


@pytest.mark.parametrize("lookup", DESCRIPTION["lookups"], ids=lambda lookup: lookup["oid"])
def test_golden_ring_answers_as_computed_elsewhere(lookup: dict[str, Any]) -> None:
    ring = Ring.decode(BINARY)
    chunk = oid(uuid.UUID(lookup["disk"]), lookup["index"])
    names, skipped = ring.candidates(chunk, lookup["from"], lookup["threshold"])
    assert (names, skipped) == (lookup["candidates"], lookup["skipped"])
    assert ring.owner(chunk) == lookup["owner"]


def test_candidates_with_limit_are_the_first_ones() -> None:
    ring = build_ring(equal_hosts(16), 256)
    everyone, _ = ring.candidates(1 << 60)
    assert sorted(everyone) == [host.name for host in ring.hosts]
    assert ring.candidates(1 << 60, limit=3) == (everyone[:3], 0)


def test_distance_follows_the_levels_of_algorithm_2() -> None:
    ring = Ring.decode(BINARY)
    to = ["compute-1", "compute-2", "compute-3", "compute-4", "joining"]
    assert [ring.distance("compute-1", name) for name in to] == [0, 1, 3, 5, 1]


def test_new_weights_move_the_least_possible() -> None:
    before = build_ring(equal_hosts(8), 1024, seed=5)
    after = build_ring(reweighted(before, {"compute-003": 0}), previous=before)
    assert after.moved_share(before) == 128 / 1024
    assert before.least_moved_share(after.hosts) == 128 / 1024
    analysis = after.analyze(before)
    assert analysis["moved_share"] == analysis["least_moved_share"] == 128 / 1024
    json.dumps(analysis)


def test_analysis_without_previous_ring_tells_the_balance_only() -> None:
    analysis: dict[str, Any] = build_ring(equal_hosts(7), 1024).analyze()
    assert analysis["moved_share"] is None
    assert 0 < analysis["deviation_max"] < 0.01
    assert sum(host["vnodes"] for host in analysis["hosts"]) == analysis["vnodes"] == 1024


def test_bounded_build_moves_no_more_than_the_bound() -> None:
    before = build_ring(equal_hosts(4), 1024)
    hosts = reweighted(before, {"compute-000": 0})
    after = build_ring(hosts, previous=before, moved_share_max=0.1)
    assert 0.09 < after.moved_share(before) <= 0.1


def test_vnodes_go_to_the_similar_receiver() -> None:
    before = build_ring(equal_hosts(4), 1024, seed=1)
    weights = {"compute-000": 50, "compute-001": 50, "compute-002": 150, "compute-003": 150}
    similarity = {("compute-000", "compute-003"): 0.8, ("compute-001", "compute-002"): 0.7}
    after = build_ring(reweighted(before, weights), previous=before, similarity=similarity)
    pairs = zip(
        struct.unpack("<1024H", before.vnode_owners()),
        struct.unpack("<1024H", after.vnode_owners()),
        strict=True,
    )
    assert {pair for pair in pairs if pair[0] != pair[1]} == {(0, 3), (1, 2)}


def test_more_vnodes_move_nothing() -> None:
    before = build_ring(equal_hosts(4), 256)
    after = build_ring(before.hosts, 1024, previous=before)
    assert (after.vnode_count, after.moved_share(before)) == (1024, 0.0)


def test_recommended_vnode_count_grows_with_the_hosts() -> None:
    assert [recommended_vnode_count(count) for count in (1, 512, 10_000)] == [
        1 << 16,
        1 << 16,
        1 << 21,
    ]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "corrupt"),
        (b"ACSTRING", "corrupt"),
        (BINARY[:-1], "corrupt"),
        (BINARY[:100] + b"\xff" + BINARY[101:], "corrupt"),
        (BINARY[:8] + b"\x02" + BINARY[9:], "unsupported"),
    ],
)
def test_decode_of_damage_raises_its_kind(content: bytes, kind: str) -> None:
    with pytest.raises(DataPlaneError) as caught:
        Ring.decode(content)
    assert caught.value.kind == kind


def test_malformed_text_is_refused_with_its_line() -> None:
    with pytest.raises(DataPlaneError, match="line 2: unknown keyword") as caught:
        Ring.from_text("acstor-ring 1\ngeneratoin 3\n")
    assert caught.value.kind == "invalid"


def test_older_generation_is_fenced() -> None:
    ring = Ring.decode(BINARY)
    with pytest.raises(DataPlaneError, match="generation 42 is in use") as caught:
        build_ring(ring.hosts, previous=ring, generation=42)
    assert caught.value.kind == "fenced"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "weight 0"),
        (equal_hosts(3, weight=0), "weight 0"),
        ([RingHost("a b", "10.0.0.1:7800", 1)], "letters, digits"),
        ([RingHost("a", "10.0.0.1", 1)], "ip:port"),
        ([RingHost("a", "10.0.0.1:7800", 1)] * 2, "named twice"),
        (
            [RingHost("a", "10.0.0.1:1", 1, "p/r"), RingHost("b", "10.0.0.1:2", 1, "p")],
            "number of segments",
        ),
    ],
)
def test_unacceptable_hosts_are_refused(hosts: list[RingHost], message: str) -> None:
    with pytest.raises(DataPlaneError, match=message) as caught:
        build_ring(hosts)
    assert caught.value.kind == "invalid"


@pytest.mark.parametrize("vnode_count", [0, 8, 1000, 1 << 23])
def test_unacceptable_vnode_count_is_refused(vnode_count: int) -> None:
    with pytest.raises(DataPlaneError, match="v-node count"):
        build_ring(equal_hosts(2), vnode_count)


def test_fewer_vnodes_than_before_are_refused() -> None:
    before = build_ring(equal_hosts(2), 256)
    with pytest.raises(DataPlaneError, match="below the previous ring's"):
        build_ring(before.hosts, 128, previous=before)


def test_unknown_host_has_no_distance() -> None:
    with pytest.raises(DataPlaneError, match="nobody") as caught:
        Ring.decode(BINARY).distance("compute-1", "nobody")
    assert caught.value.kind == "not_found"


def test_weight_out_of_range_is_refused() -> None:
    for weight in (-1, 1 << 32):
        with pytest.raises(OverflowError):
            RingHost("a", "10.0.0.1:7800", weight)

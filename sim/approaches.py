"""The four approaches of ACStor's section 5.2, as rules of how hosts behave.

What ACStor's read path does by default is read from the options of ``acstor.conf``; what has no
option there (limits of ``crates/readpath``) is named here after its constant.

non-cache
   Every read goes to the origin as it is.
local-cache
   Each host keeps what its machines read and asks nobody else. The operator's NFS waits for ever.
static-collaborative
   One owner per chunk for ever, equal shares, no hedge, only owners keep. The mapping knows the
   topology: hosts beyond ``static_threshold`` hops are never asked.
acstor
   Weights and threshold of the policy, previous owners first, hedges, loaded owners passed over;
   a full store gives up what S3-FIFO says, the others the oldest chunk, as the paper's (5.2).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from acstor.conf import agent, dataplane, readpath, store
from sim.exception import ScenarioError
from sim.rules import Rules

NON_CACHE, LOCAL_CACHE, STATIC, ACSTOR = APPROACHES = (
    "non-cache",
    "local-cache",
    "static-collaborative",
    "acstor",
)
DISTANCE_THRESHOLD = "distance_threshold"
"""Option of ``[readpath]`` that is of the ring's line and no rule."""
KEEP = {"never": 0, "second-touch": 1, "always": 2}
EVICTION = {"fifo": 0, "s3fifo": 1}
BOOT_TIME = "boot-time"
EXCHANGE = {"none": 0, "ring": 1, "k-ring": 2, "tree": 3}
ORACLE = {"off": 0, "measures": 1, "chooses": 2}
_NAMED = {"keep": KEEP, "eviction": EVICTION, "exchange": EXCHANGE, "oracle": ORACLE}
"""Rules that a scenario gives by name."""
NEVER = 1e9
"""Seconds; a time that no run reaches."""


def _default(group: Any, name: str) -> Any:
    """Return the default of an option, as an agent without a line for it has it."""
    conf = cfg.ConfigOpts()
    group.register_opts(conf)
    conf([], default_config_files=[])
    return conf[group.GROUP][name]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Rules by which chunks are placed and looked up."""

    placement: str
    span: int
    vnodes: int
    look_interval: float
    settle_delay: float
    state_interval: float


def placement_defaults() -> Placement:
    """Return what agents are configured with by default."""
    return Placement(
        _default(readpath, "placement"),
        _default(readpath, "placement_span_chunks"),
        _default(agent, "ring_vnodes"),
        _default(agent, "interval"),
        _default(agent, "ring_settle_delay"),
        _default(agent, "state_interval"),
    )


def acstor_rules() -> Rules:
    """Return the rules of a host with a default configuration."""
    return Rules(
        chunk_bytes=65536.0,
        wire_share=1.05,
        quantum=0.002,
        in_order=0.0,
        local_latency=1e-4,
        peer_latency=3e-4,
        origin_latency=1e-3,
        connect_timeout=1.0,
        peer_deadline=_default(readpath, "peer_deadline"),
        origin_deadline=_default(readpath, "origin_deadline"),
        read_deadline=_default(readpath, "read_deadline"),
        is_cached=True,
        uses_peers=True,
        keep=KEEP[_default(readpath, "keep")],
        eviction=EVICTION[_default(store, "eviction")],
        copies_max=_default(store, "copies_max"),
        recent_chunks=256,  # RECENT_BYTES, 16 MiB
        candidates_max=2,
        previous_rings=4,
        hedge_enabled=_default(readpath, "hedge_enabled"),
        hedge_min=_default(readpath, "hedge_min"),
        hedge_max=1.0,
        hedge_share=0.05,
        load_aware=_default(readpath, "load_aware"),
        slow_fetch=_default(readpath, "slow_fetch"),
        own_link=True,
        boot_time=_default(dataplane, "prefer") == BOOT_TIME,
        oracle=ORACLE["off"],
        compress=int(_default(readpath, "compress_slow")),
        compress_ratio=0.464,  # of what the trace reads, LZ4
        compress_latency=1.8e-4,
        origin_ratio=1.0,
        sender_answers=0,
        sender_stall=0.005,
        socket_bytes=32768.0,  # TCP_NOTSENT_LOWAT, 16 KiB, and as much in flight
        classes=False,
        origin_reads=0,
        ahead_budget=float(64 << 20),  # a boot's working set
        exchange=EXCHANGE["none"],
        exchange_fan_out=4,
        exchange_unmatched=float(4 << 20),  # 128 chunks of 32 KiB, as Nicolae and Rafique have
        is_elastic=True,
        report_interval=_default(agent, "state_interval"),
        report_jitter=0.1,
        sample_interval=1.0,
    )


def _by_option(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes with those options that are no rule themselves put as the rules they set."""
    found = {name: value for name, value in changes.items() if name != DISTANCE_THRESHOLD}
    if "compress_slow" in found:
        found = {"compress": int(bool(found.pop("compress_slow")))} | found
    return found


_PAPERS_STORE = {"eviction": EVICTION["fifo"], "copies_max": 0}
_CHANGES: dict[str, dict[str, Any]] = {
    NON_CACHE: {"is_cached": False, "uses_peers": False, "hedge_enabled": False,
                "origin_deadline": NEVER, "read_deadline": NEVER, "load_aware": False,
                "compress": 0},
    LOCAL_CACHE: {"uses_peers": False, "hedge_enabled": False, "load_aware": False,
                  "origin_deadline": NEVER, "read_deadline": NEVER, "compress": 0, **_PAPERS_STORE},
    STATIC: {"keep": 0, "hedge_enabled": False, "load_aware": False, "previous_rings": 0,
             "compress": 0, **_PAPERS_STORE},
    ACSTOR: {},
}  # fmt: skip


def rules_of(approach: str, changes: Mapping[str, Any]) -> Rules:
    """Return the rules of an approach with a scenario's changes.

    :param changes: fields of :class:`sim.rules.Rules`, ``keep`` and ``eviction`` by name, or the
        options ``compress_slow`` and ``distance_threshold``.
    :raises ScenarioError: for an unknown approach or field, or a value that is none.
    """
    if approach not in _CHANGES:
        raise ScenarioError(f"approach {approach!r}; known are {', '.join(APPROACHES)}")
    fields = acstor_rules()._asdict() | _CHANGES[approach]
    for name, value in _by_option(changes).items():
        if name not in fields:
            raise ScenarioError(f"readpath.{name} is no setting; known are {', '.join(fields)}")
        known = fields[name]
        if name in _NAMED and isinstance(value, str):
            if value not in _NAMED[name]:
                raise ScenarioError(f"readpath.{name} = {value!r}")
            value = _NAMED[name][value]
        if isinstance(known, bool) != isinstance(value, bool) or not math.isfinite(value):
            raise ScenarioError(f"readpath.{name} = {value!r}")
        # One type per field, lest everything be compiled again for another.
        fields[name] = type(known)(value)
    return Rules(**fields)

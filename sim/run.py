"""One run: make the world that a case describes, let it go, and say what came of it."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from acstor.native import build_ring, recommended_vnode_count
from acstor.policy.settings import PolicySettings
from sim import (
    approaches,
    events,
    kernel,
    mixes,
    programs,
    rings,
    scenario,
    stores,
    topology,
    traffic,
)  # fmt: skip
from sim.approaches import ACSTOR, DISTANCE_THRESHOLD, STATIC
from sim.control import Control, ControlLog, Operator, Timing, declared
from sim.exception import CapacityError, ScenarioError
from sim.programs import ImageLayout, Programs
from sim.rules import Rules
from sim.scenario import Case
from sim.topology import Topology, TreeSpec
from sim.traffic import ExtraFlows
from sim.world import DIRTY, ERROR, SAMPLE_COUNT, Sizes, World, handle, make
from testbed import boot_trace

MEGABYTE = 1e6
_MIB = 1 << 20
Progress = Callable[[float], None]
_LISTEN_STEP = 0.25
"""Seconds after which a report is noted at the latest."""
_LOST_RATE = 1e-2
"""Bytes per second below which a link is that of a host that has left."""


@dataclasses.dataclass
class Run:
    """A run under way."""

    case: Case
    topology: Topology
    rules: Rules
    programs: Programs
    extra: ExtraFlows
    world: World
    handle: World
    control: Control | None
    boot_at: float
    paths: list[np.ndarray] = dataclasses.field(default_factory=list)
    """Of the extra flows."""
    inelastic: list[int] = dataclasses.field(default_factory=list)
    level: float = math.nan
    """By what the extra traffic is multiplied now."""


def prepare(case: Case) -> Run:
    """Make the world of a case.

    :raises ScenarioError: when the case cannot be.
    """
    tables = case.tables
    spec = scenario.tree(tables["network"])
    network = topology.build(spec)
    rules = approaches.rules_of(case.approach, tables["readpath"])
    in_order = float(tables["network"]["in_order"])
    if not 0 <= in_order <= 1 or (in_order > 0 and rules.quantum > 0):
        # Links would stand idle from the end of the first transfer to that of the window.
        raise ScenarioError(
            f"network.in_order = {in_order}: from 0 to 1, and readpath.quantum = 0 with it"
        )
    rules = rules._replace(in_order=in_order)
    work = _programs(case, rules)
    machines = tables["machines"]
    count = spec.host_count * int(machines["per_host"])
    placed = np.arange(count) % spec.host_count
    extra = _extra(case, spec, placed)
    thresholds = case.approach in (STATIC, ACSTOR) and network.depth > 1
    sizes = Sizes(
        hosts=spec.host_count, machines=count, extra=len(extra.rate),
        contents=work.content_count, places=len(work.oids), links=len(network.capacity),
        path=network.path_length_max, flights=max(4096, 24 * count),
        groups=rings.group_count(network, thresholds),
        samples=int(tables["timing"]["end"] / rules.sample_interval) + 2,
        capacity=int(machines["capacity_chunks"]),
    )  # fmt: skip
    world = make(sizes, network, work, extra, case.seed)
    for flow in range(len(extra.rate)):
        world.path_length[flow] = topology.write_path(
            world.switch, world.up, world.down, world.special, int(extra.source[flow]),
            int(extra.target[flow]), world.path[flow],
        )  # fmt: skip
    bound = handle(world)
    run = Run(case, network, rules, work, extra, world, bound, None, tables["timing"]["boot_at"])
    _split_extra(run)
    _place_machines(run, placed)
    if rules.uses_peers:
        _make_rings(run)
    if machines["warm"]:
        _warm(run)
    set_extra(run, _level(case, extra, 0.0))
    _start_clocks(run)
    return run


def _programs(case: Case, rules: Rules) -> Programs:
    machines, static = case.tables["machines"], case.tables["static"]
    defaults = approaches.placement_defaults()
    placement, span = defaults.placement, int(machines["span"]) or defaults.span
    if case.approach == STATIC:
        placement, span = static["placement"] or placement, static["span"] or span
    layout = ImageLayout(
        int(machines["images"]), float(machines["common_share"]), int(rules.chunk_bytes),
        placement, int(span),
    )  # fmt: skip
    if machines["workload"] == "boot":
        traces = [boot_trace.load(programs.TRACES / name) for name in machines["traces"]]
        return programs.boots(traces, layout, float(machines["think_scale"]), case.seed)
    return mixes.programs(
        machines["workload"], layout, 8, int(machines["image_mib"]) * _MIB,
        scenario.rate(machines["disk_rate"]), case.seed,
    )  # fmt: skip


def _extra(case: Case, spec: TreeSpec, placed: np.ndarray) -> ExtraFlows:
    table = case.tables["traffic"]
    mean, cv = float(table["mean"]) * MEGABYTE, float(table["cv"])
    if mean == 0:
        return traffic.none()
    if table["generator"] == "vms":
        return traffic.by_vms(mean, cv, spec.host_rate, placed, spec.host_count, case.seed)
    return traffic.by_hosts(
        mean, cv, spec.host_rate, spec.host_count, int(table["flows_per_host"]), case.seed
    )


def _split_extra(run: Run) -> None:
    """Choose the flows without congestion control: those go past the links' sharing."""
    world, count = run.world, len(run.extra.rate)
    share = float(run.case.tables["traffic"]["udp_share"])
    random = np.random.default_rng(run.case.seed + 5)
    run.paths = [world.path[flow, : world.path_length[flow]].copy() for flow in range(count)]
    # Every n-th of the flows by size, so that the share holds of the bytes as well.
    order = np.argsort(run.extra.rate, kind="stable")
    offset = float(random.random())
    picks = np.floor((np.arange(count) + 1 + offset) * share)
    chosen = order[np.diff(picks, prepend=np.floor(offset * share)) > 0]
    run.inelastic = [int(flow) for flow in chosen]
    world.path_length[run.inelastic] = 0


def _place_machines(run: Run, placed: np.ndarray) -> None:
    world, count = run.world, len(run.programs.first_op) - 1
    random = np.random.default_rng(run.case.seed + 1)
    chosen = random.integers(0, count, len(placed))
    world.machine_host[:] = placed
    world.machine_program[:] = chosen
    world.machine_op[:] = run.programs.first_op[chosen]
    starts = run.boot_at + random.uniform(0, run.case.tables["machines"]["stagger"], len(placed))
    world.machine_started[:] = starts
    for machine, start in enumerate(starts):
        first = float(start + run.programs.think[world.machine_op[machine]])
        events.push(run.handle, first, events.OP, machine, 0)


def _make_rings(run: Run) -> None:
    defaults = approaches.placement_defaults()
    hosts = rings.ring_hosts(run.topology)
    vnodes = max(defaults.vnodes, recommended_vnode_count(len(hosts)))
    ring = build_ring(hosts, vnodes, run.case.seed)
    installer = rings.Rings(run.world, run.topology, run.programs)
    threshold = _plain_threshold(run.case)
    run.world.host_slot[:] = installer.install(ring, threshold, set())
    if run.case.approach == ACSTOR:
        timing = Timing(
            run.rules.report_interval,
            float(run.case.tables["timing"]["look_interval"]) or defaults.look_interval,
            float(run.case.tables["timing"]["publication_delay"]),
            bool(run.case.tables["timing"]["announced"]),
        )  # fmt: skip
        settings = PolicySettings(**run.case.tables["policy"])
        run.control = Control(
            run.world, run.handle, run.topology, installer, ring, settings, timing, run.case.seed,
            _operator(run, threshold),
        )  # fmt: skip


def _operator(run: Run, threshold: int | None) -> Operator:
    declared_as = str(run.case.tables["network"]["declared"])
    speeds = {"uplinks": "uplink", "capacities": "capacity"}
    if declared_as not in speeds:
        raise ScenarioError(f"network.declared = {declared_as!r}: {' or '.join(speeds)}")
    return Operator(declared(run.topology, speeds[declared_as]), threshold)


def _plain_threshold(case: Case) -> int | None:
    """Return what each data plane is configured with, for as long as no decision says another."""
    static, own = case.tables["static"], case.tables["readpath"]
    hops = static["threshold"] if case.approach == STATIC else own.get(DISTANCE_THRESHOLD, 0)
    return int(hops) or None


def _warm(run: Run) -> None:
    """Fill the stores as long use leaves them: the pool with all, a local cache with a part."""
    world, contents = run.world, run.programs.content_count
    random = np.random.default_rng(run.case.seed + 2)
    capacity = int(run.case.tables["machines"]["capacity_chunks"]) or contents
    if not run.rules.is_cached:
        return
    if run.rules.uses_peers:
        owners = world.line[world.host_slot[0], world.group[world.host_slot[0], 0], :, 0]
        owned = owners[run.programs.placement]
        for host in range(len(world.is_alive)):
            _fill(run, host, np.flatnonzero(owned == host)[:capacity])
    else:
        for host in range(len(world.is_alive)):
            _fill(run, host, random.permutation(contents)[:capacity])


def _fill(run: Run, host: int, chosen: np.ndarray) -> None:
    for content in chosen:
        stores.recover(run.handle, host, int(content))


def _level(case: Case, extra: ExtraFlows, now: float) -> float:
    """Return by what the extra traffic is multiplied at a time."""
    table = case.tables["traffic"]
    if table["pattern"] == "steady":
        return 1.0
    if table["pattern"] == "step":
        return 1.0 if now >= table["change_at"] else 0.0
    return 1.0 if (now - table["change_at"]) % table["period"] < table["period"] / 2 else 0.0


def set_extra(run: Run, factor: float) -> None:
    """Let the extra traffic want so many times what it wanted at first."""
    world, run.level = run.world, factor
    count = len(run.extra.rate)
    world.cap[:count] = run.extra.rate * factor
    # What is not elastic goes first; what is left, a small share at least, is for all others.
    used = np.zeros(len(world.capacity))
    for flow in run.inelastic:
        path = run.paths[flow]
        used[path] += world.cap[flow]
    for flow in run.inelastic:
        path = run.paths[flow]
        over = (used[path] / np.maximum(world.nominal[path], 1e-9)).max() if len(path) else 1.0
        world.cap[flow] /= max(1.0, over)
    world.extra_order[:] = np.argsort(world.cap[:count], kind="stable")
    is_up = world.capacity > _LOST_RATE
    least = float(run.case.tables["traffic"]["left_share"]) * world.nominal
    world.capacity[is_up] = np.maximum(world.nominal - used, least)[is_up]
    world.cursor[DIRTY] = 1


def _start_clocks(run: Run) -> None:
    random = np.random.default_rng(run.case.seed + 3)
    phases = random.uniform(0, run.rules.report_interval, len(run.world.is_alive))
    if run.control is not None:
        for host, phase in enumerate(phases):
            events.push(run.handle, float(phase), events.REPORT, host, 0)
    if run.world.is_bounded and run.rules.uses_peers and run.rules.copies_max:
        for host, start in enumerate(random.uniform(0, stores.WALK_INTERVAL, len(phases))):
            events.push(run.handle, float(start), events.WALK, host, 0)
    events.push(run.handle, 0.0, events.SAMPLE, 0, 0)


def _stops(run: Run) -> list[float]:
    """Return the times at which something from outside happens."""
    table, end = run.case.tables["traffic"], float(run.case.tables["timing"]["end"])
    stops = {end}
    if run.control is not None:
        stops |= {_LISTEN_STEP * number for number in range(1, int(end / _LISTEN_STEP) + 1)}
    if table["pattern"] == "step":
        stops.add(float(table["change_at"]))
    elif table["pattern"] == "square":
        half = table["period"] / 2
        stops |= {table["change_at"] + half * number for number in range(int(end / half) + 1)}
    faults = run.case.tables["faults"]
    if faults["leave_share"]:
        stops |= {faults["leave_at"], faults["leave_at"] + _GONE_AFTER}
    return sorted(stop for stop in stops if 0 <= stop <= end)


_GONE_AFTER = 15.0
"""Seconds after which the membership drops a host that is dead, and the ring has settled."""


def finish(run: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Run to the end and return the results, plain JSON types.

    :raises CapacityError: when a table is full.
    """
    started = time.perf_counter()
    faults = run.case.tables["faults"]
    random = np.random.default_rng(run.case.seed + 4)
    hosts = len(run.world.is_alive)
    if faults["liars"] and run.control is not None:
        liars = random.permutation(hosts)[: round(faults["liars"] * hosts)]
        run.control.lies = {int(host): float(faults["lie"]) for host in liars}
    leaving = random.permutation(hosts)[: round(faults["leave_share"] * hosts)]
    ends_early = not run.programs.is_loop and len(run.world.machine_host) > 0
    for stop in _stops(run):
        kernel.advance(run.handle, run.rules, stop)
        if run.world.cursor[ERROR]:
            raise CapacityError(f"{run.case.scenario}: table {run.world.cursor[ERROR]} is full")
        _at(run, stop, leaving)
        if progress is not None:
            progress(stop)
        settled = stop >= run.boot_at + float(run.case.tables["timing"]["settle"])
        if ends_early and settled and kernel.unfinished(run.handle) == 0:
            break
    from sim.results import summarise

    return summarise(run, time.perf_counter() - started)


def _at(run: Run, now: float, leaving: np.ndarray) -> None:
    faults = run.case.tables["faults"]
    level = _level(run.case, run.extra, now)
    if level != run.level:
        set_extra(run, level)
    if faults["leave_share"] and now == faults["leave_at"]:
        for host in leaving:
            kernel.leave(run.handle, int(host))
        gone = np.isin(run.extra.source, leaving) | np.isin(run.extra.target, leaving)
        run.extra.rate[gone] = 0.0
        set_extra(run, _level(run.case, run.extra, now))
    if run.control is None:
        return
    if faults["leave_share"] and now == faults["leave_at"] + _GONE_AFTER:
        run.control.members_changed(now)
    before = time.process_time()
    run.control.step(now)
    run.control.log.decide_seconds += time.process_time() - before


def run_case(case: Case, progress: Progress | None = None) -> dict[str, Any]:
    """Return the results of a case."""
    return finish(prepare(case), progress)


__all__ = ["ControlLog", "Run", "SAMPLE_COUNT", "finish", "prepare", "run_case", "set_extra"]

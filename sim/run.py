"""One run: make the world that a case describes, let it go, and say what came of it."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from acstor.native import build_ring, recommended_vnode_count
from acstor.policy.settings import PolicySettings
from sim import approaches, mixes, programs, rings, scenario, topology, traffic
from sim._simcore import Simulation
from sim.approaches import ACSTOR, DISTANCE_THRESHOLD, STATIC
from sim.control import Control, ControlLog, Operator, Timing, declared
from sim.exception import ScenarioError
from sim.programs import ImageLayout, ProfileSpec, Programs
from sim.rules import Rules
from sim.scenario import Case
from sim.topology import Topology, TreeSpec
from sim.traffic import ExtraFlows, Locality
from testbed import boot_trace

MEGABYTE = 1e6
_MIB = 1 << 20
Progress = Callable[[float], None]
MEASURED = "measured"
"""Value of ``traffic.left_share``: by the number of chunks that move over a link."""
_LISTEN_STEP = 0.25
"""Seconds after which a report is noted at the latest."""
_WALK_INTERVAL = 20.0
"""Seconds over which the hosts' first walks of their stores are spread."""


@dataclasses.dataclass
class Run:
    """A run under way."""

    case: Case
    topology: Topology
    rules: Rules
    programs: Programs
    extra: ExtraFlows
    simulation: Simulation
    boot_at: float
    control: Control | None = None
    level: float = math.nan
    """By what the extra traffic is multiplied now."""
    placed: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    """By machine: its host."""
    think: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """By machine: seconds for which it waits for nothing."""
    chosen: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    """By machine: its program."""
    starts: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    """By machine: when it is started."""

    @property
    def host_count(self) -> int:
        """Return the number of hosts, those that have left included."""
        return self.topology.spec.host_count


def prepare(case: Case) -> Run:
    """Make the data centre of a case.

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
    if rules.sender_answers > 0 and rules.quantum > 0:
        raise ScenarioError(
            f"readpath.sender_answers = {rules.sender_answers}: readpath.quantum = 0 with it"
        )
    rules = rules._replace(in_order=in_order)
    work = _programs(case, rules)
    placed = np.arange(spec.host_count * int(tables["machines"]["per_host"])) % spec.host_count
    extra = _extra(case, spec, placed)
    simulation = Simulation(
        rules=rules._asdict(),
        tree=network.tree,
        extra=extra,
        inelastic=_inelastic(case, extra),
        left_share=_left_share(tables["traffic"]["left_share"]),
        programs=work,
        capacity_chunks=int(tables["machines"]["capacity_chunks"]),
        samples_max=int(tables["timing"]["end"] / rules.sample_interval) + 2,
        seed=case.seed,
    )
    run = Run(case, network, rules, work, extra, simulation, tables["timing"]["boot_at"])
    _place_machines(run, placed)
    if rules.uses_peers:
        _make_rings(run)
    if tables["machines"]["warm"]:
        _warm(run)
    set_extra(run, _level(case, 0.0))
    _start_clocks(run)
    return run


def _left_share(given: float | str) -> float | None:
    """Return a constant share; None: as measured, by the chunks that move over a link."""
    if given == MEASURED:
        return None
    if isinstance(given, str) or not 0 <= given <= 1:
        raise ScenarioError(f"traffic.left_share = {given!r}: from 0 to 1, or {MEASURED!r}")
    return float(given)


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
        return programs.boots(
            traces, layout, float(machines["think_scale"]), case.seed,
            int(machines["first_read"]), _profiles(case),
        )  # fmt: skip
    return mixes.programs(
        machines["workload"], layout, 8, int(machines["image_mib"]) * _MIB,
        scenario.rate(machines["disk_rate"]), case.seed,
    )  # fmt: skip


def _profiles(case: Case) -> ProfileSpec:
    """Return what read-ahead knows of the images; the other approaches have none."""
    table = case.tables["readahead"]
    spec = ProfileSpec(str(table["profile"]), float(table["right"]))
    return spec if case.approach == ACSTOR else programs.NO_PROFILES


def _extra(case: Case, spec: TreeSpec, placed: np.ndarray) -> ExtraFlows:
    table = case.tables["traffic"]
    mean, cv = float(table["mean"]) * MEGABYTE, float(table["cv"])
    if mean == 0:
        return traffic.none()
    if table["generator"] == "vms":
        locality = Locality(float(table["rack_share"]), spec.fanout[-1])
        return traffic.by_vms(
            mean, cv, spec.host_rate, placed, spec.host_count, case.seed, locality
        )
    return traffic.by_hosts(
        mean, cv, spec.host_rate, spec.host_count, int(table["flows_per_host"]), case.seed,
        float(table["asymmetry"]),
    )  # fmt: skip


def _inelastic(case: Case, extra: ExtraFlows) -> list[int]:
    """Return the flows without congestion control: those go past the links' sharing."""
    share = float(case.tables["traffic"]["udp_share"])
    random = np.random.default_rng(case.seed + 5)
    # Every n-th of the flows by size, so that the share holds of the bytes as well.
    order = np.argsort(extra.rate, kind="stable")
    offset = float(random.random())
    picks = np.floor((np.arange(len(order)) + 1 + offset) * share)
    chosen = order[np.diff(picks, prepend=np.floor(offset * share)) > 0]
    return [int(flow) for flow in chosen]


def _place_machines(run: Run, placed: np.ndarray) -> None:
    random = np.random.default_rng(run.case.seed + 1)
    chosen = random.integers(0, len(run.programs.first_op) - 1, len(placed))
    starts = run.boot_at + random.uniform(0, run.case.tables["machines"]["stagger"], len(placed))
    run.simulation.place_machines(placed.tolist(), chosen.tolist(), starts.tolist())
    run.placed = placed
    run.think = run.programs.think_sums[chosen]
    run.chosen, run.starts = chosen, starts


def _make_rings(run: Run) -> None:
    defaults = approaches.placement_defaults()
    hosts = rings.ring_hosts(run.topology)
    vnodes = max(defaults.vnodes, recommended_vnode_count(len(hosts)))
    ring = build_ring(hosts, vnodes, run.case.seed)
    threshold = _plain_threshold(run.case)
    run.simulation.use_ring(rings.install(run.simulation, run.topology, ring, threshold))
    if run.case.approach == ACSTOR:
        timing = Timing(
            run.rules.report_interval,
            float(run.case.tables["timing"]["look_interval"]) or defaults.look_interval,
            float(run.case.tables["timing"]["publication_delay"]),
            bool(run.case.tables["timing"]["announced"]),
        )  # fmt: skip
        settings = PolicySettings(**run.case.tables["policy"])
        run.control = Control(
            run.simulation, run.topology, ring, settings, timing, run.case.seed,
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
    contents = run.programs.content_count
    random = np.random.default_rng(run.case.seed + 2)
    capacity = int(run.case.tables["machines"]["capacity_chunks"]) or contents
    if not run.rules.is_cached:
        return
    if run.rules.uses_peers:
        owned: list[list[int]] = [[] for _ in range(run.host_count)]
        for content in range(contents):
            owned[run.simulation.line(0, content)[0]].append(content)
    else:
        owned = [random.permutation(contents).tolist() for _ in range(run.host_count)]
    for host, chosen in enumerate(owned):
        run.simulation.recover(host, chosen[:capacity])


def _level(case: Case, now: float) -> float:
    """Return by what the extra traffic is multiplied at a time."""
    table = case.tables["traffic"]
    if table["pattern"] == "steady":
        return 1.0
    if table["pattern"] == "step":
        return 1.0 if now >= table["change_at"] else 0.0
    return 1.0 if (now - table["change_at"]) % table["period"] < table["period"] / 2 else 0.0


def set_extra(run: Run, factor: float) -> None:
    """Let the extra traffic want so many times what it wanted at first."""
    run.level = factor
    run.simulation.set_extra(factor)


def _start_clocks(run: Run) -> None:
    random = np.random.default_rng(run.case.seed + 3)
    phases = random.uniform(0, run.rules.report_interval, run.host_count)
    if run.control is not None:
        run.simulation.start_reports(phases.tolist())
    if run.rules.uses_peers and run.rules.copies_max:
        starts = random.uniform(0, _WALK_INTERVAL, run.host_count)
        run.simulation.start_walks(starts.tolist())
    run.simulation.start_samples()


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
    """Run to the end and return the results, plain JSON types."""
    started = time.perf_counter()
    faults = run.case.tables["faults"]
    random = np.random.default_rng(run.case.seed + 4)
    hosts, simulation = run.host_count, run.simulation
    if faults["liars"] and run.control is not None:
        liars = random.permutation(hosts)[: round(faults["liars"] * hosts)]
        run.control.lies = {int(host): float(faults["lie"]) for host in liars}
    leaving = random.permutation(hosts)[: round(faults["leave_share"] * hosts)]
    ends_early = not run.programs.is_loop and simulation.unfinished > 0
    for stop in _stops(run):
        simulation.advance(stop)
        _at(run, stop, leaving)
        if progress is not None:
            progress(stop)
        settled = stop >= run.boot_at + float(run.case.tables["timing"]["settle"])
        if ends_early and settled and simulation.unfinished == 0:
            break
    from sim.results import summarise

    return summarise(run, time.perf_counter() - started)


def _at(run: Run, now: float, leaving: np.ndarray) -> None:
    faults = run.case.tables["faults"]
    level = _level(run.case, now)
    if level != run.level:
        set_extra(run, level)
    if faults["leave_share"] and now == faults["leave_at"]:
        for host in leaving:
            run.simulation.leave(int(host))
        gone = np.isin(run.extra.source, leaving) | np.isin(run.extra.target, leaving)
        run.extra.rate[gone] = 0.0
        set_extra(run, _level(run.case, now))
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


__all__ = ["ControlLog", "Run", "finish", "prepare", "run_case", "set_extra"]

"""One collection, seen with what is remembered of those before."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from acstor.policy.collection import Collection, HostLoad
from acstor.policy.forecasts.base import Forecast
from acstor.policy.memory import HostMemory, Memory
from acstor.policy.settings import PolicySettings

CALM_SHARE = 0.75
"""Part of the limit of overload below which a host is not busy."""
_DIRECTIONS = ("in", "out")


@dataclass(frozen=True)
class Observation:
    """What one collection shows."""

    loads: Mapping[str, HostLoad]
    """As they are, or as they are forecast."""
    overloaded: frozenset[str]
    memory: Memory
    """With this collection in it."""

    def averaged(self, count: int) -> dict[str, HostLoad]:
        """Return the loads with the mean extra traffic of each host's last ``count`` samples."""
        return {
            name: _averaged(load, self.memory.hosts[name].history[-count:])
            for name, load in self.loads.items()
        }


def is_overloaded(load: HostLoad, settings: PolicySettings) -> bool:
    """Return whether a link is busy in a direction, and not by the data plane alone."""
    return any(
        load.share(direction) >= settings.overload
        and load.extra_traffic(direction) >= settings.overload_extra_min * load.link
        for direction in _DIRECTIONS
    )


def observe(
    collection: Collection, memory: Memory, settings: PolicySettings, forecast: Forecast
) -> Observation:
    """Return what a collection shows.

    A host of which there is no new sample is neither more nor less overloaded than before. What
    is remembered of hosts that are not known any more is forgotten.
    """
    kept = max(settings.successive, settings.calm_after)
    loads: dict[str, HostLoad] = {}
    hosts: dict[str, HostMemory] = {}
    overloaded = set()
    is_calm = True
    for name, load in collection.hosts.items():
        former = memory.hosts.get(name, HostMemory())
        is_new = load.age == 0 or not former.history
        series_in, series_out = former.series_in, former.series_out
        if is_new or series_in is None or series_out is None:
            series_in = forecast.advance(former.series_in, load.extra_in)
            series_out = forecast.advance(former.series_out, load.extra_out)
        seen = dataclasses.replace(
            load, extra_in=forecast.ahead(series_in), extra_out=forecast.ahead(series_out)
        )
        loads[name] = seen
        is_busy = is_overloaded(seen, settings)
        if is_busy:
            overloaded.add(name)
        is_calm = is_calm and seen.utilisation < CALM_SHARE * settings.overload
        streak, history = former.streak, former.history
        if is_new:
            streak = streak + 1 if is_busy else 0
            history = (*history, (load.extra_in, load.extra_out))[-kept:]
        hosts[name] = HostMemory(streak, history, series_in, series_out)
    for name in collection.missing:
        if name in memory.hosts:
            hosts[name] = dataclasses.replace(memory.hosts[name], streak=0)
    return Observation(
        loads,
        frozenset(overloaded),
        dataclasses.replace(memory, hosts=hosts, calm=memory.calm + 1 if is_calm else 0),
    )


def forgetful(memory: Memory) -> Memory:
    """Return the memory after a collection that shows too little: no row goes on over a gap."""
    hosts = {name: dataclasses.replace(host, streak=0) for name, host in memory.hosts.items()}
    return dataclasses.replace(memory, hosts=hosts, calm=0, candidate_streak=0)


def _averaged(load: HostLoad, history: tuple[tuple[float, float], ...]) -> HostLoad:
    if not history:
        return load
    return dataclasses.replace(
        load,
        extra_in=math.fsum(pair[0] for pair in history) / len(history),
        extra_out=math.fsum(pair[1] for pair in history) / len(history),
    )

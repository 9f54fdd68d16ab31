"""One collection, seen with what is remembered of those before."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from acstor.policy.collection import Collection, HostLoad
from acstor.policy.forecasts.base import Forecast
from acstor.policy.load_history import HostHistory, LoadHistory
from acstor.policy.settings import PolicySettings

BUSY_SHARE = 0.75
"""Part of the limit of overload below which a host is not busy."""
JUMP_SHARE = 0.15
"""Part of the link by which a sample must differ from later ones to be left out of their mean."""
_DIRECTIONS = ("in", "out")


@dataclass(frozen=True)
class Observation:
    """Findings of one collection."""

    loads: Mapping[str, HostLoad]
    """As they are, or as they are forecast."""
    overloaded: frozenset[str]
    busy: frozenset[str]
    """Overloaded, or close to it."""
    history: LoadHistory
    """With this collection in it."""

    _means: dict[int, dict[str, HostLoad]] = field(default_factory=dict)

    def averaged(self, least: int) -> dict[str, HostLoad]:
        """Return the loads with the mean extra traffic of each host's last samples.

        As many as there are without a jump, at least ``least``: so that noise has little effect,
        and a change of the load has its full one at once. Of an overloaded host at least those
        that show it: what it carried before is over.
        """
        if least not in self._means:
            self._means[least] = {
                name: _averaged(load, self.history.hosts[name].history, self._least(name, least))
                for name, load in self.loads.items()
            }
        return self._means[least]

    def _least(self, name: str, least: int) -> int:
        streak = self.history.hosts[name].streak
        return min(least, streak) if name in self.overloaded and streak else least


def is_overloaded(load: HostLoad, settings: PolicySettings) -> bool:
    """Return whether a link is busy in a direction, and not by the data plane alone."""
    return any(
        load.share(direction) >= settings.overload
        and load.extra_traffic(direction) >= settings.overload_extra_min * load.link
        for direction in _DIRECTIONS
    )


def observe(
    collection: Collection, history: LoadHistory, settings: PolicySettings, forecast: Forecast
) -> Observation:
    """Return what a collection shows.

    A host of which there is no new sample is neither more nor less overloaded than before. What
    is remembered of hosts that are not known any more is forgotten.
    """
    kept = max(settings.successive, settings.quiet_period)
    loads: dict[str, HostLoad] = {}
    hosts: dict[str, HostHistory] = {}
    overloaded, busy = set(), set()
    for name, load in collection.hosts.items():
        former = history.hosts.get(name, HostHistory())
        is_new = load.age == 0 or not former.history
        series_in, series_out = former.series_in, former.series_out
        if is_new or series_in is None or series_out is None:
            series_in = forecast.advance(former.series_in, load.extra_in)
            series_out = forecast.advance(former.series_out, load.extra_out)
        seen = _with_extra(load, forecast.ahead(series_in), forecast.ahead(series_out))
        loads[name] = seen
        if seen.utilisation >= BUSY_SHARE * settings.overload:
            busy.add(name)
            if is_overloaded(seen, settings):
                overloaded.add(name)
        streak, extra = former.streak, former.history
        if is_new:
            streak = streak + 1 if name in overloaded else 0
            if load.streak is not None and settings.forecast == "none":
                streak = load.streak if name in overloaded else 0
            extra = (*extra, (load.extra_in, load.extra_out))[-kept:]
        hosts[name] = HostHistory(streak, extra, series_in, series_out)
    for name in collection.missing:
        if name in history.hosts:
            hosts[name] = dataclasses.replace(history.hosts[name], streak=0)
    return Observation(
        loads,
        frozenset(overloaded),
        frozenset(busy),
        dataclasses.replace(
            history, hosts=hosts, quiet_streak=0 if busy else history.quiet_streak + 1
        ),
    )


def forgetful(history: LoadHistory) -> LoadHistory:
    """Return the history after a collection that shows too little: no row goes on over a gap."""
    hosts = {name: dataclasses.replace(host, streak=0) for name, host in history.hosts.items()}
    return dataclasses.replace(history, hosts=hosts, quiet_streak=0, candidate_streak=0)


def _averaged(load: HostLoad, extra: tuple[tuple[float, float], ...], least: int) -> HostLoad:
    if not extra:
        return load
    return _with_extra(
        load,
        _steady_mean([pair[0] for pair in extra], least, JUMP_SHARE * load.link),
        _steady_mean([pair[1] for pair in extra], least, JUMP_SHARE * load.link),
    )


def _steady_mean(values: list[float], least: int, jump: float) -> float:
    """Return the mean of the last values: of ``least``, and of those before within ``jump``."""
    first = max(0, len(values) - least)
    recent = math.fsum(values[first:]) / (len(values) - first)
    while first > 0 and abs(values[first - 1] - recent) <= jump:
        first -= 1
    return math.fsum(values[first:]) / (len(values) - first)


def _with_extra(load: HostLoad, extra_in: float, extra_out: float) -> HostLoad:
    if extra_in == load.extra_in and extra_out == load.extra_out:
        return load
    return HostLoad(
        extra_in, extra_out, load.moved_in, load.moved_out, load.link, load.load, load.age
    )

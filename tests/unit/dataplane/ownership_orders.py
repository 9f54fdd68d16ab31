"""Orders in which hosts fight for a volume, each of them following from a seed."""

import dataclasses
import pathlib
import random
from collections.abc import Callable, Mapping

from tests.unit.dataplane.ownership_model import (
    BURSTS,
    HOSTS,
    Effect,
    ModelHost,
    OwnershipModel,
)

_TICKS = (30, 60, 120)
"""Numbers of things that happen in one run."""
_ARMED_MAX = 40
"""Calls of a host until its next fault, where faults come one by one."""


@dataclasses.dataclass(frozen=True)
class Theme:
    """Emphasis of a run: weights of its steps, relative to one another."""

    doings: Mapping[str, int]
    """Doings of a host that serves the volume, each with its weight."""
    administration: Mapping[str, int]
    kill: float = 0.0
    """Share of what happens that is a kill between two calls."""
    collect: float = 0.0
    """Share that is a collection."""


THEMES = {
    "migrations": Theme(
        {"reconcile": 6, "push": 1}, {"begin_migration": 6, "detach": 1}, kill=0.02, collect=0.02
    ),
    "reattachments": Theme(
        {"close": 5, "reconcile": 1, "push": 1}, {"detach": 3, "begin_migration": 1}, kill=0.04
    ),
    "folds": Theme({"fold": 5, "push": 2, "reconcile": 1}, {"detach": 1}, kill=0.06, collect=0.1),
    "losses": Theme(
        {"push": 4, "reconcile": 1, "close": 1, "open": 1},
        {"declare_lost": 3, "detach": 1},
        kill=0.02,
        collect=0.1,
    ),
    "anything": Theme(
        {"push": 2, "fold": 1, "reconcile": 2, "close": 1},
        {"declare_lost": 1, "begin_migration": 2, "detach": 2},
        kill=0.03,
        collect=0.05,
    ),
}


class Order:
    """Sequence of the steps of one run.

    :param choice: decides it.
    :param theme: of :data:`THEMES`; None: it is chosen.
    """

    def __init__(
        self, directory: pathlib.Path, choice: random.Random, theme: str | None = None
    ) -> None:
        self._choice = choice
        self.model = OwnershipModel(directory, choice)
        self._theme = THEMES[theme or choice.choice(sorted(THEMES))]
        self._names = HOSTS[: choice.choice((2, 2, 3))]
        self._weights = [choice.choice((1, 1, 6)) for _ in self._names]
        """Some hosts are slow: they make few calls while the others make many."""
        self._is_noisy = choice.random() < 0.3
        self._has_outages = choice.random() < 0.5
        if self._is_noisy:
            rate = choice.choice((0.02, 0.05, 0.15))
            for host in self.model.hosts.values():
                host.faults.rates = {effect: choice.choice((0.0, rate)) for effect in Effect}

    def run(self) -> None:
        """Run it to its end; raises HistoryError."""
        model = self.model
        model.begin(model.hosts[HOSTS[0]], "open")
        for _ in range(self._choice.choice(_TICKS)):
            self._happen()
        model.check_end()

    def _happen(self) -> None:
        model, choice = self.model, self._choice
        host = model.hosts[choice.choices(self._names, self._weights)[0]]
        if not self._is_noisy and not host.faults.is_armed:
            host.faults.arm(choice.randint(1, _ARMED_MAX), choice.choice(list(Effect)))
        dice = choice.random()
        if dice < self._theme.kill:
            host.kill()
        elif dice < self._theme.kill + self._theme.collect:
            model.collect()
        elif self._has_outages and choice.random() < (0.3 if host.faults.is_away else 0.02):
            host.faults.is_away = not host.faults.is_away
        elif choice.random() < 0.05:
            model.deliver()
        elif choice.random() < 0.15:
            model.write(host)
        elif choice.random() < 0.1:
            self._administer()
        elif host.actor is not None:
            model.go_on(host, choice.choice(BURSTS))
        else:
            model.begin(host, self._next(host))

    def _next(self, host: ModelHost) -> str:
        """Return what a host would do now; sometimes anything."""
        record = self.model.record
        if self._choice.random() < 0.1:
            return self._choice.choice(("open", "close", "push", "fold", "reconcile", "fetch"))
        if host.is_standby:
            return self._choice.choice(("fetch", "fetch", "reconcile", "close"))
        if host.device is None and host.name in record.hosts:
            return "follow" if record.is_standby_allowed and record.owner else "open"
        if host.is_served:
            return self._chosen(self._theme.doings)
        return self._choice.choice(("reconcile", "open", "close"))

    def _administer(self) -> None:
        model, name = self.model, self._choice.choice(self._names)
        acts: dict[str, Callable[[], None]] = {
            "declare_lost": model.declare_lost,
            "detach": model.detach,
            "begin_migration": lambda: model.begin_migration(name),
        }
        acts[self._chosen(self._theme.administration)]()
        model.attach(name)

    def _chosen(self, weights: Mapping[str, int]) -> str:
        return self._choice.choices(list(weights), list(weights.values()))[0]

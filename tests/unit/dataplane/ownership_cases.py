"""Every call of every change of an owner, stopped or failing there, while others take the volume.

Where :mod:`.ownership_orders` draws lots, these cases are all there are of their kind: one host
changes something, one of its calls hangs, fails, loses its answer, kills it or takes effect late;
meanwhile nobody, one other host or two in turn get the volume; then the first goes on in one of
some ways.
"""

import dataclasses
import itertools
import pathlib
import random
import shutil
from collections.abc import Iterator

from acstor import exception
from tests.unit.dataplane.ownership_model import CALLS_MAX, Effect, ModelHost, OwnershipModel
from tests.unit.dataplane.write_history import HistoryError
from tests.unit.repository import interleaving

CHANGES = ("open", "close", "push", "fold", "hand over")
MEANWHILE = ("nothing", "taken", "taken twice", "wanted")
AFTERWARDS = ("open", "reconcile", "away", "push")
LATE_MOMENTS = ("before", "between", "after")
"""Moments at which a call that hung takes effect: before the first host goes on, in the middle of
that, or later."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One case; the call of the change is not part of it."""

    change: str
    effect: Effect | None
    """None: the host is stopped before the call."""
    meanwhile: str
    afterwards: str
    late_moment: str = "after"


def all_cases() -> Iterator[Case]:
    """Yield every case."""
    for change, effect, meanwhile, afterwards in itertools.product(
        CHANGES, (None, *Effect), MEANWHILE, AFTERWARDS
    ):
        for moment in LATE_MOMENTS if effect is Effect.LATE else ("after",):
            yield Case(change, effect, meanwhile, afterwards, moment)


def run_all_calls(directory: pathlib.Path, case: Case) -> int:
    """Run a case for each call of its change; return their number.

    :raises HistoryError: when a guest was told something that is not true.
    """
    for call in range(1, CALLS_MAX):
        folder = directory / str(call)
        try:
            with interleaving.repeatable(0):
                was_reached = run_case(folder, case, call)
        except (AssertionError, exception.AcstorError) as error:
            raise HistoryError(f"{case}, call {call}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not was_reached:
            return call
    raise HistoryError(f"{case}: it makes calls for ever")


def run_case(directory: pathlib.Path, case: Case, call: int) -> bool:
    """Run one case; return whether the change had such a call.

    :param call: which call of the change it is about, from 1 on.
    :raises HistoryError: when a guest was told something that is not true.
    """
    model = OwnershipModel(directory, random.Random(0))
    first = model.hosts["h1"]
    _do(model, first, "open")
    _write(model, first)
    if case.change == "open":
        _do(model, first, "close")
        _do(model, first, "open")  # beside a released epoch
        model.write(first)
        first.kill()
    if case.change == "hand over":
        _begin_migration(model)
    if case.effect is not None:
        first.faults.arm(call, case.effect)
    model.begin(first, {"hand over": "reconcile"}.get(case.change, case.change))
    if first.actor is not None:
        model.go_on(first, CALLS_MAX if case.effect is not None else call - 1)
    was_reached = not first.faults.is_armed if case.effect else first.actor is not None
    _meanwhile(model, case.meanwhile)
    if first.actor is not None:
        model.go_on(first, CALLS_MAX)
    if case.late_moment == "before":
        model.deliver()
    _afterwards(model, first, case)
    model.check_end()
    return was_reached


def _do(model: OwnershipModel, host: ModelHost, doing: str) -> None:
    model.begin(host, doing)
    if host.actor is not None:
        model.go_on(host, CALLS_MAX)


def _write(model: OwnershipModel, host: ModelHost) -> None:
    """Write what is stored in the origin, and something that is not."""
    model.write(host)
    _do(model, host, "push")
    model.write(host)


def _begin_migration(model: OwnershipModel) -> None:
    model.begin_migration("h2")
    _do(model, model.hosts["h2"], "follow")
    _do(model, model.hosts["h2"], "fetch")


def _meanwhile(model: OwnershipModel, what: str) -> None:
    second, third = model.hosts["h2"], model.hosts["h3"]
    if what == "wanted":
        _do(model, second, "fetch" if second.is_standby else "open")
        _write(model, second)
    if what in {"taken", "taken twice"}:
        _take(model, second)
    if what == "taken twice":
        _do(model, second, "close")
        _take(model, third)
    for _ in range(3):
        model.collect()


def _take(model: OwnershipModel, host: ModelHost) -> None:
    """Have another host get the volume, whoever has it."""
    model.detach()
    if model.record.hosts not in {(), (host.name,)}:
        model.declare_lost()
    model.attach(host.name)
    _do(model, host, "open")
    _write(model, host)


def _afterwards(model: OwnershipModel, host: ModelHost, case: Case) -> None:
    if case.afterwards == "away":
        host.faults.is_away = True
        _do(model, host, "reconcile")
        model.write(host)
        host.faults.is_away = False
    else:
        _do(model, host, case.afterwards)
    if case.late_moment == "between":
        model.deliver()
    _write(model, host)
    for _ in range(3):
        model.collect()

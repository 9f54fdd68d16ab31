"""Hosts that fight for a volume beside an origin that fails, loses answers, hangs and is late.

Each run ends with another host that opens the volume and has to find what guests were told they had
written; what that is follows from the history of their writes alone. Broken variants of the code
show that the runs can fail. A sample in the gate, all of it with ``--extended``.
"""

import logging
import os
import pathlib
import random
import shutil
from collections.abc import Iterator

import pytest

from acstor.dataplane.volumes.handover import fetching
from tests.unit.dataplane.ownership_cases import CHANGES, Case, all_cases, run_all_calls
from tests.unit.dataplane.ownership_model import Effect
from tests.unit.dataplane.ownership_orders import THEMES, Order
from tests.unit.dataplane.ownership_variants import (
    BROKEN_VARIANTS,
    RELEASED_IS_NOT_SEALED,
    SUFFERERS,
)
from tests.unit.dataplane.write_history import HistoryError, WriteHistory
from tests.unit.repository import interleaving

SAMPLE = 70
"""Cases of the gate, each with every call of its change."""
RUNS = int(os.environ.get("ACSTOR_OWNERSHIP_RUNS", "20"))
"""Orders of each theme in the gate."""
RUNS_EXTENDED = 100 * RUNS

_CASES = list(all_cases())
_SAMPLE = random.Random(12).sample(_CASES, SAMPLE)


@pytest.fixture(autouse=True)
def quick_and_quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fetching, "_PATIENCE", 0.0)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_orders(directory: pathlib.Path, theme: str, seeds: range) -> None:
    for seed in seeds:
        folder = directory / str(seed)
        try:
            with interleaving.repeatable(seed):
                Order(folder, random.Random(seed), theme).run()
        except AssertionError as error:
            raise HistoryError(f"theme {theme}, seed {seed}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run_cases(directory: pathlib.Path, cases: list[Case]) -> None:
    assert cases
    for case in cases:
        assert run_all_calls(directory, case) > 1, f"{case} makes no call"


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_becomes_of_a_call_what_was_acknowledged_is_read(
    path: pathlib.Path, change: str
) -> None:
    run_cases(path, [case for case in _SAMPLE if case.change == change])


@pytest.mark.extended
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_becomes_of_any_call_what_was_acknowledged_is_read(
    path: pathlib.Path, change: str
) -> None:
    run_cases(path, [case for case in _CASES if case.change == change])


@pytest.mark.parametrize("theme", THEMES)
def test_in_whatever_order_what_was_acknowledged_is_read(path: pathlib.Path, theme: str) -> None:
    run_orders(path, theme, range(RUNS))


@pytest.mark.extended
@pytest.mark.parametrize("theme", THEMES)
def test_in_many_more_orders_what_was_acknowledged_is_read(path: pathlib.Path, theme: str) -> None:
    run_orders(path, theme, range(RUNS, RUNS_EXTENDED))


@pytest.mark.parametrize("variant", BROKEN_VARIANTS)
def test_broken_variants_are_found_out(path: pathlib.Path, variant: str) -> None:
    case = SUFFERERS[variant]
    run_all_calls(path, case)
    with BROKEN_VARIANTS[variant], pytest.raises(HistoryError):
        run_all_calls(path, case)


def test_seal_of_a_released_epoch_is_a_defence_of_its_own(path: pathlib.Path) -> None:
    """An owner of a release before: it goes on after a release that takes effect later."""
    case = Case("close", Effect.LATE, "nothing", "open")
    with BROKEN_VARIANTS["a release that hangs may take effect after all"]:
        with pytest.raises(HistoryError, match="is_stored=False"):
            run_all_calls(path, case)
        with RELEASED_IS_NOT_SEALED, pytest.raises(HistoryError, match="is_stored=True"):
            run_all_calls(path, case)


# The history itself


@pytest.fixture
def history() -> WriteHistory:
    """Two hosts; the epoch of the first is lost, and only its first write is in the origin."""
    history = WriteHistory()
    for number, (host, epoch) in enumerate([("h1", 1), ("h1", 1), ("h1", 1), ("h2", 2)]):
        history.add(f"w{number}", host, epoch)
    history.writes[0].is_stored = True
    history.lost_epochs.add(1)
    return history


@pytest.mark.parametrize("words", ["w0 w3", "w0 w1 w3", "w0 w1 w2 w3", "other w0 w3"])
def test_what_only_a_lost_host_had_may_be_gone(history: WriteHistory, words: str) -> None:
    history.check(words.split(), "the volume")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("w3", "lacks"),
        ("w1 w2 w3", "lacks"),
        ("w0 w1 w2", "lacks"),
        ("w0 w2 w3", "hole"),
        ("w3 w0", "order"),
        ("w0 w2 w1 w3", "order"),
    ],
)
def test_what_contradicts_the_history_is_refused(
    history: WriteHistory, words: str, problem: str
) -> None:
    with pytest.raises(HistoryError, match=problem):
        history.check(words.split(), "the volume")

"""Small scenarios for tests: few hosts, short programs."""

import copy
from typing import Any

from sim import scenario
from sim.scenario import Case

SMALL: dict[str, dict[str, Any]] = {
    "network": {"fanout": [4]},
    "machines": {"per_host": 1, "images": 1, "think_scale": 0.0, "stagger": 0.1},
    "traffic": {"mean": 0.0, "cv": 0.0},
    "timing": {"boot_at": 0.0},
}


def case(approach: str, seed: int = 1, **changes: Any) -> Case:
    """Return a case of four hosts; changes are ``table__key=value``."""
    tables = copy.deepcopy(scenario.DEFAULTS)
    for table, fields in SMALL.items():
        tables[table] |= fields
    for path, value in changes.items():
        table, _, key = path.partition("__")
        tables[table][key] = value
    return Case("test", approach, approach, seed, {}, tables)

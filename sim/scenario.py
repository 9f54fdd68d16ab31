"""Scenarios: files that say what is simulated. The format is documented in the simulator's page."""

import copy
import itertools
import json
import pathlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from acstor.exception import InvalidError
from sim.exception import ScenarioError
from sim.programs import FIRST_READ
from sim.topology import TreeSpec
from testbed.rates import LinkRate

DIRECTORY = pathlib.Path(__file__).resolve().parent / "scenarios"
VERSION = 1

DEFAULTS: dict[str, dict[str, Any]] = {
    "network": {
        "fanout": [32], "rates": ["1gbit"], "root": "", "origin": "1gbit", "storage": "",
        "in_order": 0.0, "declared": "uplinks", "cpu": 0.0, "cores": 2,
    },
    "machines": {
        "per_host": 5, "images": 5, "common_share": 0.0, "workload": "boot",
        "traces": ["debian-12-boot.jsonl"], "think_scale": 0.1, "stagger": 1.0,
        "first_read": FIRST_READ, "span": 0, "image_mib": 256, "disk_rate": "1gbit",
        "capacity_chunks": 0, "warm": False,
    },
    "readahead": {"profile": "none", "right": 1.0},
    "traffic": {
        "generator": "hosts", "udp_share": 1.0, "mean": 70.0, "cv": 1.2, "flows_per_host": 5,
        "asymmetry": 0.0, "rack_share": 0.0, "left_share": 0.17, "pattern": "steady",
        "period": 60.0, "change_at": 0.0, "redraw": False,
    },
    "timing": {
        "boot_at": 60.0, "end": 600.0, "settle": 0.0, "publication_delay": 0.2,
        "announced": True, "look_interval": 0.0,
    },
    "policy": {},
    "readpath": {},
    "faults": {"leave_share": 0.0, "leave_at": 0.0, "liars": 0.0, "lie": 0.0},
    "static": {"threshold": 0, "placement": "", "span": 0},
}  # fmt: skip
_FREE = ("policy", "readpath")
_GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """One run."""

    scenario: str
    variant: str
    approach: str
    seed: int
    axes: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Scenario:
    """Content of a scenario's file."""

    name: str
    title: str
    about: str
    seeds: int
    tables: Mapping[str, Mapping[str, Any]]
    axes: Mapping[str, list[Any]]
    variants: Mapping[str, Mapping[str, Any]]
    metrics: tuple[str, ...]
    plot: Mapping[str, Any]

    def cases(self) -> Iterator[Case]:
        """Yield every run: axes by variants by seeds."""
        names = list(self.axes)
        for values in itertools.product(*self.axes.values()):
            point = dict(zip(names, values, strict=True))
            for variant, changes in self.variants.items():
                tables = copy.deepcopy({name: dict(table) for name, table in self.tables.items()})
                for path, value in (*point.items(), *changes.items()):
                    if path != "approach":
                        _set(tables, path, value)
                approach = str(changes.get("approach", variant))
                for seed in range(1, self.seeds + 1):
                    yield Case(self.name, variant, approach, seed, point, tables)

    def only(
        self, axes: Mapping[str, list[Any]], variants: list[str] | None, seeds: int | None
    ) -> "Scenario":
        """Return the scenario with fewer or other runs."""
        for name in variants or []:
            if name not in self.variants:
                raise ScenarioError(f"{self.name} has no variant {name!r}")
        kept = {name: self.variants[name] for name in variants or self.variants}
        return Scenario(
            self.name, self.title, self.about, seeds or self.seeds, self.tables,
            {**self.axes, **axes}, kept, self.metrics, self.plot,
        )  # fmt: skip


def names() -> list[str]:
    """Return the scenarios that come with the simulator."""
    return sorted(path.stem for path in DIRECTORY.glob("*.toml"))


def load(name: str) -> Scenario:
    """Read a scenario by name or path.

    :raises ScenarioError: when there is none or it is malformed; names what.
    """
    path = pathlib.Path(name) if name.endswith(".toml") else DIRECTORY / f"{name}.toml"
    try:
        fields = tomllib.loads(path.read_text())
    except OSError as error:
        raise ScenarioError(f"scenario {name}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    return parse(path.stem, fields)


def parse(name: str, fields: Mapping[str, Any]) -> Scenario:
    """Return the scenario that a file's fields describe.

    :raises ScenarioError: when something is unknown or malformed.
    """
    known = {"version", "title", "about", "seeds", "axes", "variants", "metrics", "plot"}
    unknown = fields.keys() - known - DEFAULTS.keys()
    if unknown or fields.get("version") != VERSION:
        raise ScenarioError(f"{name}: unknown {sorted(unknown)} or version other than {VERSION}")
    tables = copy.deepcopy(DEFAULTS)
    for table in DEFAULTS:
        for key, value in fields.get(table, {}).items():
            _set(tables, f"{table}.{key}", value)
    axes = fields.get("axes", {})
    variants = fields.get("variants") or {"acstor": {"approach": "acstor"}}
    probe = copy.deepcopy(tables)
    for changes in ({path: values[0] for path, values in axes.items()}, *variants.values()):
        for path, value in changes.items():
            if path != "approach":
                _set(probe, path, value)
    seeds = fields.get("seeds", 1)
    if not isinstance(seeds, int) or not 1 <= seeds <= 10_000:
        raise ScenarioError(f"{name}: seeds = {seeds!r}")
    return Scenario(
        name=name,
        title=str(fields.get("title", name)),
        about=str(fields.get("about", "")),
        seeds=seeds,
        tables=tables,
        axes=axes,
        variants=variants,
        metrics=tuple(fields.get("metrics", ("boot_mean_s",))),
        plot=fields.get("plot", {}),
    )


def _set(tables: Mapping[str, dict[str, Any]], path: str, value: Any) -> None:
    table, _, key = path.partition(".")
    if table not in tables or (table not in _FREE and key not in DEFAULTS[table]):
        raise ScenarioError(f"{path} is no setting of a scenario")
    tables[table][key] = value


def rate(text: str) -> float:
    """Return bytes per second of a rate as tc(8) writes it.

    :raises ScenarioError: when it is none.
    """
    try:
        return LinkRate.parse(text) / 8
    except ValueError as error:
        raise ScenarioError(str(error)) from error


def tree(network: Mapping[str, Any]) -> TreeSpec:
    """Return the tree that a scenario declares."""
    optional = {
        name: rate(network[key])
        for name, key in (("root_rate", "root"), ("storage_rate", "storage"))
        if network[key]
    }
    cpu = float(network["cpu"])
    if not cpu >= 0:
        raise ScenarioError(
            f"network.cpu = {network['cpu']!r}: processor seconds per GiB, 0 or more"
        )
    if cpu > 0:
        optional["processor_rate"] = int(network["cores"]) * _GIB / cpu
    return TreeSpec(
        tuple(network["fanout"]),
        tuple(rate(text) for text in network["rates"]),
        origin_rate=rate(network["origin"]),
        **optional,
    )


def parse_value(text: str) -> Any:
    """Return a value of the command line: JSON where it is, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


__all__ = ["Case", "InvalidError", "Scenario", "load", "names", "parse", "rate", "tree"]

"""Running all cases of a scenario, one after the other or on several processors."""

import concurrent.futures
import json
import multiprocessing
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sim.exception import ScenarioError
from sim.run import run_case
from sim.scenario import Scenario

FORMAT = "acstor-sim-results"
FORMAT_VERSION = 1
Result = dict[str, Any]
CEILED = "boot_mean_s"
"""Metric that think time bounds."""


def run_all(
    scenario: Scenario, jobs: int, on_result: Callable[[int, int, Result], None]
) -> list[Result]:
    """Run every case.

    :param jobs: processes; 1: this one.
    :param on_result: called with how many cases are done, how many there are, and the newest.
    """
    cases = list(scenario.cases())
    results: list[Result] = []
    if jobs <= 1:
        for case in cases:
            results.append(run_case(case))
            on_result(len(results), len(cases), results[-1])
        return results
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        for result in pool.map(run_case, cases):
            results.append(result)
            on_result(len(results), len(cases), result)
    return results


def document(scenario: Scenario, results: Sequence[Result]) -> dict[str, Any]:
    """Return the JSON document of a scenario's results."""
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "scenario": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "seeds": scenario.seeds,
        "metrics": list(scenario.metrics),
        "plot": dict(scenario.plot),
        "tables": {name: dict(table) for name, table in scenario.tables.items()},
        "results": list(results),
    }


def read_document(path: pathlib.Path) -> dict[str, Any]:
    """Read what ``run --json`` wrote.

    :raises ScenarioError: when it is something else.
    """
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ScenarioError(f"{path} holds no results of the simulator")
    if content.get("version") != FORMAT_VERSION:
        raise ScenarioError(f"{path}: version {content.get('version')}, not {FORMAT_VERSION}")
    return content


def medians(results: Iterable[Result], metrics: Sequence[str]) -> list[Result]:
    """Return one row per point and variant: medians over the seeds, lowest and highest."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        key = json.dumps([result["axes"], result["variant"]], sort_keys=True)
        groups.setdefault(key, []).append(result)
    rows = []
    for group in groups.values():
        row: Result = {"axes": group[0]["axes"], "variant": group[0]["variant"]}
        row["runs"] = len(group)
        for metric in metrics:
            values = [one[metric] for one in group if one.get(metric) is not None]
            row[metric] = statistics.median(values) if values else None
            row[f"{metric}_low"] = min(values) if values else None
            row[f"{metric}_high"] = max(values) if values else None
        rows.append(row)
    return rows


def ratios(results: Iterable[Result], metric: str, base: str) -> list[Result]:
    """Return per point and variant the base's metric over the variant's, by seed and its median.

    Both of a pair have the same seed, so the same traffic and the same machines. Of mean boot times
    also the ``ceiling``, at which a boot would take its think time alone, and the ``share`` of it
    that is reached; None for other metrics.
    """
    points: dict[str, dict[str, Result]] = {}
    for result in results:
        key = json.dumps([result["axes"], result["seed"]], sort_keys=True)
        points.setdefault(key, {})[result["variant"]] = result
    found: dict[str, tuple[Mapping[str, Any], str, list[float], list[float]]] = {}
    for group in points.values():
        if base not in group or not group[base].get(metric):
            continue
        for variant, result in group.items():
            if variant == base or not result.get(metric):
                continue
            key = json.dumps([result["axes"], variant], sort_keys=True)
            entry = found.setdefault(key, (result["axes"], variant, [], []))
            entry[2].append(group[base][metric] / result[metric])
            if metric == CEILED and result.get("think_mean_s"):
                entry[3].append(group[base][metric] / result["think_mean_s"])
    return [
        {"axes": axes, "variant": variant, "base": base, "metric": metric, "runs": len(values),
         "ratio": statistics.median(values), "low": min(values), "high": max(values),
         **_beside_ceiling(values, ceilings)}
        for axes, variant, values, ceilings in found.values()
    ]  # fmt: skip


def _beside_ceiling(values: Sequence[float], ceilings: Sequence[float]) -> dict[str, float | None]:
    if len(ceilings) < len(values):
        return {"ceiling": None, "share": None}
    shares = [value / most for value, most in zip(values, ceilings, strict=True)]
    return {"ceiling": statistics.median(ceilings), "share": statistics.median(shares)}

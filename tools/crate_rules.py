"""Hold the crates of others to deny.toml: licences, sources, doubles and features.

The part of ``cargo deny check`` that needs no network and no program but cargo; cargo-deny itself,
which knows the advisories too, runs with ``tools/test audit``. Prints one line per finding and
exits with 1 when there is any.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
MANIFESTS = ("Cargo.toml", "fuzz/Cargo.toml")
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
TARGET = "x86_64-unknown-linux-gnu"


def metadata(manifest: str) -> dict[str, Any]:
    """Return what cargo knows of the crates behind a manifest, on Linux."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    output = subprocess.run(
        [*command, "--filter-platform", TARGET, "--manifest-path", str(ROOT / manifest)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: dict[str, Any] = json.loads(output)
    return found


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Return whether an SPDX expression can be met by allowed licences."""
    text = expression.replace("/", " OR ")
    words = re.findall(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?", text)
    operators = {"OR": "or", "AND": "and", "(": "(", ")": ")"}
    terms = [operators.get(word, str(word in allowed)) for word in words]
    return bool(eval(" ".join(terms), {"__builtins__": {}}))  # noqa: S307 - of these words alone


def check_licences(crates: list[dict[str, Any]], rules: dict[str, Any]) -> Iterator[str]:
    """Yield crates whose licence is none of those that are allowed."""
    allowed = set(rules["licenses"]["allow"])
    exceptions = {one["crate"]: set(one["allow"]) for one in rules["licenses"]["exceptions"]}
    for crate in crates:
        licence = crate["license"] or "none"
        if not is_allowed(licence, allowed | exceptions.get(crate["name"], set())):
            yield f"{crate['name']} {crate['version']}: licence {licence}"


def check_sources(crates: list[dict[str, Any]]) -> Iterator[str]:
    """Yield crates that do not come from crates.io."""
    for crate in crates:
        if crate["source"] != REGISTRY:
            yield f"{crate['name']} {crate['version']}: from {crate['source']}"


def check_doubles(crates: list[dict[str, Any]], rules: dict[str, Any]) -> Iterator[str]:
    """Yield crates that are there in several versions of which one only is named."""
    skipped = {one["crate"] for one in rules["bans"]["skip"]}
    versions: dict[str, list[str]] = {}
    for crate in crates:
        name, version = crate["name"], crate["version"]
        major, minor = version.split(".")[:2]
        names = {f"{name}@{major}", f"{name}@{major}.{minor}", f"{name}@{version}"}
        if not names & skipped:
            versions.setdefault(name, []).append(version)
    for name, several in versions.items():
        if len(several) > 1:
            yield f"{name}: {', '.join(sorted(several))}"


def without_tests(found: dict[str, Any]) -> set[str]:
    """Return the ids of the crates that are there without what tests need."""
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    reached, waiting = set(), list(found["workspace_members"])
    while waiting:
        one = waiting.pop()
        if one in reached:
            continue
        reached.add(one)
        for dependency in nodes[one]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return reached


def check_features(found: dict[str, Any], rules: dict[str, Any]) -> Iterator[str]:
    """Yield features that must not be compiled in."""
    names = {crate["id"]: crate["name"] for crate in found["packages"]}
    denied = {one["crate"]: set(one["deny"]) for one in rules["bans"]["features"]}
    for node in found["resolve"]["nodes"]:
        for feature in sorted(denied.get(names[node["id"]], set()) & set(node["features"])):
            yield f"{names[node['id']]}: feature {feature}"


def main() -> int:
    """Run every check."""
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    findings = []
    for manifest in MANIFESTS:
        found = metadata(manifest)
        used = {node["id"] for node in found["resolve"]["nodes"]}
        crates = [one for one in found["packages"] if one["source"] and one["id"] in used]
        shipped = without_tests(found)
        for finding in (
            *check_licences(crates, rules),
            *check_sources(crates),
            *check_doubles([one for one in crates if one["id"] in shipped], rules),
            *check_features(found, rules),
        ):
            findings.append(f"{manifest}: {finding}")
    for finding in findings:
        print(finding)  # noqa: T201 - this is the program's output
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

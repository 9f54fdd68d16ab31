"""Add ACStor's sources and sinks to Ceilometer's polling.yaml or pipeline.yaml.

What the file has under the same names is replaced, so it may be done again.
"""

import argparse
import os
import pathlib
import sys
import urllib.parse
from typing import Any

import yaml

PASSWORD = "ACSTOR_TELEMETRY_PASSWORD"  # noqa: S105 - the variable that it is in
USER = "ceilometer"
QUERY = "batch=True&timeout=2&max_retries=1"


def merged(there: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return a definition with our entries in the place of those of the same names."""
    result = dict(there)
    for kind, entries in ours.items():
        names = {entry["name"] for entry in entries}
        kept = [entry for entry in result.get(kind) or [] if entry.get("name") not in names]
        result[kind] = [*kept, *entries]
    return result


def publish_to(definition: dict[str, Any], policies: list[str], password: str) -> None:
    """Have all sinks of a definition publish to policy services, and to nobody else."""
    user = f"{USER}:{urllib.parse.quote(password, safe='')}"
    for sink in definition.get("sinks", []):
        sink["publishers"] = [f"http://{user}@{each}/v1/samples?{QUERY}" for each in policies]


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ours", type=pathlib.Path, help="what ACStor ships")
    parser.add_argument("target", type=pathlib.Path, help="file of Ceilometer, changed")
    parser.add_argument(
        "--policy", action="append", default=[], metavar="HOST:PORT",
        help=f"policy service that samples are posted to, with the password in ${PASSWORD}",
    )  # fmt: skip
    arguments = parser.parse_args()
    ours = yaml.safe_load(arguments.ours.read_text())
    if ours.get("sinks"):
        password = os.environ.get(PASSWORD, "")
        if not (arguments.policy and password):
            sys.exit(f"{arguments.ours} has sinks: give --policy, and the password in ${PASSWORD}")
        publish_to(ours, arguments.policy, password)
    there = yaml.safe_load(arguments.target.read_text()) or {}
    arguments.target.write_text(yaml.safe_dump(merged(there, ours), sort_keys=False))


if __name__ == "__main__":
    main()

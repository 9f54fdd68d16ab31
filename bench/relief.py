"""Time to rebalance: collection intervals from a host's overload to its relief by every ring.

Three hosts as they run, each with an interface of its own; RabbitMQ, a policy service. Again and
again one host begins to send at 95 % of its link, at a random moment between its reports; measured
is the time until the data planes of all hosts use a ring in which its share is less than half.
Agents look only every other interval of theirs here, so that what brings relief sooner are
announcements.

Needs root, FUSE and rabbitmq-server. One command: ``python -m bench.relief [--runs N] [--json F]``.
"""

import pathlib
import random
import sys
import tempfile
import time

from bench import comparison
from bench.comparison import Row, Series
from testbed.fixtures.broker import broker_in
from testbed.fixtures.policy_deployment import PolicyDeployment, policy_deployment

INTERVAL = 2.0
"""Seconds. By default it is 10, of which what messages and a ring take is a smaller part."""
HOSTS = 3
BUSY = 0.95
IDLE_SHARE = 0.05
TARGET = 3.0


def measured(deployment: PolicyDeployment, runs: int, chance: random.Random) -> list[float]:
    """Return the intervals of so many reliefs, one host after the other."""
    found = []
    for run in range(runs):
        host = run % HOSTS
        time.sleep(chance.uniform(0, INTERVAL))
        seconds = deployment.relief(host, BUSY)
        found.append(seconds / INTERVAL)
        print(f"relief {run + 1}: {seconds / INTERVAL:.2f} intervals", file=sys.stderr)
        deployment.links[host].share = IDLE_SHARE
        deployment.wait_shares(host, 0.75 / HOSTS, 1.25 / HOSTS)
    return found


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of overload")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="acstor-relief-") as directory,
        broker_in(pathlib.Path(directory) / "broker") as broker,
        policy_deployment(
            pathlib.Path(directory), broker, INTERVAL, quiet_period=3, cool_down=1
        ) as deployment,
    ):
        deployment.start(HOSTS)
        for link in deployment.links:
            link.share = IDLE_SHARE
        found = measured(deployment, options.runs, random.Random(options.seed))
    row = Row(
        "overload to relief, the longest counts",
        Series("ACStor", "intervals", found),
        target=f"{TARGET:g}",
        is_met=lambda _: max(found) <= TARGET,
    )
    comparison.report("Relief of an overloaded host", [row], options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

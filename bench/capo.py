"""Capo's table: requests at the origin by durability, as a share of those without any cache.

A workload with the statistics that Capo publishes of its trace (:mod:`bench.capo_workload`, which
says what the paper gives and what is assumed) is replayed on volumes of a real data plane over an
origin that counts its requests (:mod:`bench.capo_replay`, which says how time is scaled).

  no cache       every request of a desktop is one at the origin, as at Capo's NFS filer
  write-through  everything is acknowledged when the origin has it
  write-back     everything is pushed every ten minutes
  differential   by the paths of Capo's Table 2: user data and metadata write-through, the system
                 write-back, page file and temporary files never

A request at the origin is an HTTP request and may carry much: a log object of 8 MiB is one, as a
chunk of 64 KiB is. So everything is also given in operations: transfers of at most 64 KiB.

The load is thinned, but what a volume does at a time is not: a push is at least one object, a fold
a number of requests. Both weigh more in a thinned busiest second than in a whole one: try several
``--load``.

All desktops are on one host. Of several hosts the origin would see as many writes, and reads as
often as chunks, which the hosts share.

Needs root. One command: ``python -m bench.capo [--runs N] [--scale S] [--json FILE]``. It takes
half an hour; what ``--json`` keeps of parts (``--period``, ``--policy``) is put together again by
``--join FILE...``.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from bench import capo_periods, capo_record, capo_replay, comparison
from bench.capo_periods import PERIODS, PUBLISHED, Period
from bench.capo_replay import Outcome, Setting
from bench.capo_shares import NO_CACHE, POLICIES, Outcomes, looks_share, mean_share, share_of
from bench.comparison import Row, Series
from testbed.results import drawing, record


def replay(setting: Setting, periods: Sequence[Period], policies: Sequence[str]) -> Outcomes:
    """Replay periods under each policy, each with a data plane of its own."""
    traces, chunk_count = capo_replay.traces(periods, setting.load, setting.window)
    outcomes: dict[str, dict[int, Outcome]] = {
        NO_CACHE: {trace.period.number: capo_replay.without_cache(trace) for trace in traces}
    }
    for policy in policies:
        with (
            tempfile.TemporaryDirectory(prefix="capo", dir="/var/tmp") as directory,
            capo_replay.replay_in(pathlib.Path(directory), setting, chunk_count) as running,
        ):
            outcomes[policy] = {}
            for trace in traces:
                outcome = outcomes[policy][trace.period.number] = running.run(trace, policy)
                share = share_of(outcome, outcomes[NO_CACHE][trace.period.number])
                print(
                    f"{policy}, {trace.period.title}: peak {share.peak:.1%}, total "
                    f"{share.total:.1%}, took {outcome.stretch:.2f}x its time, a write "
                    f"{outcome.write_ms:.1f} ms",
                    file=sys.stderr,
                    flush=True,
                )
    return outcomes


def rows_of(runs: Sequence[Outcomes]) -> list[Row]:
    """The table beside the paper's; judged only where all periods were replayed."""
    rows = []
    for policy in (name for name in PUBLISHED if name in runs[0]):
        for is_operations in (False, True):
            shares = [mean_share(run, policy, is_operations=is_operations) for run in runs]
            unit = "operations" if is_operations else "requests"
            for what in ("peak", "total"):
                capo = 100 * getattr(PUBLISHED[policy], what)
                is_whole = len(runs[0][policy]) == len(PERIODS)
                rows.append(
                    Row(
                        f"{policy}: {what} of {unit}",
                        Series("acstor", "%", [100 * getattr(one, what) for one in shares]),
                        target=f"<= {capo:.1f} % (Capo)" if is_whole else "",
                        is_met=comparison.at_most(capo) if is_whole else None,
                    )
                )
        looks = [100 * looks_share(run, policy) for run in runs]
        what = f"{policy}: looks at records, in all of these"
        rows.append(Row(what, Series("acstor", "%", looks)))
    return rows


def period_rows(run: Outcomes) -> list[Row]:
    """Each period beside Capo's Table 3; of one run."""
    rows = []
    for policy in (name for name in PUBLISHED if name in run):
        for number, outcome in run[policy].items():
            period = next(one for one in PERIODS if one.number == number)
            ours = share_of(outcome, run[NO_CACHE][number])
            capo = capo_periods.replayed(policy, period)
            for what in ("peak", "total"):
                rows.append(
                    Row(
                        f"{number} {period.title}, {policy}: {what}",
                        Series("acstor", "%", [100 * getattr(ours, what)]),
                        Series("Capo", "%", [100 * getattr(capo, what)]),
                    )
                )
    return rows


def parse() -> argparse.Namespace:
    parser = comparison.arguments(__doc__ or "")
    parser.set_defaults(runs=1)
    parser.add_argument(
        "--scale", type=float, default=20.0, help="seconds of the trace in one (%(default)g)"
    )
    parser.add_argument(
        "--load", type=float, default=1 / 40, help="share of the published requests (%(default)g)"
    )
    parser.add_argument(
        "--depth", type=int, default=8, help="most requests of a desktop in flight (%(default)s)"
    )
    parser.add_argument(
        "--window", type=int, default=0, metavar="MINUTES",
        help="only around the busiest second, for a high --load (default: whole periods)",
    )  # fmt: skip
    parser.add_argument(
        "--period", type=int, action="append", choices=[one.number for one in PERIODS],
        help="of Capo's Table 1; several may be named (default: all)",
    )  # fmt: skip
    parser.add_argument("--policy", action="append", choices=list(PUBLISHED), help="(default: all)")
    parser.add_argument(
        "--plot", type=pathlib.Path, default=pathlib.Path("build/capo.svg"), metavar="FILE",
        help="requests over time, of the first run (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--record", type=pathlib.Path, metavar="FILE",
        help="keep what pages show of the first run: bench/results/capo.json",
    )  # fmt: skip
    parser.add_argument(
        "--join", type=pathlib.Path, nargs="+", metavar="FILE",
        help="replay nothing: put together what parts of a run have left",
    )  # fmt: skip
    return parser.parse_args()


def joined(paths: Sequence[pathlib.Path]) -> tuple[Setting, Outcomes]:
    """Put the first runs of parts together; the setting is that of the first.

    :raises ValueError: when they are of different loads; scales may differ.
    """
    contents = [json.loads(path.read_text()) for path in paths]
    settings = [Setting(**content["setting"]) for content in contents]
    if len({(one.load, one.depth, one.window) for one in settings}) != 1:
        raise ValueError("the parts are of different settings")
    outcomes: dict[str, dict[int, Outcome]] = {}
    for content in contents:
        for policy, by_period in content["outcomes"][0].items():
            found = {int(number): Outcome(**one) for number, one in by_period.items()}
            outcomes.setdefault(policy, {}).update(found)
    ordered = {name: dict(sorted(outcomes[name].items())) for name in POLICIES if name in outcomes}
    return settings[0], ordered


def main() -> int:
    options = parse()
    setting = Setting(options.scale, options.load, options.depth, options.window)
    periods = [one for one in PERIODS if not options.period or one.number in options.period]
    policies = [name for name in PUBLISHED if not options.policy or name in options.policy]
    if options.join:
        setting, outcomes = joined(options.join)
        runs = [outcomes]
    else:
        runs = [replay(setting, periods, policies) for _ in range(options.runs)]
    comparison.report("Each period, first run", period_rows(runs[0]), None)
    title = f"Requests at the origin, as a share of no cache ({dataclasses.asdict(setting)})"
    rows = rows_of(runs)
    comparison.report(title, rows, None)
    if options.json is not None:
        content = comparison.as_json(title, [*rows, *period_rows(runs[0])])
        content["setting"] = dataclasses.asdict(setting)
        content["outcomes"] = [
            {
                policy: {number: dataclasses.asdict(one) for number, one in by_period.items()}
                for policy, by_period in run.items()
            }
            for run in runs
        ]
        options.json.write_text(json.dumps(content) + "\n")
    source = f"python -m bench.capo, {datetime.date.today()}"
    found = capo_record.of_outcomes(runs[0], dataclasses.asdict(setting), source)
    drawing.draw(found, options.plot)
    print(f"requests over time: {options.plot}")
    if options.record is not None:
        record.write(found, options.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())

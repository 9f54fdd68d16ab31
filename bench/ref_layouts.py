"""Latency of reading, looking at and swapping refs of a directory: without locks, and under locks.

Both layouts in turns on one file system, one process, small contents, every swap durable. One
command: ``python -m bench.ref_layouts [--directory DIR] [--json FILE]``.
"""

import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from acstor.origin.posix import PosixOrigin
from bench import comparison
from bench.comparison import Row, Series

CALLS = 200
CONTENT = b"x" * 512


def opened(root: pathlib.Path, *, is_former: bool) -> PosixOrigin:
    root.mkdir()
    if is_former:
        (root / "refs").mkdir()
    origin = PosixOrigin(str(root))
    assert origin.needs_locks is is_former
    origin.swap_ref("images/one", None, CONTENT)
    return origin


def latency(call: Callable[[], object]) -> float:
    """Return the median of many calls, milliseconds."""
    durations = []
    for _ in range(CALLS):
        started = time.perf_counter()
        call()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations) * 1e3


def cases(origin: PosixOrigin) -> dict[str, Callable[[], object]]:
    def swap() -> None:
        present = origin.get_ref("images/one")
        assert present is not None
        origin.swap_ref("images/one", present.token, CONTENT)

    def get_first() -> None:
        assert PosixOrigin(origin.root).get_ref("images/one") is not None

    known = origin.get_ref("images/one")
    return {
        "look at a ref that did not change": lambda: origin.refresh_ref("images/one", known),
        "get a ref again": lambda: origin.get_ref("images/one"),
        "open the origin and get a ref": get_first,
        "get and swap": swap,
    }


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--directory", type=pathlib.Path, help="where the origins are made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        root = pathlib.Path(directory)
        layouts = {
            name: cases(opened(root / name, is_former=name == "locks"))
            for name in ("without locks", "locks")
        }
        rows = []
        for what in layouts["locks"]:
            values = comparison.interleave(
                {
                    name: lambda case=case[what]: latency(case)  # type: ignore[misc]
                    for name, case in layouts.items()
                },
                options.runs,
            )
            ours, former = (Series(name, "ms", values[name]) for name in layouts)
            rows.append(Row(what, ours, former))
    comparison.report("Refs of a directory", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every call to an origin in Ceph, with what it ends with."""

import concurrent.futures
from collections.abc import Callable

from acstor import exception
from acstor.origin import base
from acstor.origin.rados.origin import RadosOrigin

KEY = "packs/aa/large"
LARGE = bytes(9 << 20)
DEADLINE_S = 1.0
HANGS_AFTER_S = 240.0
"""Far more than any deadline: what has not ended by then never will."""

RANGES = 100


def read_ranges(origin: RadosOrigin) -> None:
    """Read many ranges together; fail as the first that fails."""
    ranges = [
        base.ReadRange(KEY, number * 70_000, memoryview(bytearray(100))) for number in range(RANGES)
    ]
    for problem in origin.read_many(ranges):
        if problem is not None:
            raise problem


CALLS: dict[str, Callable[[RadosOrigin], object]] = {
    "put": lambda origin: origin.put_if_absent("packs/aa/small", [b"x"]),
    "put of stripes": lambda origin: origin.put_if_absent("packs/aa/other", [LARGE]),
    "read": lambda origin: origin.get_range(KEY, 1, 1),
    "read of stripes": lambda origin: origin.get_range(KEY, 0, len(LARGE)),
    "read of ranges": lambda origin: read_ranges(origin),
    "size": lambda origin: origin.size(KEY),
    "list": lambda origin: list(origin.list("packs/")),
    "delete": lambda origin: origin.delete(KEY),
    "sweep": lambda origin: origin.sweep(),
    "get_ref": lambda origin: origin.get_ref("ring"),
    "refresh_ref": lambda origin: origin.refresh_ref("ring", base.Ref("11" * 16, b"")),
    "swap_ref": lambda origin: origin.swap_ref("ring", None, b"x"),
    "list_refs": lambda origin: list(origin.list_refs()),
}


def outcomes(origin: RadosOrigin) -> dict[str, object]:
    """Return what each call ends with: the kind of its error, else what it returns."""

    def outcome(call: Callable[[RadosOrigin], object]) -> object:
        try:
            return call(origin)
        except exception.AcstorError as error:
            return type(error)

    with concurrent.futures.ThreadPoolExecutor(len(CALLS)) as pool:
        started = {name: pool.submit(outcome, call) for name, call in CALLS.items()}
        return {name: one.result(HANGS_AFTER_S) for name, one in started.items()}

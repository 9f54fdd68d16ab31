"""A service of a host whose clock is off; run by the probe tests.

``python skewed_worker.py SECONDS agent|policy --config-file FILE``: what this process takes for the
time is SECONDS ahead of the machine's. Nothing else of it differs.
"""

import importlib
import sys
import time


def main() -> int:
    seconds, program = float(sys.argv[1]), sys.argv[2]
    right = time.time
    time.time = lambda: right() + seconds
    # Only now: modules take their clock when they are imported.
    status: int = importlib.import_module(f"acstor.cmd.{program}").main(sys.argv[3:])
    return status


if __name__ == "__main__":
    sys.exit(main())

"""A data plane whose misses of an origin in Ceph go through Python, for comparison.

As one where librados cannot be loaded, which :mod:`bench.rados_reads` has no other means to bring
about: Python's binding needs the same library.
"""

import sys
from unittest import mock

from acstor import exception
from acstor.cmd import dataplane
from acstor.origin.rados import native_reader


def main() -> int:
    """Run the data plane; as ``acstor-dataplane``."""
    refusal = exception.UnsupportedError("this benchmark reads through Python")
    with mock.patch.object(native_reader, "open_reader", side_effect=refusal):
        return dataplane.main()


if __name__ == "__main__":
    sys.exit(main())

"""The process that reads file systems, started with ``-m``, the size of a disk and a descriptor.

What a guest wrote may have been made to harm who reads it. This process has no credentials, opens
nothing and starts nothing; the bytes of the disk come to it over the socket. See
:doc:`/reference/protocols/browsing`.
"""

import os
import sys

from acstor import native

MEMORY_BYTES = 1 << 30
"""Address space, with that of Python and of the extension module, which is most of what is used."""
CPU_SECONDS = 120
"""Time of a processor: a tree of a million files takes a fraction of it."""
NICENESS = 10
"""A disk may be made to take all of that time; the API, and what is beside it, goes first."""


def main() -> None:
    """Answer questions until the other end closes the socket."""
    size_bytes, descriptor = map(int, sys.argv[1:])
    os.nice(NICENESS)
    status = 1
    try:
        native.serve_files(descriptor, size_bytes, MEMORY_BYTES, CPU_SECONDS)
        status = 0
    finally:
        # Python's own end would call what is not left to this process, and so would a traceback:
        # each damaged disk would be told as one that breaks out.
        os._exit(status)


if __name__ == "__main__":
    main()

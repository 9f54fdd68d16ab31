"""Child process that reads an image's file in the mount, for the agent.

A data plane that hangs makes its reader hang, uninterruptibly: that is then this process, which the
agent leaves behind. Nothing but the standard library is imported.

It writes a greeting (errno, size, mode, group), then reads requests (offset, length) from its
standard input and answers each with an errno and, where that is 0, exactly so many bytes.
"""

import mmap
import os
import struct
import sys

GREETING = struct.Struct("<iQIi")
REQUEST = struct.Struct("<QI")
ANSWER = struct.Struct("<i")
_INPUT, _OUTPUT = 0, 1


def main() -> int:
    """Serve one file, the program's argument, until the requests end."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECT
    try:
        # Without atime: the data plane then takes it for no guest that boots.
        descriptor = os.open(sys.argv[1], flags | os.O_NOATIME)
        status = os.fstat(descriptor)
    except OSError as error:
        _send(GREETING.pack(error.errno or 0, 0, 0, 0))
        return 1
    _send(GREETING.pack(0, status.st_size, status.st_mode, status.st_gid))
    buffer = mmap.mmap(-1, mmap.PAGESIZE)
    while request := _receive(REQUEST.size):
        offset, length = REQUEST.unpack(request)
        if len(buffer) < length:
            buffer = mmap.mmap(-1, length)
        _answer(descriptor, offset, memoryview(buffer)[:length])
    return 0


def _answer(descriptor: int, offset: int, target: memoryview) -> None:
    filled = 0
    try:
        while filled < len(target):
            size = os.preadv(descriptor, [target[filled:]], offset + filled)
            if not size:
                raise EOFError
            filled += size
    except OSError as error:
        _send(ANSWER.pack(error.errno or 0))
    except EOFError:
        _send(ANSWER.pack(-1))
    else:
        _send(ANSWER.pack(0))
        _send(target)


def _send(content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(_OUTPUT, rest) :]


def _receive(size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = os.read(_INPUT, size - len(received))
        if not part:
            return b""
        received += part
    return received


if __name__ == "__main__":
    sys.exit(main())

"""A supervised program for the holder's tests: counts its lives in a pipe that it stores.

Behaviour is chosen by arguments, so that one program exercises the whole protocol:

``count FILE``   append "<pid> <number of bytes in the stored pipe> <names>" to FILE at each start,
                 store the pipe at the first, add a byte to it at each, say READY, then wait for a
                 signal; SIGTERM and SIGINT are appended to FILE and end it with 0;
``exit CODE``    end at once;
``mute``         as count, but sends WATCHDOG=1 once and never again;
``stubborn``     as count, but ignores SIGTERM and SIGINT;
``stopped``      as count, but ends at once as one that was asked to stop for good.
"""

import array
import fcntl
import os
import signal
import sys
import termios

from acstor.supervision import protocol, supervisor


def bytes_waiting(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def main() -> int:
    behaviour = sys.argv[1]
    if behaviour == "exit":
        return int(sys.argv[2])
    report = open(sys.argv[2], "a", buffering=1)  # noqa: SIM115 - open for life
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    passed = supervisor.take_descriptors(os.environ)
    parent = supervisor.Supervisor.from_environment(os.environ)
    if "pipe-read" in passed:
        read, write = passed["pipe-read"], passed["pipe-write"]
        parent.adopt("pipe-read", read)
        parent.adopt("pipe-write", write)
    else:
        read, write = os.pipe()
        assert parent.store("pipe-read", read)
        assert parent.store("pipe-write", write)
    os.write(write, b"x")
    report.write(f"{os.getpid()} {bytes_waiting(read)} {','.join(sorted(passed)) or '-'}\n")
    assert parent.notify(READY="1")
    if behaviour == "stopped":
        return protocol.EXIT_STOPPED
    if behaviour == "mute":
        parent.notify(WATCHDOG="1")
    while True:
        number = signal.sigtimedwait(signals, 0.05)
        if number is None:
            parent.refresh(STATUS="alive")
        elif behaviour != "stubborn":
            report.write(f"{os.getpid()} {signal.Signals(number.si_signo).name} -\n")
            return 0


if __name__ == "__main__":
    sys.exit(main())

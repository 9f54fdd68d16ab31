"""Child processes of registrations that go wrong: ``child_programs.py NAME FD``."""

import logging
import os
import pathlib
import signal
import sys
import threading

from acstor.registrar.registration import child_messages, registration_child
from acstor.registrar.registration.registration_child import Parent


def _allocate(parent: Parent) -> bytes:
    return bytes(1 << 40)


def _abort(parent: Parent) -> bytes:
    """End as the Rust run time does when an allocation fails."""
    sys.stderr.write("memory allocation of 68719476736 bytes failed\n")
    sys.stderr.flush()
    os.abort()


def _crash(parent: Parent) -> bytes:
    os.kill(os.getpid(), signal.SIGSEGV)
    return b""


def _killed(parent: Parent) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def _silent(parent: Parent) -> bytes:
    sys.stderr.write("it ends so\n")
    sys.exit(3)


def _nonsense(parent: Parent) -> bytes:
    return b"nonsense\n"


def _endless(parent: Parent) -> bytes:
    while True:
        parent.send(b"x" * child_messages.LINE_SIZE_MAX)


def _wrong_report(parent: Parent) -> bytes:
    return child_messages.encode({"report": {"image_id": "x", "chunks": -1}})


def _mute(parent: Parent) -> bytes:
    """Close the connection, and stay."""
    parent._socket.shutdown(2)
    threading.Event().wait()
    return b""


def _hung(parent: Parent) -> bytes:
    """Say nothing, and stay."""
    threading.Event().wait()
    return b""


def _deaf(parent: Parent) -> bytes:
    """Hear of no cancellation, and say where it is."""
    logging.getLogger("acstor.registrar.child").warning("process %d is deaf", os.getpid())
    pathlib.Path(os.environ["TMPDIR"], "left").touch()
    threading.Event().wait()
    return b""


def _record(name: str) -> dict[str, object]:
    digest = "ab" * 32
    return {
        "manifest": digest, "content": digest, "name": name, "size_bytes": 512,
        "chunk_size": 4096, "chunk_count": 1, "unique_count": 1, "zero_count": 0,
        "source_format": "raw", "registered_at": "",
    }  # fmt: skip


def _forging(parent: Parent) -> bytes:
    """Ask for the signature of a record of something else than was ordered."""
    return parent.write_record(_record("another"))


def _greedy(parent: Parent) -> bytes:
    """Ask for signatures again and again."""
    while True:
        parent.write_record(_record("name"))


def _environment(parent: Parent) -> bytes:
    raise ValueError(sorted(name for name in os.environ if name.startswith("OS_")))


def main(name: str, descriptor: int) -> int:
    """Behave as ``name`` says where a child would register."""

    def misbehave(order: child_messages.Order, parent: Parent) -> bytes:
        return globals()["_" + name](parent)  # type: ignore[no-any-return]

    registration_child.register = misbehave
    return registration_child.main([str(descriptor)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

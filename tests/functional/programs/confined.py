"""Runs a command with the system calls that a unit file leaves it, as systemd would.

Arguments: the unit file, then the command. What ``SystemCallFilter=`` names is looked up with
``systemd-analyze syscall-filter`` and in the kernel's headers (x86-64), and becomes a seccomp
filter; so does ``MemoryDenyWriteExecute=``. Everything else gets ``EPERM``. Capabilities and
namespaces are up to setpriv(1) and unshare(1).
"""

import ctypes
import errno
import functools
import os
import pathlib
import re
import struct
import subprocess
import sys

HEADER = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
_ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
_LOAD, _EQUAL, _ANY_SET, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _PROTECTION_AT = 0, 4, 32
"""Offsets in ``struct seccomp_data``; the third argument of mmap and mprotect is the protection."""
_WRITE_EXECUTE, _EXECUTE = 2 | 4, 4
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2

Instruction = tuple[int, int, int, int]


@functools.cache
def members(name: str) -> frozenset[str]:
    """Return the system calls of a word of ``SystemCallFilter=``."""
    if not name.startswith("@"):
        return frozenset({name})
    listed = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout.splitlines()[1:]  # fmt: skip
    words = [line.strip() for line in listed if line.strip() and not line.strip().startswith("#")]
    return frozenset().union(*(members(word) for word in words))


def allowed(unit: str) -> frozenset[str]:
    """Return the system calls that a unit may make; rules of systemd.exec(5)."""
    found = members("@default")
    for line in unit.splitlines():
        if not line.startswith("SystemCallFilter="):
            continue
        words = line.partition("=")[2]
        named = frozenset().union(*(members(word) for word in words.lstrip("~").split()))
        found = found - named if words.startswith("~") else found | named
    return found


def numbers() -> dict[str, int]:
    """Return the number of each system call of this architecture."""
    defined = re.findall(r"^#define __NR_(\w+) (\d+)$", HEADER.read_text(), re.M)
    return {name: int(number) for name, number in defined}


def program(unit: str) -> list[Instruction]:
    """Return the seccomp filter of a unit."""
    known = numbers()
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURE),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if re.search(r"^MemoryDenyWriteExecute=yes$", unit, re.M):
        made += [
            (_EQUAL, 0, 5, known["mmap"]),
            (_LOAD, 0, 0, _PROTECTION_AT),
            (_AND, 0, 0, _WRITE_EXECUTE),
            (_EQUAL, 0, 1, _WRITE_EXECUTE),
            (_RETURN, 0, 0, _REFUSE),
            (_LOAD, 0, 0, _NUMBER_AT),
        ]
        for name in ("mprotect", "pkey_mprotect"):
            made += [
                (_EQUAL, 0, 4, known[name]),
                (_LOAD, 0, 0, _PROTECTION_AT),
                (_ANY_SET, 0, 1, _EXECUTE),
                (_RETURN, 0, 0, _REFUSE),
                (_LOAD, 0, 0, _NUMBER_AT),
            ]
    for name in sorted(allowed(unit) & known.keys()):
        made += [(_EQUAL, 0, 1, known[name]), (_RETURN, 0, 0, _ALLOW)]
    return [*made, (_RETURN, 0, 0, _REFUSE)]


def confine(unit: str) -> None:
    """Give this process, and what it becomes, the filter of a unit; for ever."""
    made = b"".join(struct.pack("HBBI", *instruction) for instruction in program(unit))
    text = ctypes.create_string_buffer(made, len(made))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    given = Program(len(made) // 8, ctypes.addressof(text))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_SET_SECCOMP, _MODE_FILTER, ctypes.byref(given), 0, 0),
    ):
        if library.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    confine(pathlib.Path(sys.argv[1]).read_text())
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
